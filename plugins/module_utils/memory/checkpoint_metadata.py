# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be known of a checkpoint without its data: configuration, tensors, sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from ..checkpoint.json_text import read_object
from ..errors import VllmHostError
from .safetensors_headers import HEADER_LIMIT_BYTES, TensorGroup, TensorTally, read_local_headers

INDEX_NAME = "model.safetensors.index.json"
#: An index of a trillion parameters has 40 MB; what is larger than a header may be is no index.
INDEX_LIMIT_BYTES = HEADER_LIMIT_BYTES
#: No checkpoint is larger.
_MOST_BYTES = 1 << 60
CONFIG_NAME = "config.json"
HF_QUANT_CONFIG_NAME = "hf_quant_config.json"

_SHARD = re.compile(r"(.+)-(\d{5,6})-of-(\d{5,6})\.safetensors")
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".npz", ".msgpack", ".h5")


@dataclass(frozen=True)
class CheckpointMetadata:
    """A checkpoint as far as its metadata tell.

    Attributes:
        origin: repository id or folder; empty when the configuration was given.
        commit: the resolved revision of a repository, else empty.
        config: config.json.
        hf_quant_config: hf_quant_config.json, if there is one.
        tensors: groups from the headers; None when they could not be read (other formats, an index only).
        tensors_source: ``headers``, or ``config`` when the list was made from config.json.
        weight_bytes: bytes of the weights that are served, None when nothing is known of them.
        bytes_total: bytes of all files of the checkpoint.
        bytes_read: bytes read from disk or network for this.
        notes: what a reader must know.
    """

    origin: str
    commit: str
    config: Mapping[str, Any]
    hf_quant_config: Optional[Mapping[str, Any]] = None
    tensors: Optional[tuple[TensorGroup, ...]] = None
    tensors_source: str = "headers"
    weight_bytes: Optional[int] = None
    bytes_total: int = 0
    bytes_read: int = 0
    notes: tuple[str, ...] = ()


def given_configuration(
    config: Mapping[str, Any], hf_quant_config: Optional[Mapping[str, Any]] = None
) -> CheckpointMetadata:
    """Metadata of a checkpoint of which only the configuration is at hand."""
    return CheckpointMetadata(origin="", commit="", config=config, hf_quant_config=hf_quant_config)


def read_local_checkpoint(path: str) -> CheckpointMetadata:
    """Metadata of a folder.

    Raises:
        VllmHostError: ``checkpoint_not_found``, ``checkpoint_incomplete`` (shards that the index names are missing),
            ``checkpoint_unreadable``, ``bad_safetensors``, and what ``decode_object`` raises for its JSON files.
    """
    folder = Path(path)
    if not (folder / CONFIG_NAME).is_file():
        raise VllmHostError(
            "checkpoint_not_found",
            f"{folder} has no {CONFIG_NAME}: it is not a checkpoint in the format that vLLM serves. Check the path in vllm_model.",
            path=str(folder),
        )
    sizes = {}
    for item in folder.iterdir():
        if item.is_file():
            sizes[item.name] = item.stat().st_size
        elif item.is_symlink() and not item.exists():
            raise VllmHostError(
                "checkpoint_incomplete",
                f"{item} is a link to a file that is not there. Fetch the checkpoint again.",
                path=str(folder),
                missing=[item.name],
            )
    config = _read_object(folder / CONFIG_NAME)
    hf_quant_config = _read_object(folder / HF_QUANT_CONFIG_NAME) if HF_QUANT_CONFIG_NAME in sizes else None
    known = CheckpointMetadata(str(folder), "", config, hf_quant_config, bytes_total=sum(sizes.values()))
    named, index_total = _local_index(folder, sizes)
    shards = named or weight_files(sizes)
    if not named:
        require_whole_families(shards, str(folder))
    missing = sorted(name for name in shards if name not in sizes)
    if missing and len(missing) == len(shards) and index_total:
        note = f"the shards are not here; sizes are those of {INDEX_NAME}"
        return replace(known, weight_bytes=index_total, bytes_total=index_total, notes=(note,))
    if missing:
        raise VllmHostError(
            "checkpoint_incomplete",
            f"{folder / INDEX_NAME} names {len(missing)} files that are not there, first {missing[0]}. Fetch the checkpoint again.",
            path=str(folder),
            missing=missing[:20],
        )
    if not shards:
        return replace(known, weight_bytes=other_weight_bytes(sizes))
    tally = read_local_headers(folder / name for name in sorted(shards))
    return replace(
        known,
        tensors=tensors_of(tally, str(folder)),
        weight_bytes=sum(sizes[name] for name in shards),
        bytes_read=tally.bytes_read,
    )


def weight_files(names: Iterable[str]) -> list[str]:
    """The safetensors files at the top of a checkpoint that vLLM loads when there is no index.

    Copies of the same weights in another layout (``consolidated``) and adapters are left out when the usual ones are there.
    """
    found = [name for name in names if name.endswith(".safetensors") and "/" not in name]
    usual = [name for name in found if not name.startswith(("consolidated", "adapter"))]
    return usual or [name for name in found if name.startswith("consolidated")]


def needs_index(shards: Iterable[str]) -> bool:
    """Do the names leave open whether all of them are weights? One complete family ``x-00001-of-00119`` does not."""
    names = list(shards)
    if len(names) <= 1:
        return False
    families = {(match.group(1), int(match.group(3))) for match in map(_SHARD.fullmatch, names) if match}
    return len(families) != 1 or next(iter(families))[1] != len(names)


def tensors_of(tally: TensorTally, where: str) -> tuple[TensorGroup, ...]:
    """All groups; ``bad_safetensors`` where there are none, for no weights are not weights of no size."""
    if not tally.tensors:
        raise VllmHostError(
            "bad_safetensors",
            f"{where}: its safetensors files hold no tensors at all. Fetch it again or choose another checkpoint.",
            file=where,
        )
    return tally.groups()


def require_whole_families(shards: Iterable[str], where: str) -> None:
    """Nothing if each family ``x-00001-of-00119`` has all its files.

    Raises:
        VllmHostError: ``checkpoint_incomplete``.
    """
    families: dict[tuple[str, int], int] = {}
    for match in filter(None, map(_SHARD.fullmatch, shards)):
        family = (match.group(1), int(match.group(3)))
        families[family] = families.get(family, 0) + 1
    for (name, expected), found in families.items():
        if found < expected:
            raise VllmHostError(
                "checkpoint_incomplete",
                f"{where} has {found} of the {expected} files {name}-*-of-{expected:05d}.safetensors. Fetch the checkpoint again.",
                path=where,
                found=found,
                expected=expected,
            )


def index_shards(document: Mapping[str, Any], where: str) -> tuple[list[str], Optional[int]]:
    """Files and total size that an index names.

    Raises:
        VllmHostError: ``bad_index``.
    """
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise _bad_index(where, "has no weight_map")
    names = {name if isinstance(name, str) else repr(name) for name in weight_map.values()}
    for name in names:
        if "/" in name or name.startswith(".") or not name.endswith(".safetensors"):
            raise _bad_index(where, f"names {name[:200]!r} as a file of weights")
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, bool) or not isinstance(total, (int, float)) or not 0 < total < _MOST_BYTES:
        return sorted(names), None
    return sorted(names), int(total)


def parse_index(raw: bytes, where: str) -> tuple[list[str], Optional[int]]:
    """The same from the file's text.

    Raises:
        VllmHostError: ``bad_index``.
    """
    check_index_size(len(raw), where)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _bad_index(where, "is not JSON") from error
    if not isinstance(document, dict):
        raise _bad_index(where, "is not a JSON object")
    return index_shards(document, where)


def check_index_size(size: int, where: str) -> None:
    """Raises ``bad_index`` for a file that no index can be."""
    if size > INDEX_LIMIT_BYTES:
        raise _bad_index(where, f"has {size:,} bytes; an index of more than {INDEX_LIMIT_BYTES:,} is not read")


def other_weight_bytes(sizes: Mapping[str, int]) -> Optional[int]:
    """Bytes of weights in formats whose tensors are not read here."""
    total = sum(size for name, size in sizes.items() if name.endswith(_OTHER_WEIGHTS))
    return total or None


def _local_index(folder: Path, sizes: Mapping[str, int]) -> tuple[list[str], Optional[int]]:
    size = sizes.get(INDEX_NAME)
    if size is None:
        return [], None
    check_index_size(size, str(folder / INDEX_NAME))
    return parse_index((folder / INDEX_NAME).read_bytes(), str(folder / INDEX_NAME))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)[1]
    except OSError as error:
        raise VllmHostError("checkpoint_unreadable", f"{path}: {error.strerror}.", file=str(path)) from error


def _bad_index(where: str, what: str) -> VllmHostError:
    return VllmHostError("bad_index", f"{where} {what}. Fetch the file again or choose another checkpoint.", file=where)
