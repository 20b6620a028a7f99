# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change single members of a JSON document and leave every other byte of its text alone.

Writers differ in indent, separators, escapes, the spelling of numbers and the last newline; parsing and printing again would
change all of that. So the members are found in the text, cut out or overwritten there, and the result is parsed and
compared with what was meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from ..errors import VllmHostError

MAX_BYTES = 16 * 1024 * 1024
"""Largest document that is read. The largest config.json seen has 1 MB; what is bigger is something else."""

MAX_DEPTH = 200
"""Deepest nesting that is followed; configurations have about ten levels."""

KeyPath = tuple[Union[str, int], ...]
"""Where a member is: ``("quantization_config", "kv_cache_scheme")``; numbers are places in arrays."""

_BLANK = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^ \t\n\r,\]}]+")


@dataclass(frozen=True)
class Member:
    """A member of an object, as offsets into the text."""

    path: KeyPath
    key_start: int
    value_start: int
    value_end: int


@dataclass
class _Open:
    """An object or array that the scanner is inside of."""

    path: KeyPath
    is_object: bool
    start: int
    index: int = 0
    key: str = ""
    key_start: int = 0
    value_start: int = 0


def read_object(path: Path) -> tuple[str, dict[str, Any]]:
    """Text and value of a file; one that is too large is not even read. See ``decode_object``."""
    require_readable_size(path.stat().st_size, str(path))
    return decode_object(path.read_bytes(), str(path))


def require_readable_size(size: int, name: str) -> None:
    """Raises ``json_too_large``."""
    if size > MAX_BYTES:
        raise VllmHostError(
            "json_too_large",
            f"{name} has {size:,} bytes; a configuration of more than {MAX_BYTES:,} bytes is not read. Check that it is the right"
            " file.",
            file=name,
            bytes=size,
            limit_bytes=MAX_BYTES,
        )


def decode_object(raw: bytes, name: str) -> tuple[str, dict[str, Any]]:
    """Text and value of a JSON document that is an object; ``NaN`` and ``Infinity`` pass, as Python's readers let them.

    Args:
        raw: the file's content.
        name: the file, for messages.

    Raises:
        VllmHostError: ``json_invalid`` (not UTF-8, a byte order mark, a syntax error, nested too deep),
            ``json_duplicate_key``, ``json_not_an_object``.
    """
    if raw.startswith(b"\xef\xbb\xbf"):
        raise _invalid(
            name, "it starts with a byte order mark, which JSON readers refuse; save it as UTF-8 without one"
        )
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, name))
    except UnicodeDecodeError as error:
        raise _invalid(name, f"byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise _invalid(name, "it is nested too deep") from error
    except ValueError as error:
        raise _invalid(name, str(error)) from error
    if not isinstance(value, dict):
        raise VllmHostError(
            "json_not_an_object",
            f"{name} holds a JSON {_kind(value)} where an object is needed. Fetch the file again.",
            file=name,
            found=_kind(value),
        )
    if _deeper_than(value, MAX_DEPTH):
        raise _invalid(name, "it is nested too deep")
    return text, value


def edit_members(text: str, changes: Mapping[KeyPath, Any], name: str) -> str:
    """The text with some members removed or overwritten.

    Args:
        text: a document that ``decode_object`` accepted.
        changes: for each path, ``REMOVE`` or the new value (a scalar).
        name: the file, for messages.

    Raises:
        VllmHostError: ``json_edit_failed`` when anything but the intended members would have changed (a defect here, never
            written to disk).
    """
    objects = _members_by_object(text)
    cuts: list[tuple[int, int, str]] = []
    for (start, end), members in objects.items():
        removed = [changes.get(member.path, _KEEP) is REMOVE for member in members]
        cuts += _removals(start, end, members, removed)
        for member in members:
            wanted = changes.get(member.path, _KEEP)
            if wanted is not _KEEP and wanted is not REMOVE:
                cuts.append((member.value_start, member.value_end, json.dumps(wanted)))
    edited = _cut(text, cuts)
    if _faithful(edited) != _changed(_faithful(text), changes, ()):
        raise VllmHostError(
            "json_edit_failed",
            f"{name} could not be changed without touching other keys; nothing was written. Please report it with the file.",
            file=name,
            keys=[dotted(path) for path in changes],
        )
    return edited


def dotted(path: KeyPath) -> str:
    """``quantization_config.kv_cache_scheme``, for people."""
    return ".".join(str(part) for part in path)


class _Marker:
    """A value that no JSON document holds."""


REMOVE = _Marker()
_KEEP = _Marker()


def _unique(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _value in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise VllmHostError(
            "json_duplicate_key",
            f"{name} has the key {twice!r} twice in one object, and readers differ in which one counts. Remove one of them.",
            file=name,
            key=twice,
        )
    return value


def _invalid(name: str, why: str) -> VllmHostError:
    return VllmHostError(
        "json_invalid", f"{name} is not valid JSON: {why}. Fetch the file again.", file=name, reason=why
    )


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}.get(type(value), "value")


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _level in range(levels):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _members_by_object(text: str) -> dict[tuple[int, int], list[Member]]:
    """The members of every object, by the offsets of its braces (the closing one included)."""
    members: dict[int, list[Member]] = {}
    ends: dict[int, int] = {}
    stack: list[_Open] = []
    position = _skip_blank(text, 0)
    while True:
        character = text[position]
        if character in "{[":
            path = _value_path(stack)
            stack.append(_Open(path, character == "{", position))
            if character == "{":
                members[position] = []
            position = _skip_blank(text, position + 1)
            if text[position] not in "}]":
                position = _next_value(text, position, stack[-1])
                continue
        else:
            position = _end_of(_STRING if character == '"' else _SCALAR, text, position)
            if _close_value(stack, members, position):
                return {}
        # After a value or an opening bracket with nothing in it: commas and closing brackets.
        while True:
            position = _skip_blank(text, position)
            character = text[position]
            position += 1
            if character == ",":
                stack[-1].index += 1
                position = _next_value(text, _skip_blank(text, position), stack[-1])
                break
            opened = stack.pop()
            if opened.is_object:
                ends[opened.start] = position
            if _close_value(stack, members, position):
                return {(start, ends[start]): found for start, found in members.items()}


def _next_value(text: str, position: int, inside: _Open) -> int:
    """Read the key, if there is one, and return the offset of the value."""
    if inside.is_object:
        end = _end_of(_STRING, text, position)
        inside.key, inside.key_start = json.loads(text[position:end]), position
        position = _skip_blank(text, end)
        position = _skip_blank(text, position + 1)
    inside.value_start = position
    return position


def _value_path(stack: list[_Open]) -> KeyPath:
    if not stack:
        return ()
    inside = stack[-1]
    return (*inside.path, inside.key if inside.is_object else inside.index)


def _close_value(stack: list[_Open], members: dict[int, list[Member]], end: int) -> bool:
    """Note a value that ends here; true when it was the whole document."""
    if not stack:
        return True
    inside = stack[-1]
    if inside.is_object:
        members[inside.start].append(Member(_value_path(stack), inside.key_start, inside.value_start, end))
    return False


def _skip_blank(text: str, position: int) -> int:
    return _end_of(_BLANK, text, position)


def _end_of(token: re.Pattern[str], text: str, position: int) -> int:
    match = token.match(text, position)
    if match is None:
        raise ValueError(f"no token at character {position} of a document that was parsed before")
    return match.end()


def _removals(start: int, end: int, members: list[Member], removed: list[bool]) -> list[tuple[int, int, str]]:
    """What to cut so that the members that stay look as if the writer had never known the others."""
    if not any(removed):
        return []
    if all(removed):
        return [(start + 1, end - 1, "")]
    first_kept = removed.index(False)
    cuts = [(members[i].key_start, members[i + 1].key_start, "") for i in range(first_kept)]
    for i in range(first_kept + 1, len(members)):
        if removed[i]:
            cuts.append((members[i - 1].value_end, members[i].value_end, ""))
    return cuts


def _cut(text: str, cuts: list[tuple[int, int, str]]) -> str:
    pieces = []
    position = 0
    for start, end, replacement in sorted(cuts, key=lambda cut: (cut[0], -cut[1])):
        if start < position:
            continue  # inside a member that is gone already
        pieces += [text[position:start], replacement]
        position = end
    return "".join([*pieces, text[position:]])


def _faithful(text: str) -> Any:
    """The document with the order of keys and the spelling of numbers kept, for comparing; None when it is none."""
    try:
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: ("object", pairs),
            parse_int=lambda digits: ("number", digits),
            parse_float=lambda digits: ("number", digits),
            parse_constant=lambda word: ("number", word),
        )
    except ValueError:
        return None


def _changed(value: Any, changes: Mapping[KeyPath, Any], path: KeyPath) -> Any:
    """The faithful form after the changes."""
    if isinstance(value, list):
        return [_changed(item, changes, (*path, index)) for index, item in enumerate(value)]
    if not (isinstance(value, tuple) and value[0] == "object"):
        return value
    pairs = []
    for key, item in value[1]:
        wanted = changes.get((*path, key), _KEEP)
        if wanted is _KEEP:
            pairs.append((key, _changed(item, changes, (*path, key))))
        elif wanted is not REMOVE:
            pairs.append((key, wanted))
    return ("object", pairs)
