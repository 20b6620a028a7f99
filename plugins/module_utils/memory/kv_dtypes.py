# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which KV-cache data type vLLM takes, and how many bytes it needs for one token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Optional

from ..errors import VllmHostError
from .kv_dtypes_data import (
    DS_MLA_BYTES,
    KV_CACHE_DTYPES,
    MODELOPT_KV_CACHE_DTYPES,
    TURBOQUANT_BITS,
)
from .releases import parse_version
from .releases_data import LAST_KNOWN


def check_kv_cache_dtype(name: Any, vllm_version: str = LAST_KNOWN) -> str:
    """A name of vLLM's --kv-cache-dtype that the release (default: the newest known) has, or an error that lists them.

    Raises:
        VllmHostError: ``bad_engine_args``.
    """
    wanted = parse_version(vllm_version)
    known = [key for key, row in KV_CACHE_DTYPES.items() if parse_version(row.get("since", "0.0")) <= wanted]
    if not isinstance(name, str) or name not in known:
        later = KV_CACHE_DTYPES[name]["since"] if isinstance(name, str) and name in KV_CACHE_DTYPES else None
        reason = f"exists from vLLM {later} on" if later else "is unknown"
        raise VllmHostError(
            "bad_engine_args",
            f"vllm_engine_args.kv_cache_dtype {str(name)[:100]!r} {reason}; use one of {', '.join(known)}.",
            key="kv_cache_dtype",
            found=repr(name)[:100],
            known=known,
        )
    return name


def is_quantized(name: str) -> bool:
    """Whether the cache is stored in fewer bits than the model's own type."""
    return name not in ("auto", "float16", "bfloat16")


def dtype_from_checkpoint(quantization: Optional[Mapping[str, Any]], mla: bool = False) -> str:
    """What ``auto`` becomes through the metadata of a checkpoint.

    ModelOpt declares a cache type by ``kv_cache_scheme`` (looked at first) or ``kv_cache_quant_algo``, llm-compressor by a
    ``kv_cache_scheme`` of compressed-tensors, which vLLM always reads as FP8.

    Args:
        quantization: ``quantization_config`` of config.json as vLLM sees it.
        mla: the model keeps MLA latents, whose layers do not look at compressed-tensors (mla_attention.py).

    Returns:
        A name of vLLM, ``auto`` when nothing (known) is declared.
    """
    if not quantization:
        return "auto"
    method = str(quantization.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    if method == "compressed-tensors":
        return "fp8" if quantization.get("kv_cache_scheme") and not mla else "auto"
    if not method.startswith("modelopt"):
        return "auto"
    inner = quantization.get("quantization")
    inner = inner if isinstance(inner, Mapping) else quantization
    declared = (
        inner.get("kv_cache_scheme")
        or quantization.get("kv_cache_scheme")
        or inner.get("kv_cache_quant_algo")
        or quantization.get("kv_cache_quant_algo")
    )
    if isinstance(declared, Mapping):
        if declared.get("type") != "float":
            return "auto"
        if declared.get("num_bits") == 8 and declared.get("dynamic") is False:
            return "fp8_e4m3"
        return "nvfp4" if declared.get("num_bits") == 4 else "auto"
    if isinstance(declared, str):
        return MODELOPT_KV_CACHE_DTYPES.get(declared.lower(), "auto")
    return "auto"


def head_bytes_per_token(name: str, model_dtype_bytes: int, head_size: int, head_size_v: int) -> int:
    """Bytes of one token of one KV head, key and value together.

    Args:
        name: the type of the layer's cache (``auto``: the model's own).
        model_dtype_bytes: 2 for bfloat16.
        head_size: width of a key; head_size_v: of a value.
    """
    packing = KV_CACHE_DTYPES[name]["packing"]
    element = KV_CACHE_DTYPES[name]["element_bytes"] or model_dtype_bytes
    if packing == "token_head_scales":
        # One float32 scale for the key and one for the value.
        return int(element * head_size) + int(element * head_size_v) + 2 * 4
    if packing == "nvfp4":
        # Four-bit values and one FP8 scale for sixteen of them, key and value apart.
        return 2 * (head_size // 2 + head_size // 16)
    if packing == "turboquant":
        key_bits, value_bits = TURBOQUANT_BITS[name]
        key = head_size if key_bits == 8 else math.ceil(head_size * key_bits / 8) + 2
        slot = key + math.ceil(head_size * value_bits / 8) + 4
        return slot + slot % 2
    return int(element) * (head_size + head_size_v)


def latent_bytes_per_token(name: str, model_dtype_bytes: int, head_size: int) -> int:
    """Bytes of one token of one MLA layer (latent and rope part, kept once, whole on each rank)."""
    if name in DS_MLA_BYTES:
        return DS_MLA_BYTES[name]
    element = KV_CACHE_DTYPES[name]["element_bytes"] or model_dtype_bytes
    return math.ceil(element * head_size)
