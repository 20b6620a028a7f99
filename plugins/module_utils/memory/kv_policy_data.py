# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known to work where: KV-cache dtypes by attention kind, GPU generation and vLLM release.

Literals only; the rules that read them are in kv_policy.py. Each row carries its source, marked C(ran) where somebody of
this project saw it happen, C(read) where it was read in the released source, C(reported) where others saw it.
"""

from __future__ import annotations

from typing import NamedTuple, Optional


class MlaFp8Row(NamedTuple):
    """The FP8 behaviour of TRITON_MLA in one vLLM release that was looked at, on compute capability 12.x."""

    vllm: str
    verdict: str
    """C(not_implemented), C(fits) or C(does_not_fit)."""
    shared_memory_bytes: Optional[int]
    """Shared memory of the decode kernel's first stage with an FP8 cache, as shipped; None where it does not exist."""
    source: str


SHARED_MEMORY_LIMIT_BYTES = {
    (7, 5): 65_536,
    (8, 0): 166_912,
    (8, 6): 101_376,
    (8, 7): 166_912,
    (8, 9): 101_376,
    (9, 0): 232_448,
    (10, 0): 232_448,
    (10, 3): 232_448,
    (12, 0): 101_376,
    (12, 1): 101_376,
}
"""Opt-in shared memory of a block by compute capability, what CUDA reports as sharedMemPerBlockOptin.

Source: CUDA C++ programming guide, technical specifications per compute capability (64, 99, 163 or 227 KiB); 12.x also
vllm #53748 on an RTX PRO 6000 and a GB10.
"""
SHARED_MEMORY_LIMIT_SM12X_BYTES = SHARED_MEMORY_LIMIT_BYTES[12, 0]

# Both compilers say the same of every kernel that both were given.
_TRITON_3_6 = "the kernel of vLLM's own wheel compiled for sm_120 with Triton 3.6.0 (ran)"
_TRITON_3_9 = "the kernel of this release (CPU build, same source) compiled for sm_120 with Triton 3.9.0 (ran)"
_BOTH = _TRITON_3_6 + " and 3.9.0"

# Oldest first: every release from 0.17.1 on. Another one is judged by the nearest older row, and the decision says so.
TRITON_MLA_FP8_ON_SM12X = (
    MlaFp8Row("0.17.1", "not_implemented", None, "TritonMLAImpl raises NotImplementedError in 0.17.1 (read)"),
    MlaFp8Row("0.18.0", "fits", 87_040, _BOTH),
    MlaFp8Row("0.18.1", "fits", 87_040, _TRITON_3_9),
    MlaFp8Row("0.19.0", "fits", 87_040, _TRITON_3_9),
    MlaFp8Row("0.19.1", "fits", 87_040, _BOTH),
    MlaFp8Row("0.20.0", "does_not_fit", 102_400, _BOTH),
    MlaFp8Row("0.20.1", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.20.2", "does_not_fit", 102_400, _BOTH),
    MlaFp8Row("0.21.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.22.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.22.1", "does_not_fit", 102_400, _BOTH),
    MlaFp8Row("0.23.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.24.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.25.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.25.1", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.26.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.27.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.27.1", "does_not_fit", 102_400, _BOTH + "; vllm #53748 on an RTX PRO 6000 (reported)"),
    MlaFp8Row("0.28.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.29.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.30.0", "does_not_fit", 102_400, _BOTH),
    MlaFp8Row("0.31.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.32.0", "does_not_fit", 102_400, _TRITON_3_9),
    MlaFp8Row("0.33.0", "does_not_fit", 102_400, _TRITON_3_6 + "; fixes vllm #54013 and #46728 open when read"),
)

MLA_DTYPES_ON_SM12X = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3")
MLA_DTYPES_ON_SM12X_SOURCE = "TritonMLABackend.supported_kv_cache_dtypes in 0.18.0 to 0.32.0 (read)"

MLA_FP8_LOWEST_CAPABILITY = (8, 9)
MLA_FP8_LOWEST_CAPABILITY_SOURCE = "TritonMLAImpl.__init__ in 0.32.0: native FP8 needs compute capability 8.9 (read)"

AMX_MLA_AUTO_ONLY_SOURCE = (
    "AMXMLAImpl of 0.32.0 asserts kv_cache_dtype auto; with bfloat16 or fp8 the first request ends the engine (ran)"
)

DSA_DTYPES_ON_SM12X = ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla")
DSA_DTYPES_ON_SM12X_SOURCE = "FLASHINFER_MLA_SPARSE_SM120 in 0.32.0 and 0.33.0 refuses every other dtype (read)"

# Decode context parallel with a quantized MLA cache: an assertion ("DCP not support fp8 kvcache now") on every GPU.
MLA_FP8_DCP_WORKS_FROM = "0.25.0"
MLA_FP8_DCP_SOURCE = (
    "mla_attention.py asserts in every release from 0.17.1 to 0.24.0, no longer in 0.25.0 and newer (read)"
)

# Older releases accept the option, then their CUDA cache kernels raise "Unsupported data type of kv cache: bfloat16".
EXPLICIT_16_BIT_FROM = "0.20.0"
EXPLICIT_16_BIT_SOURCE = (
    "cache kernels know only auto and fp8 in the 0.17.1 and 0.19.1 wheels (read); vllm #38922, #34752"
)

MISMATCHED_16_BIT_SOURCE = (
    "vllm #54338: the cache holds the bits of the model's dtype and reads them as another (reported)"
)
