# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engine arguments, environment and GPU to the settings that vLLM resolves by itself before it loads a model.

Every function here is pure: dictionaries and numbers in, frozen dataclasses out. Nothing asks the network, a GPU or vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from ..errors import VllmHostError
from .engine_args import EngineArgs, means_longest, option, variable
from .layers import uses_mtp
from .model_config import ModelConfig, derive_max_model_len
from .recurrent_state import keeps_every_block
from .releases import Release

GIB = 1024**3
#: Length of a model whose configuration does not limit it (config/model.py).
DEFAULT_MAX_MODEL_LEN = 2048
#: Methods of speculation, besides MTP, with which vLLM keeps asynchronous scheduling (config/vllm.py of 0.32.0).
_ASYNC_METHODS = ("eagle", "eagle3", "ngram_gpu", "draft_model", "dspark", "dflash")


@dataclass(frozen=True)
class Gpu:
    """What vLLM asks of the device when it resolves defaults.

    Attributes:
        total_bytes: memory of one GPU; it only steers defaults (batched tokens, sequences).
        compute_capability: (12, 0) for SM120.
        device: ``cuda`` or ``cpu``.
        name: the product name; an A100 gets smaller defaults than its memory suggests.
    """

    total_bytes: int = 0
    compute_capability: tuple[int, int] = (9, 0)
    device: str = "cuda"
    name: str = ""


@dataclass(frozen=True)
class Scheduling:
    """The settings that need neither layers nor backends.

    Attributes:
        tensor_parallel_size, pipeline_parallel_size, data_parallel_size, decode_context_parallel_size: ranks.
        enable_expert_parallel: experts are spread over TP x DP.
        layer_partition: decoder layers of each pipeline rank, None for vLLM's own split.
        max_model_len: the length asked for, or the model's own; max_model_len_config: the model's own.
        max_num_batched_tokens, max_num_seqs: limits of the scheduler.
        batches_in_flight: 2 with asynchronous scheduling, one a pipeline rank otherwise.
        max_in_flight_tokens: tokens that windows keep besides (batches in flight since 0.28).
        max_num_encoder_input_tokens: of encoder-decoder models.
        enable_prefix_caching, disable_hybrid_kv_cache_manager: as resolved.
        mamba_cache_mode: how recurrent states are kept (``none``, ``align``, ``all``).
        speculative_method, num_speculative_tokens: None and 0 without speculation.
        num_gpu_blocks_override: replaces the number of blocks, None if not given.
        gpu_memory_utilization: the share of the GPU's memory that vLLM takes.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    enable_expert_parallel: bool
    layer_partition: Optional[tuple[int, ...]]
    max_model_len: int
    max_model_len_config: int
    max_num_batched_tokens: int
    max_num_seqs: int
    batches_in_flight: int
    max_in_flight_tokens: int
    max_num_encoder_input_tokens: int
    enable_prefix_caching: bool
    disable_hybrid_kv_cache_manager: bool
    mamba_cache_mode: str
    speculative_method: Optional[str]
    num_speculative_tokens: int
    num_gpu_blocks_override: Optional[int]
    gpu_memory_utilization: float


@dataclass(frozen=True)
class Engine(Scheduling):
    """All settings that decide about the KV cache, resolved.

    Attributes:
        vllm_version: as asked for; release: the row of releases_data that was used.
        kv_cache_dtype: as vLLM prints it (``auto`` stays ``auto`` on a 16-bit cache; ``fp8_ds_mla`` after the backend's
            choice).
        block_size: tokens of one block of the attention layers.
        mamba_block_size, mamba_page_size_padded: with a recurrent state, else None.
        attention_backends: names of the backends that vLLM would choose.
    """

    vllm_version: str
    release: str
    kv_cache_dtype: str
    block_size: int
    mamba_block_size: Optional[int]
    mamba_page_size_padded: Optional[int]
    attention_backends: tuple[str, ...]


@dataclass(frozen=True)
class ModelTraits:
    """What the layers of a model mean for the scheduler.

    Attributes:
        has_attention: any layer keeps keys and values; has_chunks: in chunks.
        recurrent: kinds of recurrent states.
        encoder_decoder: it has cross attention; encoder_only: all attention goes both ways.
        pooling: it embeds or classifies, and does not generate.
    """

    has_attention: bool = True
    has_chunks: bool = False
    recurrent: tuple[str, ...] = ()
    encoder_decoder: bool = False
    encoder_only: bool = False
    pooling: bool = False


def default_batch(gpu: Gpu, world_size: int, big_gpu_tier: bool = True) -> tuple[int, int]:
    """vLLM's default max_num_batched_tokens and max_num_seqs for an API server (engine/arg_utils.py).

    Args:
        world_size: TP x PP, by which the CPU's defaults grow.
        big_gpu_tier: the release has larger defaults from 160 GiB on.
    """
    if gpu.device == "cpu":
        return 2048 * world_size, 128 * world_size
    if gpu.total_bytes >= 160 * GIB and big_gpu_tier:
        return 16384, 1024
    # Without a name, compute capability 8.0 with so much memory can only be an A100.
    is_a100 = "a100" in gpu.name.lower() if gpu.name else gpu.compute_capability == (8, 0)
    if gpu.total_bytes >= 70 * GIB and not is_a100:
        return 8192, 1024
    return 2048, 256


def _layer_partition(env: Mapping[str, str]) -> Optional[tuple[int, ...]]:
    value = env.get("VLLM_PP_LAYER_PARTITION")
    if not value:
        return None
    try:
        return tuple(int(part) for part in str(value).split(","))
    except ValueError as error:
        raise VllmHostError(
            "bad_engine_args",
            f"{variable('VLLM_PP_LAYER_PARTITION')} must be numbers separated by commas, not {str(value)[:100]!r}.",
            key="VLLM_PP_LAYER_PARTITION",
        ) from error


def _check_parallel(model: ModelConfig, tensor: int, context: int, has_attention: bool) -> None:
    heads = model.num_attention_heads
    if has_attention and heads % tensor:
        raise VllmHostError(
            "bad_engine_args",
            f"{option('tensor_parallel_size')} {tensor} does not divide the model's {heads} attention heads; choose a divisor of {heads}.",
            key="tensor_parallel_size",
            found=tensor,
            expected=f"a divisor of {heads}",
        )
    if tensor % context:
        raise VllmHostError(
            "bad_engine_args",
            f"{option('decode_context_parallel_size')} {context} must divide tensor_parallel_size {tensor}.",
            key="decode_context_parallel_size",
            found=context,
        )
    if context > 1 and not model.is_mla and tensor // model.num_key_value_heads < context:
        raise VllmHostError(
            "bad_engine_args",
            f"{option('decode_context_parallel_size')} {context} is more than the {max(1, tensor // model.num_key_value_heads)} copies that"
            f" tensor_parallel_size {tensor} makes of the model's {model.num_key_value_heads} KV heads.",
            key="decode_context_parallel_size",
            found=context,
        )


def _max_model_len(model: ModelConfig, args: EngineArgs, env: Mapping[str, str]) -> tuple[int, int]:
    """The length to serve and the model's own."""
    own = derive_max_model_len(model)
    asked = None if means_longest(args.get("max_model_len")) else args.integer("max_model_len")
    if own is None:
        length = asked or DEFAULT_MAX_MODEL_LEN
        return length, length
    if asked is None:
        return own, own
    if asked > own and str(env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0")) not in ("1", "true", "True"):
        limit = model.text.get("model_max_length")
        if not isinstance(limit, (int, float)) or asked > limit:
            raise VllmHostError(
                "bad_engine_args",
                f"{option('max_model_len')} {asked} is more than the model's own {own}; lower it, or set"
                f" {variable('VLLM_ALLOW_LONG_MAX_MODEL_LEN')}: '1'.",
                key="max_model_len",
                found=asked,
                expected=own,
            )
    return asked, own


def _mamba_cache_mode(args: EngineArgs, release: Release, traits: ModelTraits, prefix_caching: bool) -> str:
    """How recurrent states are kept; without prefix caching always one a request (models/config.py)."""
    if not traits.recurrent or not prefix_caching:
        return "none"
    mode = args.text("mamba_cache_mode", "none")
    if mode not in ("none", "align", "all"):
        raise VllmHostError(
            "bad_engine_args",
            f"{option('mamba_cache_mode')} must be align, all or none, not {mode!r}.",
            key="mamba_cache_mode",
            found=mode,
        )
    mode = release.mamba_mode if mode == "none" else mode
    can_keep_all = release.mamba_mode == "all" and all(keeps_every_block(kind) for kind in traits.recurrent)
    return mode if can_keep_all else "align"


def resolve_scheduling(
    model: ModelConfig,
    args: EngineArgs,
    env: Mapping[str, str],
    gpu: Gpu,
    release: Release,
    traits: ModelTraits,
) -> Scheduling:
    """Parallelism, lengths, scheduler and cache switches.

    Raises:
        VllmHostError: ``bad_engine_args`` for wrong types, sizes that do not divide, lengths beyond the model's.
    """
    tensor = args.integer("tensor_parallel_size", 1) or 1
    pipeline = args.integer("pipeline_parallel_size", 1) or 1
    data = args.integer("data_parallel_size", 1) or 1
    context = args.integer("decode_context_parallel_size", 1) or 1
    _check_parallel(model, tensor, context, traits.has_attention)
    max_model_len, own = _max_model_len(model, args, env)
    default_tokens, default_seqs = default_batch(gpu, tensor * pipeline, release.big_gpu_tier)
    factor = 2 if args.text("performance_mode", "") == "throughput" else 1
    max_num_seqs = args.integer("max_num_seqs") or default_seqs * factor
    tokens = args.integer("max_num_batched_tokens")
    if tokens is None:
        tokens = default_tokens * factor
        chunked = args.flag("enable_chunked_prefill")
        if chunked is False or (chunked is None and (traits.encoder_decoder or traits.encoder_only)):
            tokens = max(tokens, max_model_len)
        tokens = min(tokens, max_num_seqs * max_model_len)
    if args.get("max_num_seqs") is None:
        max_num_seqs = min(max_num_seqs, tokens)
    speculative = args.mapping("speculative_config") or {}
    method = speculative.get("method")
    asynchronous = args.flag("async_scheduling")
    if gpu.device == "cpu":
        asynchronous = False
    elif asynchronous is None:
        asynchronous = not traits.pooling and (method is None or uses_mtp(method) or str(method) in _ASYNC_METHODS)
    batches = pipeline
    if asynchronous:
        # Model runner V1 gives asynchronous scheduling up with pipeline ranks; V2 adds one batch.
        if str(env.get("VLLM_USE_V2_MODEL_RUNNER", "")) == "1":
            batches = pipeline + 1
        elif pipeline == 1:
            batches = 2
    prefix = args.flag("enable_prefix_caching")
    if prefix is None:
        prefix = not (traits.encoder_decoder or traits.encoder_only)
        if traits.recurrent:
            prefix = traits.has_attention and release.hybrid_prefix_caching
    if gpu.device == "cpu" and model.is_mla:
        # The CPU's MLA backend forces both off (platforms/cpu.py).
        prefix = False
        tokens = max(max_model_len, 2048)
    no_hybrid = args.flag("disable_hybrid_kv_cache_manager")
    if no_hybrid is None and traits.has_chunks:
        no_hybrid = str(env.get("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE", "1")) in ("0", "false", "False")
    num_speculative = speculative.get("num_speculative_tokens") or 0
    if not isinstance(num_speculative, int) or num_speculative < 0:
        raise VllmHostError(
            "bad_engine_args",
            f"{option('speculative_config')}: num_speculative_tokens must be a whole number.",
            key="speculative_config",
        )
    return Scheduling(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=data,
        decode_context_parallel_size=context,
        enable_expert_parallel=bool(args.flag("enable_expert_parallel")),
        layer_partition=_layer_partition(env) if pipeline > 1 else None,
        max_model_len=max_model_len,
        max_model_len_config=own,
        max_num_batched_tokens=tokens,
        max_num_seqs=max_num_seqs,
        batches_in_flight=batches,
        max_in_flight_tokens=tokens * (batches if release.counts_batches_in_flight else 1),
        max_num_encoder_input_tokens=tokens,
        enable_prefix_caching=prefix,
        disable_hybrid_kv_cache_manager=bool(no_hybrid),
        mamba_cache_mode=_mamba_cache_mode(args, release, traits, prefix),
        speculative_method=str(method) if method else None,
        num_speculative_tokens=num_speculative,
        num_gpu_blocks_override=args.integer("num_gpu_blocks_override"),
        gpu_memory_utilization=args.number("gpu_memory_utilization", release.gpu_memory_utilization, 0.0, 1.0),
    )
