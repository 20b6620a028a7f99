# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a compiled library holds code for, read from its fat binaries without running anything.

A CUDA fat binary is a header (magic 0xBA55ED50, version, header size, size of all entries) and entries: u16 kind (1 PTX, 2 machine code),
u16 version, u32 header size, u64 size, ..., u32 architecture (90 for compute capability 9.0) at offset 28.
Layout: n-eiling/cuda-fatbin-decompression [read]; NVIDIA documents only the tools (cuobjdump). Checked against nvcc 13.0 with known targets and
vLLM 0.23.0's wheel [ran]. Variants such as sm_120a are not told apart from sm_120.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x50\xed\x55\xba"
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI")
_PTX, _MACHINE_CODE = 1, 2


@dataclass(frozen=True)
class Fit:
    """Whether there is code for a GPU."""

    compute_capability: str
    supported: bool
    how: str  # a sentence


def architectures_of(libraries: Iterable[Path]) -> list[str]:
    """Compute capabilities in the libraries, ascending: ``9.0`` for machine code, ``9.0+PTX`` for code that is translated at load.

    Empty for libraries without GPU code (a CPU build).
    """
    found: set[tuple[int, int]] = set()
    for library in libraries:
        if library.stat().st_size:
            with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found.update(_entries(data))
    machine_code = {arch for kind, arch in found if kind == _MACHINE_CODE}
    ptx = {arch for kind, arch in found if kind == _PTX}
    return [_name(arch) + ("+PTX" if arch in ptx else "") for arch in sorted(machine_code | ptx)]


def fits(architectures: Sequence[str], compute_capabilities: Iterable[str]) -> Iterator[Fit]:
    """Whether each GPU can run the code.

    Machine code runs on the same major version with an equal or higher minor one; PTX on every newer GPU (CUDA C++ Programming Guide,
    "Binary compatibility", "PTX compatibility").
    """
    if not architectures:
        return
    parsed = [(_numbers(name.partition("+")[0]), name.endswith("+PTX")) for name in architectures]
    for capability in compute_capabilities:
        wanted = _numbers(capability)
        exact = [arch for arch, _has_ptx in parsed if arch[0] == wanted[0] and arch[1] <= wanted[1]]
        ptx = [arch for arch, has_ptx in parsed if has_ptx and arch <= wanted]
        if exact:
            yield Fit(capability, True, f"machine code for {_dotted(max(exact))}")
        elif ptx:
            yield Fit(capability, True, f"PTX for {_dotted(max(ptx))}, translated at the first start")
        else:
            yield Fit(capability, False, f"no code for it; built for {', '.join(architectures)}")


def _entries(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    position = data.find(_MAGIC)
    while position >= 0:
        after = position + len(_MAGIC)
        if position + _HEADER.size <= len(data):
            _magic, version, header_size, size = _HEADER.unpack_from(data, position)
            end = position + header_size + size
            if version == 1 and header_size >= _HEADER.size and end <= len(data):
                yield from _entries_of(data, position + header_size, end)
                after = end
        position = data.find(_MAGIC, after)


def _entries_of(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int]]:
    while position + _ENTRY.size <= end:
        kind, _version, header_size, size, arch = _ENTRY.unpack_from(data, position)
        if kind not in (_PTX, _MACHINE_CODE) or header_size < _ENTRY.size or not 20 <= arch <= 999:
            return
        yield kind, arch
        position += header_size + size


def _name(arch: int) -> str:
    return f"{arch // 10}.{arch % 10}"


def _numbers(dotted: str) -> tuple[int, int]:
    major, dot, minor = dotted.partition(".")
    return int(major), int(minor or 0)


def _dotted(arch: tuple[int, int]) -> str:
    return f"{arch[0]}.{arch[1]}"
