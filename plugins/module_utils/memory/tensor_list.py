# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list of tensors under construction; linear layers are stored as the checkpoint's quantization says."""

from __future__ import annotations

from .quant_formats import QuantScheme
from .safetensors_headers import DTYPE_BITS, TensorGroup


class TensorList:
    """Collects the tensors of one checkpoint.

    Args:
        dtype: of everything that is not quantized (``BF16``).
        scheme: how linear layers are stored.
    """

    def __init__(self, dtype: str, scheme: QuantScheme) -> None:
        self.dtype = dtype
        self.scheme = scheme
        self._groups: list[TensorGroup] = []

    def plain(self, name: str, *shape: int, dtype: str = "", count: int = 1) -> None:
        """A tensor that no quantization touches."""
        stored = dtype or self.dtype
        elements = 1
        for extent in shape:
            elements *= extent
        self._groups.append(TensorGroup(name, stored, shape, count, (elements * DTYPE_BITS[stored] + 7) // 8))

    def linear(self, name: str, out: int, into: int, bias: bool = False, count: int = 1) -> None:
        """A linear layer ``name`` from ``into`` to ``out`` values, ``count`` times (experts: ``...experts.*.up_proj``)."""
        if self.scheme.stored is not None and self.scheme.applies_to(name):
            for suffix, dtype, shape in self.scheme.stored(out, into):
                self.plain(f"{name}.{suffix}", *shape, dtype=dtype, count=count)
        else:
            self.plain(f"{name}.weight", out, into, count=count)
        if bias:
            self.plain(f"{name}.bias", out, count=count)

    def groups(self) -> tuple[TensorGroup, ...]:
        """The finished list."""
        return tuple(self._groups)
