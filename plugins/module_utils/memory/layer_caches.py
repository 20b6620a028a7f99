# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers to cache specs: types of single layers, backends, block size, padding of recurrent pages.

Mirrors vllm 0.32.0 platforms/interface.py (update_block_size_for_backend and the alignments it calls) and get_kv_cache_spec
of the attention layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Optional, cast

from .attention_backends import BackendQuestion, preferred_block_size, select_backend
from .backends_data import BACKENDS, CPU_BLOCK_SIZE, DEFAULT_BLOCK_SIZE, Backend
from .engine import Gpu, Scheduling
from .kv_dtypes import head_bytes_per_token, is_quantized, latent_bytes_per_token
from .kv_dtypes_data import KV_CACHE_DTYPES, TURBOQUANT_BOUNDARY_LAYERS
from .kv_specs import CHUNKED, CROSS, FULL, MAMBA, MLA, SLIDING, KvSpec, ceil_div
from .layers import Layer, mtp_layers, uses_mtp
from .model_config import ModelConfig
from .recurrent_state import RecurrentState, chunk_size
from .releases import Release

_ATTENTION_SPECS = {"full": FULL, "sliding": SLIDING, "chunked": CHUNKED, "cross": CROSS}


@dataclass(frozen=True)
class CacheRequest:
    """What the user and the checkpoint ask of the cache.

    Attributes:
        kv_cache_dtype: resolved from --kv-cache-dtype and the checkpoint.
        skip_layers: --kv-cache-dtype-skip-layers.
        block_size: --block-size, None if not given.
        mamba_block_size: --mamba-block-size, None if not given.
        packages: optional packages that are installed beside vLLM.
        use_sinks: the model has attention sinks; image_prefix: tokens of its images attend to each other both ways.
    """

    kv_cache_dtype: str
    skip_layers: tuple[str, ...] = ()
    block_size: Optional[int] = None
    mamba_block_size: Optional[int] = None
    packages: tuple[str, ...] = ()
    use_sinks: bool = False
    image_prefix: bool = False


@dataclass(frozen=True)
class LayerCaches:
    """The specs of all layers and what was resolved on the way (see Engine for the attributes)."""

    specs: tuple[KvSpec, ...]
    kv_cache_dtype: str
    block_size: int
    mamba_block_size: Optional[int]
    mamba_page_size_padded: Optional[int]
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


#: What tells the caches of two layers apart: their content and the type that they are stored in.
_Key = tuple[tuple[object, ...], str]


def _choose_backends(
    layers: Mapping[_Key, Layer], request: CacheRequest, float32: bool, gpu: Gpu
) -> dict[_Key, Backend]:
    """The backend of each kind of attention layer."""
    chosen: dict[_Key, Backend] = {}
    sparse = any(layer.kind == "indexer" for layer in layers.values())
    for key, layer in layers.items():
        if layer.kind == "indexer":
            chosen[key] = BACKENDS["DEEPSEEK_V32_INDEXER"]
        elif layer.kind != "recurrent":
            question = BackendQuestion(
                mla=layer.kind == "mla",
                sparse=sparse and layer.kind == "mla",
                kv_cache_dtype=key[1],
                head_size=layer.head_size,
                block_size=request.block_size,
                sinks=request.use_sinks,
                float32=float32,
                image_prefix=request.image_prefix,
                slides=layer.kind == "sliding",
            )
            chosen[key] = select_backend(question, gpu.compute_capability, request.packages, gpu.device)
    return chosen


def _sparse_dtype(dtype: str, backend: str) -> str:
    """The type that a sparse MLA backend really stores."""
    if backend == "FLASHMLA_SPARSE" and is_quantized(dtype) and dtype != "nvfp4_ds_mla":
        return "fp8_ds_mla"
    if backend == "FLASHINFER_MLA_SPARSE_SM120" and dtype in ("auto", "fp8", "fp8_e4m3"):
        return "fp8_ds_mla"
    return dtype


def _start_block_size(backends: Sequence[Backend], model: ModelConfig, request: CacheRequest, gpu: Gpu) -> int:
    """The block size before any alignment (the CPU's MLA kernel without AMX takes 16 only, whatever was asked for)."""
    if gpu.device == "cpu":
        if any(backend.name == "CPU_MLA" for backend in backends):
            return DEFAULT_BLOCK_SIZE
        return request.block_size or CPU_BLOCK_SIZE
    if request.block_size is not None:
        return request.block_size
    return preferred_block_size(backends, DEFAULT_BLOCK_SIZE) if backends else DEFAULT_BLOCK_SIZE


def _hybrid_block_size(
    block_size: int,
    backends: Sequence[Backend],
    model: ModelConfig,
    token_bytes: int,
    state_bytes: int,
    chunk: Optional[int],
    hybrid_mla_block: int,
) -> int:
    """Tokens of an attention block whose page holds a recurrent state.

    Args:
        chunk: blocks are multiples of it (mode ``all`` only); hybrid_mla_block: the same for MLA models.
    """
    alignment = max(min(backends[0].kernel_blocks), block_size)
    if model.is_mla:
        alignment = max(alignment, hybrid_mla_block)
    if chunk is not None:
        alignment = lcm(chunk, alignment)
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


def _extra_retained(model: ModelConfig, scheduling: Scheduling) -> int:
    """Tokens that a window keeps besides for a chain of several MTP modules (config/vllm.py)."""
    chain = min(mtp_layers(model), scheduling.num_speculative_tokens)
    return scheduling.num_speculative_tokens - 1 if uses_mtp(scheduling.speculative_method) and chain > 1 else 0


def _state_spec(state: RecurrentState, block_size: int, padded: Optional[int], scheduling: Scheduling) -> KvSpec:
    speculative = scheduling.num_speculative_tokens
    return KvSpec(
        MAMBA,
        block_size,
        state_bytes=state.bytes,
        page_size_padded=padded,
        fixed_blocks=1 + speculative,
        align_blocks=2 + speculative + state.checkpoint_blocks,
        role=state.kind,
    )


def _attention_spec(layer: Layer, dtype: str, block_size: int, model: ModelConfig, tensor_parallel_size: int) -> KvSpec:
    return KvSpec(
        MLA if layer.kind in ("mla", "indexer") else _ATTENTION_SPECS[layer.kind],
        block_size,
        bytes_per_token=_bytes_per_token(layer, dtype, model, tensor_parallel_size),
        window=layer.window if layer.kind == "sliding" else None,
        chunk=layer.window if layer.kind == "chunked" else None,
        role=layer.kind if layer.kind == "indexer" else dtype,
        num_kv_heads=_heads_on_gpu(layer, tensor_parallel_size),
    )


def build_layer_caches(
    model: ModelConfig,
    layers: Sequence[Layer],
    states: dict[str, RecurrentState],
    request: CacheRequest,
    scheduling: Scheduling,
    release: Release,
    gpu: Gpu,
) -> LayerCaches:
    """Specs of all layers, in the order of ``layers``.

    Args:
        states: kind of recurrent layer -> its state on one GPU.

    Raises:
        VllmHostError: ``unsupported`` when no backend takes a layer.
    """
    tensor = scheduling.tensor_parallel_size
    dtype = request.kv_cache_dtype
    keys = [(layer.content, _layer_dtype(layer, request)) for layer in layers]
    kinds: dict[_Key, Layer] = {}
    for key, layer in zip(keys, layers):
        kinds.setdefault(key, layer)  # the first layer stands for its kind
    chosen = _choose_backends(kinds, request, model.dtype == "float32", gpu)
    backends = list(dict.fromkeys(chosen.values()))
    for backend in backends:
        dtype = _sparse_dtype(dtype, backend.name)
    block_size = _start_block_size(backends, model, request, gpu)

    attention = [layer for layer in kinds.values() if layer.kind not in ("recurrent", "indexer")]
    page_padded: Optional[int] = None
    mamba_block: Optional[int] = None
    mode = scheduling.mamba_cache_mode
    if states:
        mamba_block = request.mamba_block_size or (scheduling.max_model_len if mode == "none" else block_size)
        if attention and backends:
            token_bytes = _bytes_per_token(attention[0], dtype, model, tensor)
            state_bytes = max(state.bytes for state in states.values())
            chunk = (request.mamba_block_size or chunk_size(model)) if mode == "all" else None
            block_size = _hybrid_block_size(
                block_size, backends, model, token_bytes, state_bytes, chunk, release.hybrid_mla_block
            )
            if mode != "none":
                mamba_block = block_size
            if block_size * token_bytes != state_bytes:
                page_padded = block_size * token_bytes

    sliding_page: Optional[int] = None
    if request.skip_layers and attention and release.aligns_mixed_types:
        block_size, sliding_page = _align_mixed_types(
            block_size, attention[0], backends, model, request, tensor, page_padded
        )
        if sliding_page is not None and page_padded is not None:
            page_padded = sliding_page

    specs: dict[_Key, KvSpec] = {}
    for key, layer in kinds.items():
        if layer.kind == "recurrent":
            specs[key] = _state_spec(
                states[cast(str, layer.recurrent)], cast(int, mamba_block), page_padded, scheduling
            )
            continue
        stored = dtype if key[1] == request.kv_cache_dtype else key[1]
        spec = _attention_spec(layer, stored, block_size, model, tensor)
        if layer.kind == "sliding":
            budget = sliding_page or spec.bytes_per_token * block_size
            window_block = _kernel_block_within(chosen[key], spec.bytes_per_token, budget)
            spec = replace(
                spec,
                block_size=window_block,
                page_size_padded=sliding_page,
                extra_retained_tokens=_extra_retained(model, scheduling),
            )
        specs[key] = spec
    return LayerCaches(
        specs=tuple(specs[key] for key in keys),
        kv_cache_dtype=dtype,
        block_size=block_size,
        mamba_block_size=mamba_block,
        mamba_page_size_padded=page_padded,
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
