"""A folder instead of a Hub: another store, the Hub's own cache, a plain copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from huggingface_hub import snapshot_download

from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import REPO, Fetch, contents

SHARD = "model-00002-of-00004.safetensors"
COMMIT = "c" * 40


def test_a_snapshot_of_another_store(run: Fetch, hub: Hub, files: dict[str, bytes], tmp_path: Path) -> None:
    first = run()
    hub.stop()
    copy = run(source=first.path, store=str(tmp_path / "second"))
    assert contents(copy.path) == files and copy.commit == first.commit
    shutil.rmtree(first.path)
    assert not run(source=first.path, store=str(tmp_path / "second")).changed, "complete: the source may be gone"


def test_the_cache_of_huggingface_hub(run: Fetch, hub: Hub, files: dict[str, bytes], tmp_path: Path) -> None:
    cached = snapshot_download(REPO, endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    hub.stop()
    result = run(source=cached)
    assert contents(result.path) == files and result.warnings == []
    assert not any(path.is_symlink() for path in Path(result.path).rglob("*"))


def test_a_damaged_file_of_the_source_is_not_taken(run: Fetch, tmp_path: Path) -> None:
    first = run()
    shard = Path(first.path) / SHARD
    shard.chmod(0o644)
    with shard.open("r+b") as stream:
        stream.write(b"damage")
    with pytest.raises(VllmHostError) as raised:
        run(source=first.path, store=str(tmp_path / "second"))
    assert raised.value.code == "content_mismatch" and SHARD in raised.value.message


def test_a_plain_folder_needs_the_commit(run: Fetch, files: dict[str, bytes], tmp_path: Path) -> None:
    plain = str(tmp_path / "hub" / REPO)
    with pytest.raises(VllmHostError, match="give the commit") as raised:
        run(source=plain)
    assert raised.value.code == "source_unfit"
    result = run(source=plain, revision=COMMIT)
    assert contents(result.path) == files and result.commit == COMMIT
    assert "computed from its files" in result.warnings[0]
    assert not run(source=plain, revision=COMMIT).changed


def test_a_source_that_does_not_fit(run: Fetch, tmp_path: Path) -> None:
    first = run()
    for fields, words in (({"repo_id": "acme/other"}, "of acme/model"), ({"revision": COMMIT}, f"not {COMMIT}")):
        with pytest.raises(VllmHostError, match=words) as raised:
            run(source=first.path, store=str(tmp_path / "second"), **fields)
        assert raised.value.code == "source_unfit"
    with pytest.raises(VllmHostError, match="Mount it") as raised:
        run(source=str(tmp_path / "none"), store=str(tmp_path / "second"))
    assert raised.value.code == "source_missing"
