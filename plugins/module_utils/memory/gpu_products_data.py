# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that a plan can be made for without having them. The first with a size is what the size means."""

from __future__ import annotations

from typing import NamedTuple


class Product(NamedTuple):
    """A GPU as it is sold, and its memory as NVML shows it."""

    name: str
    sold_as_gb: float
    total_bytes: int
    compute_capability: tuple[int, int]
    source: str


_MIB = 2**20
_SMI = "nvidia-smi's total, reported"

PRODUCTS = (
    Product("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, 97_887 * _MIB, (12, 0), _SMI),
    Product("NVIDIA H200", 141, 150_754_820_096, (9, 0), "NVML's total, read on one"),
    Product("NVIDIA H100 80GB HBM3", 80, 81_559 * _MIB, (9, 0), _SMI),
    Product("NVIDIA A100-SXM4-80GB", 80, 81_920 * _MIB, (8, 0), _SMI),
    Product("NVIDIA B200", 192, 183_359 * _MIB, (10, 0), _SMI),
    Product("NVIDIA B300", 288, 275_040 * _MIB, (10, 3), _SMI),
    Product("NVIDIA L40S", 48, 46_068 * _MIB, (8, 9), _SMI),
    Product("NVIDIA RTX 6000 Ada Generation", 48, 49_140 * _MIB, (8, 9), _SMI),
    Product("NVIDIA GeForce RTX 5090", 32, 32_607 * _MIB, (12, 0), _SMI),
    Product("NVIDIA GeForce RTX 4090", 24, 24_564 * _MIB, (8, 9), _SMI),
    Product("NVIDIA A100-PCIE-40GB", 40, 40_960 * _MIB, (8, 0), _SMI),
)
