# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attention backends of vLLM 0.32.0: which of them vLLM prefers where, what they take and the block sizes of their kernels.

Sources: platforms/cuda.py (_get_backend_priorities), platforms/cpu.py, v1/attention/backends/*.py and backends/mla/*.py
(supports_*, get_supported_kernel_block_sizes). Only what decides about the KV cache is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

_ANY_MAJOR = (7, 8, 9, 10, 11, 12)
_BF16 = ("auto", "float16", "bfloat16")
_FP8 = ("fp8", "fp8_e4m3")


@dataclass(frozen=True)
class Backend:
    """One attention backend.

    Attributes:
        name: as vLLM prints it.
        mla, sparse: what it computes.
        majors: of the compute capabilities it runs on.
        kv_cache_dtypes: that it stores.
        kernel_blocks: tokens of a block of its kernels; one number in a tuple is the only size, several are all of them.
        any_multiple: any multiple of the kernel's block is taken as it is.
        package: that must be installed besides vLLM.
        head_sizes: that it takes, None for any.
        sinks_from: first major with attention sinks, None for no sinks.
    """

    name: str
    mla: bool = False
    sparse: bool = False
    majors: tuple[int, ...] = _ANY_MAJOR
    kv_cache_dtypes: tuple[str, ...] = _BF16
    kernel_blocks: tuple[int, ...] = (16,)
    any_multiple: bool = True
    package: Optional[str] = None
    head_sizes: Optional[tuple[int, ...]] = None
    sinks_from: Optional[int] = None


BACKENDS = {
    backend.name: backend
    for backend in (
        # fp8 needs FlashAttention 3, which exists for compute capability 9 only.
        Backend("FLASH_ATTN", majors=(8, 9, 10, 11, 12), kv_cache_dtypes=(*_BF16, *_FP8), sinks_from=9),
        Backend(
            "FLASHINFER",
            majors=(8, 9, 10, 12),
            kv_cache_dtypes=(*_BF16, *_FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
            kernel_blocks=(16, 32, 64),
            any_multiple=False,
            package="flashinfer",
            head_sizes=(64, 128, 256, 512),
            sinks_from=9,
        ),
        Backend(
            "TRITON_ATTN",
            kv_cache_dtypes=(
                *_BF16,
                *_FP8,
                "fp8_e5m2",
                "int4_per_token_head",
                "int8_per_token_head",
                "fp8_per_token_head",
            ),
            sinks_from=7,
        ),
        Backend(
            "TURBOQUANT",
            kv_cache_dtypes=("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
            kernel_blocks=(16, 32, 64, 128),
            any_multiple=False,
        ),
        Backend(
            "FLASHINFER_MLA",
            mla=True,
            majors=(10,),
            kv_cache_dtypes=(*_BF16, *_FP8),
            kernel_blocks=(32, 64),
            any_multiple=False,
            package="flashinfer",
        ),
        Backend(
            "CUTLASS_MLA",
            mla=True,
            majors=(10,),
            kv_cache_dtypes=(*_BF16, *_FP8),
            kernel_blocks=(128,),
            any_multiple=False,
        ),
        Backend("FLASH_ATTN_MLA", mla=True, majors=(9,)),
        Backend(
            "FLASHMLA",
            mla=True,
            majors=(9,),
            kv_cache_dtypes=(*_BF16, *_FP8),
            kernel_blocks=(64,),
            any_multiple=False,
            head_sizes=(576,),
        ),
        Backend("TRITON_MLA", mla=True, kv_cache_dtypes=(*_BF16, *_FP8)),
        Backend(
            "FLASHINFER_MLA_SPARSE",
            mla=True,
            sparse=True,
            majors=(10,),
            kv_cache_dtypes=(*_BF16, *_FP8),
            kernel_blocks=(32,),
            package="flashinfer",
            head_sizes=(512, 576),
        ),
        Backend(
            "FLASHMLA_SPARSE",
            mla=True,
            sparse=True,
            majors=(9, 10),
            kv_cache_dtypes=("auto", "bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla"),
            kernel_blocks=(64,),
            head_sizes=(512, 576),
        ),
        Backend("FLASH_ATTN_MLA_SPARSE", mla=True, sparse=True, majors=(9,), kernel_blocks=(64,)),
        Backend(
            "FLASHINFER_MLA_SPARSE_SM120",
            mla=True,
            sparse=True,
            majors=(12,),
            kv_cache_dtypes=("auto", *_FP8, "fp8_ds_mla"),
            kernel_blocks=(64,),
        ),
        Backend("DEEPSEEK_V32_INDEXER", mla=True, sparse=True, kernel_blocks=(64,), any_multiple=False),
        Backend("CPU_ATTN", kv_cache_dtypes=(*_BF16, *_FP8, "fp8_e5m2"), kernel_blocks=(32,)),
        # Taken where the processor has AMX (platforms/cpu.py, AMXMLABackend).
        Backend("AMX_MLA", mla=True, kv_cache_dtypes=(*_BF16, *_FP8), kernel_blocks=(32,)),
        Backend("CPU_MLA", mla=True, kv_cache_dtypes=(*_BF16, *_FP8), kernel_blocks=(16,), any_multiple=False),
    )
}

#: (MLA, major of the compute capability) -> names, most preferred first; None for any other major.
PRIORITIES: dict[tuple[bool, Optional[int]], tuple[str, ...]] = {
    (False, 10): ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "TURBOQUANT"),
    (False, None): ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "TURBOQUANT"),
    (True, 10): (
        "FLASHINFER_MLA",
        "CUTLASS_MLA",
        "TRITON_MLA",
        "FLASHINFER_MLA_SPARSE",
        "FLASHMLA_SPARSE",
    ),
    (True, 12): ("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"),
    (True, None): ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", "FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"),
}

#: Block size that vLLM starts from, and the one of the CPU backend.
DEFAULT_BLOCK_SIZE = 16
CPU_BLOCK_SIZE = 128
