"""What the tests of checkpoint_fetch download, and how they look at the result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.fetch import FetchResult

from tests.host.hub import Hub

Fetch = Callable[..., FetchResult]
REPO = "acme/model"
SHARD_BYTES = 3_000_001  # not a multiple of any block


def make_repository(folder: Path, shards: int = 4) -> dict[str, bytes]:
    """Files by path: a few shards in large-file storage, and small ones in git."""
    files = {f"model-{n:05}-of-{shards:05}.safetensors": os.urandom(SHARD_BYTES) for n in range(1, shards + 1)}
    files |= {"config.json": b'{"model_type": "llama"}\n', "sub/tokenizer.json": os.urandom(70_000), "empty": b""}
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return files


def cut_every_shard(hub: Hub, at: int, shards: int = 4) -> None:
    """Each shard breaks off once after so many bytes, whichever stream is quicker, and goes on only when the faults are cleared."""
    for number in range(1, shards + 1):
        shard = f"model-{number:05}-of-{shards:05}.safetensors"
        hub.faults.add(where="cdn", path=shard, drop_after=at)
        hub.faults.add(where="cdn", path=shard, status=503, skip=1, times=None)


def contents(folder: str | Path) -> dict[str, bytes]:
    """Files of a snapshot by path, without our own manifest."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    found.pop(".manifest.json", None)
    return found
