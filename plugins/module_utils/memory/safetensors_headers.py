# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, dtypes and shapes of a checkpoint's tensors, from the headers of its safetensors files and nothing else.

A safetensors file begins with the length of its header (8 bytes, little endian), then the header, a JSON object
``{name: {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, "__metadata__": {..}}``, then the data.
Format: https://github.com/huggingface/safetensors#format

A header is input from strangers. It is checked before it is believed: length against the file and against the format's own
limit of 100 MB, offsets against the data, sizes against dtype and shape, names against each other.

A trillion-parameter model has hundreds of thousands of tensors, nearly all of them experts that differ by a number. They
are counted, not kept: a group is every tensor of one name with its expert number replaced by ``*``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Optional

from ..errors import VllmHostError

#: The format's own limit of a header, in bytes.
HEADER_LIMIT_BYTES = 100_000_000
#: Bytes before the header.
PREFIX_BYTES = 8

#: Bits of one element, by the name that a header uses.
DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

_EXPERTS = ".experts."


@dataclass(frozen=True)
class TensorGroup:
    """Tensors that differ by their expert number only.

    Attributes:
        name: with ``.experts.*.`` in place of ``.experts.17.``.
        dtype: as in the header (``BF16``).
        shape: of one tensor.
        count: how many tensors.
        tensor_bytes: bytes of one tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    tensor_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors of the group."""
        return self.count * self.tensor_bytes


def header_bytes(prefix: bytes, file_bytes: int, where: str) -> int:
    """Length of the header from the first 8 bytes of a file.

    Args:
        prefix: the first 8 bytes (fewer if the file is shorter).
        file_bytes: size of the whole file.
        where: the file's name for messages.

    Raises:
        VllmHostError: ``bad_safetensors`` for a length that the file or the format cannot have.
    """
    if len(prefix) < PREFIX_BYTES:
        raise _bad(where, f"has {file_bytes} bytes, too few for a safetensors file", file_bytes=file_bytes)
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > HEADER_LIMIT_BYTES:
        raise _bad(
            where, f"claims a header of {length} bytes; the format allows {HEADER_LIMIT_BYTES}", header_bytes=length
        )
    if length < 2 or PREFIX_BYTES + length > file_bytes:
        raise _bad(where, f"claims a header of {length} bytes but has {file_bytes} bytes in all", header_bytes=length)
    return length


class TensorTally:
    """Collects headers, one file after the other, into groups of tensors."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, tuple[int, ...], int], int] = {}
        self._names: set[str] = set()
        self.bytes_read = 0

    def add(self, header: bytes, data_bytes: int, where: str) -> None:
        """Take in one header.

        Args:
            header: the JSON text.
            data_bytes: size of the file after the header.
            where: the file's name for messages.

        Raises:
            VllmHostError: ``bad_safetensors`` for anything that a sound file cannot contain.
        """
        entries = _parse(header, where)
        self.bytes_read += PREFIX_BYTES + len(header)
        counts, names = self._counts, self._names
        if not names.isdisjoint(entries):
            repeated = min(names.intersection(entries))
            raise _bad(where, f"repeats tensor {repeated[:200]!r}, which another file has too", tensor=repeated[:200])
        names.update(entries)
        spans = []
        try:
            for name, entry in entries.items():
                begin, end = entry["data_offsets"]
                shape = tuple(entry["shape"])
                spans.append((begin, end))
                # `model.layers.3.mlp` + `.experts.` + `17.gate_proj.weight`: the number is what experts differ by.
                head, experts, tail = name.partition(_EXPERTS)
                number, dot, rest = tail.partition(".")
                key = (head, rest if number.isdecimal() else tail, entry["dtype"], shape, end - begin)
                if experts and number.isdecimal():
                    counts[key] = counts.get(key, 0) + 1
                else:
                    counts[(name, "", entry["dtype"], shape, end - begin)] = 1
        except (KeyError, TypeError, ValueError) as error:
            raise _bad(
                where,
                f"describes tensor {name[:200]!r} without a sound dtype, shape or data_offsets",
                tensor=name[:200],
            ) from error
        _check_spans(spans, data_bytes, where)

    def groups(self) -> tuple[TensorGroup, ...]:
        """All groups, each checked: bytes by offsets equal bytes by dtype and shape.

        Raises:
            VllmHostError: ``bad_safetensors``.
        """
        found = []
        for (head, rest, dtype, shape, size), count in self._counts.items():
            name = f"{head}{_EXPERTS}*.{rest}" if rest else head
            _check_size(name, dtype, shape, size)
            found.append(TensorGroup(name, dtype, shape, count, size))
        return tuple(found)

    @property
    def tensors(self) -> int:
        """Tensors seen so far."""
        return len(self._names)


def read_local_headers(paths: Iterable[Path]) -> TensorTally:
    """Headers of local files.

    Raises:
        VllmHostError: ``bad_safetensors``, or ``checkpoint_unreadable`` naming the file.
    """
    tally = TensorTally()
    for path in paths:
        try:
            with path.open("rb") as stream:
                file_bytes = path.stat().st_size
                length = header_bytes(stream.read(PREFIX_BYTES), file_bytes, str(path))
                header = stream.read(length)
        except OSError as error:
            raise VllmHostError(
                "checkpoint_unreadable",
                f"{path}: {error.strerror}. Check that the checkpoint is complete and readable.",
                file=str(path),
            ) from error
        tally.add(header, file_bytes - PREFIX_BYTES - length, str(path))
    return tally


def _parse(header: bytes, where: str) -> dict[str, Any]:
    """The tensors of a header."""
    try:
        entries = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise _bad(where, "has a header that is not JSON") from error
    if not isinstance(entries, dict):
        raise _bad(where, "has a header that is not a JSON object")
    # A dict keeps the last of two equal keys in silence; every tensor has one "data_offsets", so a count finds them.
    entries.pop("__metadata__", None)
    declared = header.count(b'"data_offsets"')
    if declared != len(entries):
        raise _bad(where, f"names {declared} tensors but only {len(entries)} different ones")
    return entries


def _check_spans(spans: list[tuple[int, int]], data_bytes: int, where: str) -> None:
    """Offsets lie inside the data and do not overlap."""
    spans.sort(key=itemgetter(0, 1))
    previous_end = 0
    for begin, end in spans:
        if not previous_end <= begin <= end:
            raise _bad(where, f"has overlapping or reversed data_offsets: [{begin}, {end}] after byte {previous_end}")
        previous_end = end
    if previous_end > data_bytes:
        raise _bad(
            where,
            f"has data up to byte {previous_end} but holds {data_bytes}: it is cut off",
            missing_bytes=previous_end - data_bytes,
        )


def _check_size(name: str, dtype: str, shape: tuple[int, ...], size: int) -> None:
    """Offsets agree with dtype and shape; a dtype that this table does not know yet is believed."""
    tensor = f"tensor {name[:200]!r}"
    numbers_sound = isinstance(size, int) and all(isinstance(extent, int) and extent >= 0 for extent in shape)
    if not isinstance(dtype, str) or not numbers_sound:
        raise _bad(tensor, f"has dtype {dtype!r}, shape {list(shape)} and {size!r} bytes")
    bits = DTYPE_BITS.get(dtype)
    elements = 1
    for extent in shape:
        elements *= extent
    if bits is not None and (elements * bits + 7) // 8 != size:
        raise _bad(tensor, f"takes {size} bytes, but {dtype} {list(shape)} is {elements * bits // 8}")


def _bad(where: str, what: str, **details: Optional[Any]) -> VllmHostError:
    return VllmHostError(
        "bad_safetensors",
        f"{where} {what}. The file is damaged or not a safetensors file: fetch it again or choose another checkpoint.",
        file=where,
        **details,
    )
