# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers to cache specs: types of single layers, backends, block size, padding of recurrent pages.

Mirrors vllm 0.32.0 platforms/interface.py (update_block_size_for_backend and the alignments it calls) and get_kv_cache_spec
of the attention layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Optional

from .attention_backends import BackendQuestion, preferred_block_size, select_backend
from .backends_data import BACKENDS, CPU_BLOCK_SIZE, DEFAULT_BLOCK_SIZE, Backend
from .engine import Gpu, Scheduling
from .kv_dtypes import head_bytes_per_token, is_quantized, latent_bytes_per_token
from .kv_dtypes_data import KV_CACHE_DTYPES, TURBOQUANT_BOUNDARY_LAYERS
from .kv_specs import CHUNKED, CROSS, FULL, MAMBA, MLA, SLIDING, KvSpec, ceil_div
from .layers import Layer
from .model_config import ModelConfig
from .recurrent_state import RecurrentState

_ATTENTION_SPECS = {"full": FULL, "sliding": SLIDING, "chunked": CHUNKED, "cross": CROSS}
#: Hybrid MLA models keep their blocks a multiple of this (TRT-LLM decode kernels).
_HYBRID_MLA_BLOCK = 128


@dataclass(frozen=True)
class CacheRequest:
    """What the user and the checkpoint ask of the cache.

    Attributes:
        kv_cache_dtype: resolved from --kv-cache-dtype and the checkpoint.
        skip_layers: --kv-cache-dtype-skip-layers.
        block_size: --block-size, None if not given.
        mamba_block_size: --mamba-block-size, None if not given.
        packages: optional packages that are installed beside vLLM.
        use_sinks: the model has attention sinks.
    """

    kv_cache_dtype: str
    skip_layers: tuple[str, ...] = ()
    block_size: Optional[int] = None
    mamba_block_size: Optional[int] = None
    packages: tuple[str, ...] = ()
    use_sinks: bool = False


@dataclass(frozen=True)
class LayerCaches:
    """The specs of all layers and what was resolved on the way (see Engine for the attributes)."""

    specs: tuple[KvSpec, ...]
    kv_cache_dtype: str
    block_size: int
    mamba_block_size: Optional[int]
    mamba_page_size_padded: Optional[int]
    mamba_cache_mode: str
    backends: tuple[str, ...]


def boundary_layers(kv_cache_dtype: str, num_layers: int, is_hybrid: bool) -> tuple[str, ...]:
    """Layers that a packed type leaves in the model's own type (TurboQuant keeps both ends, but not of hybrids)."""
    if KV_CACHE_DTYPES[kv_cache_dtype]["packing"] != "turboquant" or is_hybrid:
        return ()
    count = min(TURBOQUANT_BOUNDARY_LAYERS, num_layers // 2)
    return tuple(str(index) for index in (*range(count), *range(num_layers - count, num_layers)))


def _layer_dtype(layer: Layer, request: CacheRequest) -> str:
    skipped = str(layer.index) in request.skip_layers or (
        layer.kind == "sliding" and "sliding_window" in request.skip_layers
    )
    return "auto" if skipped else request.kv_cache_dtype


def _heads_on_gpu(layer: Layer, tensor_parallel_size: int) -> int:
    return max(1, layer.num_kv_heads // tensor_parallel_size)


def _bytes_per_token(layer: Layer, dtype: str, model: ModelConfig, tensor_parallel_size: int) -> int:
    if layer.kind == "indexer":
        return layer.head_size
    if layer.kind == "mla":
        return latent_bytes_per_token(dtype, model.dtype_bytes, layer.head_size)
    head = head_bytes_per_token(dtype, model.dtype_bytes, layer.head_size, layer.head_size_v)
    return _heads_on_gpu(layer, tensor_parallel_size) * head


def _choose_backends(
    layers: Sequence[Layer], model: ModelConfig, request: CacheRequest, gpu: Gpu
) -> dict[Layer, Backend]:
    """The backend of each attention layer; equal layers ask once."""
    chosen: dict[Layer, Backend] = {}
    answers: dict[BackendQuestion, Backend] = {}
    sparse = any(layer.kind == "indexer" for layer in layers)
    for layer in layers:
        if layer.kind == "recurrent":
            continue
        if layer.kind == "indexer":
            chosen[layer] = BACKENDS["DEEPSEEK_V32_INDEXER"]
            continue
        question = BackendQuestion(
            mla=layer.kind == "mla",
            sparse=sparse and layer.kind == "mla",
            kv_cache_dtype=_layer_dtype(layer, request),
            head_size=layer.head_size,
            block_size=request.block_size,
            sinks=request.use_sinks,
        )
        if question not in answers:
            answers[question] = select_backend(question, gpu.compute_capability, request.packages, gpu.device)
        chosen[layer] = answers[question]
    return chosen


def _sparse_dtype(dtype: str, backend: str) -> str:
    """The type that a sparse MLA backend really stores."""
    if backend == "FLASHMLA_SPARSE" and is_quantized(dtype) and dtype != "nvfp4_ds_mla":
        return "fp8_ds_mla"
    if backend == "FLASHINFER_MLA_SPARSE_SM120" and dtype in ("auto", "fp8", "fp8_e4m3"):
        return "fp8_ds_mla"
    return dtype


def _start_block_size(backends: Sequence[Backend], model: ModelConfig, request: CacheRequest, gpu: Gpu) -> int:
    if gpu.device == "cpu":
        if model.is_mla:
            return DEFAULT_BLOCK_SIZE
        return request.block_size or CPU_BLOCK_SIZE
    if request.block_size is not None:
        return request.block_size
    return preferred_block_size(backends, DEFAULT_BLOCK_SIZE) if backends else DEFAULT_BLOCK_SIZE


def _hybrid_block_size(
    block_size: int, backends: Sequence[Backend], model: ModelConfig, token_bytes: int, state_bytes: int
) -> int:
    """Tokens of an attention block whose page holds a recurrent state."""
    alignment = max(min(backends[0].kernel_blocks), block_size)
    if model.is_mla:
        alignment = max(alignment, _HYBRID_MLA_BLOCK)
    needed = alignment * ceil_div(state_bytes, alignment * token_bytes)
    kernels = lcm(*(min(backend.kernel_blocks) for backend in backends))
    return max(block_size, kernels * ceil_div(needed, kernels))


def _kernel_block_within(backend: Backend, token_bytes: int, budget: int) -> int:
    """The largest block of a backend's kernels whose page fits a budget; the smallest if none does."""
    tokens = budget // token_bytes
    if backend.any_multiple:
        base = backend.kernel_blocks[0]
        return max(base, tokens // base * base)
    fitting = [size for size in backend.kernel_blocks if size <= tokens]
    return max(fitting) if fitting else min(backend.kernel_blocks)


def build_layer_caches(
    model: ModelConfig,
    layers: Sequence[Layer],
    states: dict[str, RecurrentState],
    request: CacheRequest,
    scheduling: Scheduling,
    gpu: Gpu,
) -> LayerCaches:
    """Specs of all layers, in the order of ``layers``.

    Args:
        states: kind of recurrent layer -> its state on one GPU.

    Raises:
        VllmHostError: ``unsupported`` when no backend takes a layer.
    """
    tensor = scheduling.tensor_parallel_size
    chosen = _choose_backends(layers, model, request, gpu)
    backends = list(dict.fromkeys(chosen.values()))
    dtype = request.kv_cache_dtype
    for backend in backends:
        dtype = _sparse_dtype(dtype, backend.name)
    request = replace(request, kv_cache_dtype=dtype)
    block_size = _start_block_size(backends, model, request, gpu)

    attention = [layer for layer in layers if layer.kind not in ("recurrent", "indexer")]
    page_padded: Optional[int] = None
    mamba_block: Optional[int] = None
    mode = "none"
    if states:
        align = scheduling.enable_prefix_caching
        mode = "align" if align else "none"
        mamba_block = request.mamba_block_size or (block_size if align else scheduling.max_model_len)
        if attention and backends:
            token_bytes = _bytes_per_token(attention[0], dtype, model, tensor)
            state_bytes = max(state.bytes for state in states.values())
            block_size = _hybrid_block_size(block_size, backends, model, token_bytes, state_bytes)
            if align:
                mamba_block = block_size
            if block_size * token_bytes != state_bytes:
                page_padded = block_size * token_bytes

    sliding_page: Optional[int] = None
    if request.skip_layers and attention:
        block_size, sliding_page = _align_mixed_types(
            block_size, attention[0], backends, model, request, tensor, page_padded
        )
        if sliding_page is not None and page_padded is not None:
            page_padded = sliding_page

    specs: list[KvSpec] = []
    cached: dict[Layer, KvSpec] = {}
    for layer in layers:
        key = replace(layer, index=-1)
        layer_dtype = dtype if layer.kind == "recurrent" else _layer_dtype(layer, request)
        if layer_dtype == dtype and key in cached:
            specs.append(cached[key])
            continue
        if layer.kind == "recurrent":
            assert layer.recurrent is not None and mamba_block is not None
            state = states[layer.recurrent]
            speculative = scheduling.num_speculative_tokens
            spec = KvSpec(
                MAMBA,
                mamba_block,
                state_bytes=state.bytes,
                page_size_padded=page_padded,
                fixed_blocks=1 + speculative,
                align_blocks=2 + speculative + state.checkpoint_blocks,
                role=layer.recurrent,
            )
        else:
            token_bytes = _bytes_per_token(layer, layer_dtype, model, tensor)
            spec = KvSpec(
                MLA if layer.kind in ("mla", "indexer") else _ATTENTION_SPECS[layer.kind],
                block_size,
                bytes_per_token=token_bytes,
                window=layer.window if layer.kind == "sliding" else None,
                chunk=layer.window if layer.kind == "chunked" else None,
                role=layer.kind if layer.kind == "indexer" else layer_dtype,
                num_kv_heads=_heads_on_gpu(layer, tensor),
            )
            if layer.kind == "sliding":
                budget = sliding_page or token_bytes * block_size
                window_block = _kernel_block_within(chosen[layer], token_bytes, budget)
                spec = replace(spec, block_size=window_block, page_size_padded=sliding_page)
        if layer_dtype == dtype:
            cached[key] = spec
        specs.append(spec)
    return LayerCaches(
        specs=tuple(specs),
        kv_cache_dtype=dtype,
        block_size=block_size,
        mamba_block_size=mamba_block,
        mamba_page_size_padded=page_padded,
        mamba_cache_mode=mode,
        backends=tuple(sorted(backend.name for backend in backends)),
    )


def _align_mixed_types(
    block_size: int,
    layer: Layer,
    backends: Sequence[Backend],
    model: ModelConfig,
    request: CacheRequest,
    tensor_parallel_size: int,
    page_padded: Optional[int],
) -> tuple[int, Optional[int]]:
    """Block size and shared page when some layers keep the model's own type.

    vLLM measures a token of the quantized layers as the first layer's backend packs it: only FlashInfer (NVFP4) and Triton
    (per-token scales) pack, TurboQuant's first layer is one that is left alone.
    """
    primary = request.kv_cache_dtype
    packing = KV_CACHE_DTYPES[primary]["packing"]
    if packing == "turboquant":
        heads = _heads_on_gpu(layer, tensor_parallel_size)
        primary_bytes = heads * (layer.head_size + layer.head_size_v)
    else:
        primary_bytes = _bytes_per_token(layer, primary, model, tensor_parallel_size)
    skipped_bytes = _bytes_per_token(layer, "auto", model, tensor_parallel_size)
    if skipped_bytes == primary_bytes:
        return block_size, None
    smallest = min(backends[0].kernel_blocks)
    alignment = max(smallest, block_size)
    required = max(skipped_bytes * smallest, page_padded or 0)
    block_size = max(block_size, alignment * ceil_div(required, alignment * primary_bytes))
    return block_size, block_size * primary_bytes
