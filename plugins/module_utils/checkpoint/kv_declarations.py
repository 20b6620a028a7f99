# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a checkpoint declares that its KV cache is quantized, and the smallest change that takes the declaration back.

The shapes come from 113 published configurations and from the readers in vLLM (``resolve_kv_cache_dtype_string``,
``ModelOptQuantConfigBase.from_config``, ``CompressedTensorsConfig``; read in 0.32.0):

- ``kv_cache_scheme`` (ModelOpt, compressed-tensors), an object or a string: removed, as its absence means 16 bit.
- ``kv_cache_quant_algo`` (ModelOpt), a string: set to null. Where it is nested in ``quantization``, vLLM insists on the key
  ("NVFP4 quantization requires ... kv_cache_quant_algo").
- a null declares nothing and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .json_text import REMOVE, KeyPath, dotted, edit_members, read_object

FILES = ("config.json", "hf_quant_config.json")
"""Both are patched: vLLM reads the second only when the first has no quantization_config, other readers the other way."""

_CONTAINERS = ("quantization_config", "compression_config", "quantization")
_CHANGE_BY_KEY: Mapping[str, Any] = {"kv_cache_scheme": REMOVE, "kv_cache_quant_algo": None}
_KNOWN_STRINGS = ("fp8", "nvfp4")
_LOOKS_LIKE_KV_CACHE = re.compile(r"kv_?cache|(^|_)kv_(quant|bits|dtype|scheme)", re.IGNORECASE)


@dataclass(frozen=True)
class KvDeclaration:
    """A quantized KV cache, declared in one place."""

    path: KeyPath
    value: Any
    change: Any
    """``REMOVE``, or the value that takes its place."""


@dataclass(frozen=True)
class PatchedFile:
    """One file whose text changes."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class StripPlan:
    """What stripping a checkpoint means.

    Attributes:
        files: those that change, at most both of ``FILES``.
        edits: ``file``, ``key`` (dotted), ``before``, ``after`` and ``action`` (``removed``, ``set``).
        unknown: ``file``, ``key``, ``value`` of declarations that look like a KV cache's and are not known; they stay.
    """

    files: tuple[PatchedFile, ...]
    edits: tuple[dict[str, Any], ...]
    unknown: tuple[dict[str, Any], ...]


def plan_strip(folder: Path) -> StripPlan:
    """Read both files of a snapshot and say what changes; writes nothing.

    Raises:
        VllmHostError: see ``json_text.read_object``.
        OSError: the file cannot be read.
    """
    files: list[PatchedFile] = []
    edits: list[dict[str, Any]] = []
    unknown: list[dict[str, Any]] = []
    for name in FILES:
        path = folder / name
        if not path.exists():
            continue
        text, value = read_object(path)
        declarations, strangers = find_declarations(name, value)
        unknown += [{"file": name, "key": dotted(path), "value": value} for path, value in strangers]
        if not declarations:
            continue
        after = edit_members(text, {found.path: found.change for found in declarations}, str(path))
        files.append(PatchedFile(name, text, after))
        edits += [_as_edit(name, found) for found in declarations]
    return StripPlan(tuple(files), tuple(edits), tuple(unknown))


def find_declarations(
    file_name: str, document: Mapping[str, Any]
) -> tuple[list[KvDeclaration], list[tuple[KeyPath, Any]]]:
    """The declarations in one document, and the members that look like one and are not known.

    Args:
        file_name: ``hf_quant_config.json`` is a quantization container as a whole; elsewhere they are looked for by name.
        document: the parsed file.
    """
    declarations: list[KvDeclaration] = []
    strangers: list[tuple[KeyPath, Any]] = []
    for path, key, value, in_container in _members(document, (), in_container=file_name == "hf_quant_config.json"):
        if value is None:
            continue
        if in_container and key in _CHANGE_BY_KEY:
            declarations.append(KvDeclaration(path, value, _CHANGE_BY_KEY[key]))
            if not _is_known_value(value):
                strangers.append((path, value))
        elif key in _CHANGE_BY_KEY or _LOOKS_LIKE_KV_CACHE.search(key):
            strangers.append((path, value))
    return declarations, strangers


def without_declarations(file_name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as it will be in a stripped view, for planning before anything is on a disk."""
    declarations, _strangers = find_declarations(file_name, document)
    return _changed(document, {found.path: found.change for found in declarations}, ())


def _changed(value: Mapping[str, Any], changes: Mapping[KeyPath, Any], path: KeyPath) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, child in value.items():
        place = (*path, key)
        if place in changes:
            if changes[place] is not REMOVE:
                kept[key] = changes[place]
        else:
            kept[key] = _changed(child, changes, place) if isinstance(child, Mapping) else child
    return kept


def _members(
    value: Mapping[str, Any], path: KeyPath, *, in_container: bool
) -> Iterator[tuple[KeyPath, str, Any, bool]]:
    """Path, key and value of every member of every object, and whether the object is a quantization method's description.

    Containers are found by name and however deep: ``text_config.quantization_config``, a nested ``quantization``.
    """
    for key, child in value.items():
        yield (*path, key), key, child, in_container
        if isinstance(child, Mapping):
            yield from _members(child, (*path, key), in_container=key in _CONTAINERS)


def _is_known_value(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in _KNOWN_STRINGS
    return isinstance(value, Mapping) and value.get("type") == "float" and value.get("num_bits") in (4, 8)


def _as_edit(file_name: str, found: KvDeclaration) -> dict[str, Any]:
    removed = found.change is REMOVE
    return {
        "file": file_name,
        "key": dotted(found.path),
        "before": found.value,
        "after": None if removed else found.change,
        "action": "removed" if removed else "set",
    }
