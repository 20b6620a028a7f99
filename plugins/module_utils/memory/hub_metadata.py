# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metadata of a checkpoint on a Hub: the JSON files and the headers of the shards, by range requests, never the data."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Optional

from ..checkpoint.hub import CONTENT_RANGE, MISSING_LIBRARY, Hub, HubUnreachable, Trouble, public_url
from ..checkpoint.json_text import decode_object, require_readable_size
from ..checkpoint.retry import Gate, RetryPolicy
from ..checkpoint.tree import TreeFile
from ..errors import VllmHostError
from .checkpoint_metadata import (
    CONFIG_NAME,
    HF_QUANT_CONFIG_NAME,
    INDEX_NAME,
    CheckpointMetadata,
    check_index_size,
    needs_index,
    other_weight_bytes,
    parse_index,
    require_whole_families,
    tensors_of,
    weight_files,
)
from .safetensors_headers import PREFIX_BYTES, TensorTally, header_bytes

#: Requests at a time: enough to hide the latency of a hundred shards, few enough not to be throttled.
CONNECTIONS = 16
#: Someone is waiting for an answer, not for a transfer of hours: give up sooner than a download does.
METADATA_RETRIES = RetryPolicy(attempts=4, base_s=0.5, cap_s=8.0)
TIMEOUT_S = 30.0


#: Where the user of a plan sets what a Hub's refusal is about.
_DOWN = " The endpoint is vllm_hub_endpoint (empty: huggingface.co); a checkpoint in a folder needs no Hub: vllm_model: /path/to/it."
_ACCESS = " The name is vllm_model, the token vllm_hub_token."
_VARIABLES = {
    **dict.fromkeys(("hub_unreachable", "hub_failed", "hub_offline", "hub_answer_invalid", "hub_refused"), _DOWN),
    **dict.fromkeys(
        ("repo_not_found", "repo_gated", "token_refused", "access_denied", "token_invalid", "repo_id_invalid"), _ACCESS
    ),
    "revision_not_found": " The revision is vllm_revision.",
}


@dataclass(frozen=True)
class _Piece:
    """Bytes of a file, and the URL that gave them."""

    content: bytes
    location: str


class MetadataHub(Hub):
    """A Hub that is asked for pieces of files."""

    def piece(self, file: TreeFile, commit: str, start: int, length: int, location: Optional[str] = None) -> _Piece:
        """``length`` bytes from ``start``, with retries.

        Args:
            location: a signed URL from an earlier call on this file; dropped as soon as it is refused.

        Raises:
            VllmHostError: ``hub_unreachable``, ``hub_failed``, or what the Hub refuses.
        """
        failures = 0
        while True:
            try:
                return self._piece(file, commit, start, length, location)
            except Trouble as trouble:
                failures, location = failures + 1, None
                if failures >= self.policy.attempts or not self.gate.wait(self.policy.pause_s(failures)):
                    raise HubUnreachable(
                        "hub_failed" if trouble.reached else "hub_unreachable",
                        f"{file.path}: {trouble.reason}; {failures} attempts. Check the endpoint, the proxy and the network, and"
                        " run again.",
                        endpoint=self.name,
                        file=file.path,
                    ) from None

    def _piece(self, file: TreeFile, commit: str, start: int, length: int, location: Optional[str]) -> _Piece:
        url = location or self.file_url(file, commit)
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        with self._send(url, wanted, None, file, commit) as response:
            skipped = start
            if response.status_code == 206:
                found = CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
                if not found or int(found[1]) != start:
                    raise Trouble(f"{public_url(str(response.url))} answers with another range than the one asked for")
                skipped = 0
            received = bytearray()
            # A server that ignores Range sends the whole file: stop as soon as the piece is there.
            for chunk in response.iter_raw():
                received += chunk
                if len(received) >= skipped + length:
                    break
            content = bytes(received[skipped : skipped + length])
            if len(content) != length:
                raise Trouble(f"{public_url(str(response.url))} ends after {len(content)} of {length} bytes")
            return _Piece(content, str(response.url))


def read_hub_checkpoint(
    repo_id: str, revision: str = "main", endpoint: str = "", token: str = "", connections: int = CONNECTIONS
) -> CheckpointMetadata:
    """Metadata of a repository at a revision.

    Args:
        repo_id: ``organization/name``.
        revision: branch, tag or commit.
        endpoint: empty means huggingface.co.
        token: empty for none.
        connections: requests at a time.

    Raises:
        VllmHostError: what the Hub refuses (``repo_not_found``, ``repo_gated``, ``token_refused``, ``revision_not_found``,
            ...), ``missing_library``, ``hub_unreachable``, ``checkpoint_not_found``, ``bad_safetensors``, ``bad_index``.
    """
    if MISSING_LIBRARY:
        raise VllmHostError(
            "missing_library",
            f"The Python that runs this module cannot import {MISSING_LIBRARY.name}, which reading from a Hub needs. Run it with"
            " the interpreter of the tools environment (ansible_python_interpreter: vllm_tools.python), or, on a controller, install"
            " the collection's requirements.txt into that Python.",
            library=MISSING_LIBRARY.name,
        )
    try:
        return _read(
            MetadataHub(repo_id, endpoint, token, METADATA_RETRIES, TIMEOUT_S, Gate()), repo_id, revision, connections
        )
    except VllmHostError as error:
        error.message += _VARIABLES.get(error.code, "")
        raise


def _read(hub: MetadataHub, repo_id: str, revision: str, connections: int) -> CheckpointMetadata:
    try:
        commit = hub.commit(revision, METADATA_RETRIES.attempts)
        files = {file.path: file for file in hub.tree(commit)}
        if CONFIG_NAME not in files:
            raise VllmHostError(
                "checkpoint_not_found",
                f"{repo_id} at {hub.name} has no {CONFIG_NAME}: it is not a checkpoint in the format that vLLM serves. Check vllm_model and"
                " vllm_revision.",
                repo_id=repo_id,
                revision=revision,
            )
        documents = [_document(hub, files.get(name), commit, repo_id) for name in (CONFIG_NAME, HF_QUANT_CONFIG_NAME)]
        sizes = {path: file.size for path, file in files.items()}
        shards, index_bytes = _shards(hub, files, commit, repo_id)
        known = CheckpointMetadata(repo_id, commit, documents[0] or {}, documents[1], bytes_total=sum(sizes.values()))
        json_bytes = sizes[CONFIG_NAME] + sizes.get(HF_QUANT_CONFIG_NAME, 0) + index_bytes
        if not shards:
            return replace(known, weight_bytes=other_weight_bytes(sizes), bytes_read=json_bytes)
        tally = _headers(hub, [files[name] for name in shards], commit, repo_id, connections)
        return replace(
            known,
            tensors=tensors_of(tally, repo_id),
            weight_bytes=sum(sizes[name] for name in shards),
            bytes_read=json_bytes + tally.bytes_read,
            notes=tuple(sorted(hub.notes)),
        )
    finally:
        hub.close()


def _shards(hub: MetadataHub, files: dict[str, TreeFile], commit: str, repo_id: str) -> tuple[list[str], int]:
    """Names of the weight files, and the bytes that were read to find them."""
    shards = weight_files(files)
    index = files.get(INDEX_NAME)
    if index is None:
        require_whole_families(shards, repo_id)
    if index is None or not needs_index(shards):
        return shards, 0
    where = f"{repo_id}: {INDEX_NAME}"
    check_index_size(index.size, where)
    named, _total = parse_index(hub.piece(index, commit, 0, index.size).content, where)
    missing = [name for name in named if name not in files]
    if missing:
        raise VllmHostError(
            "checkpoint_incomplete",
            f"{where} names {len(missing)} files that the repository does not have, first {missing[0]}.",
            repo_id=repo_id,
            missing=missing[:20],
        )
    return named, index.size


def _document(hub: MetadataHub, file: Optional[TreeFile], commit: str, repo_id: str) -> Optional[dict[str, Any]]:
    if file is None or file.size == 0:
        return None
    where = f"{repo_id}: {file.path}"
    require_readable_size(file.size, where)
    return decode_object(hub.piece(file, commit, 0, file.size).content, where)[1]


def _headers(hub: MetadataHub, shards: Sequence[TreeFile], commit: str, repo_id: str, connections: int) -> TensorTally:
    """All headers, a few at a time; each is taken in as it comes and forgotten."""

    def header(file: TreeFile) -> bytes:
        where = f"{repo_id}: {file.path}"
        prefix = hub.piece(file, commit, 0, min(PREFIX_BYTES, file.size))
        length = header_bytes(prefix.content, file.size, where)
        return hub.piece(file, commit, PREFIX_BYTES, length, prefix.location).content

    tally = TensorTally()
    with ThreadPoolExecutor(max_workers=max(1, min(connections, len(shards)))) as pool:
        for file, content in zip(shards, pool.map(header, shards)):
            tally.add(content, file.size - PREFIX_BYTES - len(content), f"{repo_id}: {file.path}")
    return tally
