# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door to the KV-cache arithmetic: a model, its options and a GPU to what vLLM will say after the load.

::

    plan = plan_kv_cache(config, engine_args={"tensor_parallel_size": 8}, vllm_version="0.32.0",
                         gpu=Gpu(total_bytes=102641958912, compute_capability=(12, 0)))
    plan.engine.block_size, plan.kv_bytes_per_token
    plan.capacity(available_bytes).num_gpu_blocks
    plan.max_model_len_fit(available_bytes)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Optional, Union

from ..errors import VllmHostError
from .engine import Engine, Gpu, ModelTraits, resolve_scheduling
from .engine_args import EngineArgs
from .kv_dtypes import check_kv_cache_dtype, dtype_from_checkpoint
from .kv_groups import Group, bytes_per_block, group_layers
from .kv_specs import RequestLimits
from .layer_caches import CacheRequest, boundary_layers, build_layer_caches
from .layers import decoder_layers, is_encoder_only, pipeline_split, speculative_layers, uses_mtp
from .model_config import ModelConfig, parse_model_config
from .models_data import IMAGE_PREFIX_MODEL_TYPES, SINK_MODEL_TYPES
from .recurrent_state import StateOptions, recurrent_state, state_dtype_bytes
from .releases import Release, find_release

#: Bytes for the KV cache of one GPU; one number for all pipeline ranks or one a rank.
AvailableBytes = Union[int, list[int], tuple[int, ...]]

#: Beyond this no length is looked for.
_LONGEST = 1 << 30
#: A length at which every window is full.
_LONG_REQUEST = 1 << 22


@dataclass(frozen=True)
class KvGroup:
    """Layers that share one block table.

    Attributes:
        kind: vLLM's class name (``FullAttentionSpec``, ``MLAAttentionSpec``, ``SlidingWindowSpec``, ``MambaSpec``, ...;
            ``Uniform:`` in front when layers of different page sizes share one table).
        layers: number of layers of the whole model in the group.
        layers_per_rank: the same for each pipeline rank.
        block_size: tokens of a block.
        page_size_bytes: bytes of a block of one layer (of all layers for ``Uniform:``).
    """

    kind: str
    layers: int
    layers_per_rank: tuple[int, ...]
    block_size: int
    page_size_bytes: int


@dataclass(frozen=True)
class KvCapacity:
    """What vLLM prints at a length.

    Attributes:
        max_model_len: the length the rest is about.
        num_gpu_blocks: of the smallest rank.
        kv_cache_tokens: "GPU KV cache size: N tokens".
        max_concurrency: "Maximum concurrency for L tokens per request", unrounded.
        printed_concurrency: the same as printed (``1.36x``).
        needed_bytes: what one request of that length needs on the rank that needs most.
        fits: vLLM would start with it.
    """

    max_model_len: int
    num_gpu_blocks: int
    kv_cache_tokens: int
    max_concurrency: float
    printed_concurrency: str
    needed_bytes: int
    fits: bool


@dataclass(frozen=True)
class KvPlan:
    """The KV cache of one engine, ready to be asked about any amount of memory.

    Attributes:
        model: the parsed model configuration.
        engine: the resolved engine settings.
        groups: vLLM's cache groups.
        bytes_per_block: bytes of one block on each pipeline rank.
        kv_bytes_per_token: bytes that one more token of a long request takes on each pipeline rank (GPU).
        fixed_bytes_per_request: bytes that a request takes whatever its length (states, full windows), per rank.
        notes: statements a reader must know (nearest release used, fallback for an unknown architecture, ...).
    """

    model: ModelConfig
    engine: Engine
    groups: tuple[KvGroup, ...]
    bytes_per_block: tuple[int, ...]
    kv_bytes_per_token: tuple[float, ...]
    fixed_bytes_per_request: tuple[float, ...]
    notes: tuple[str, ...]
    _groups: tuple[Group, ...]
    _limits: RequestLimits
    _release: Release

    def blocks_needed(self, max_model_len: int) -> int:
        """Blocks that one request of a length holds at once, over all groups."""
        needs = [group.blocks_needed(max_model_len, self._limits) for group in self._groups]
        return needs[0] if self._release.hybrid_need == "first_group" else sum(needs)

    def num_gpu_blocks(self, available_bytes: AvailableBytes) -> int:
        """Blocks of the smallest rank (0 for a model without any cache).

        Raises:
            VllmHostError: ``bad_value`` for negative memory or a wrong number of ranks.
        """
        per_rank = self._per_rank(available_bytes)
        if self.engine.num_gpu_blocks_override is not None:
            return self.engine.num_gpu_blocks_override
        if not self.bytes_per_block:
            return 0
        return min(available // size for available, size in zip(per_rank, self.bytes_per_block))

    def needed_bytes(self, max_model_len: int) -> tuple[int, ...]:
        """Bytes that one request of a length needs on each rank."""
        blocks = self.blocks_needed(max_model_len)
        return tuple(blocks * size for size in self.bytes_per_block)

    def fits(self, available_bytes: AvailableBytes, max_model_len: int) -> bool:
        """Whether vLLM starts with that length."""
        usable = self.num_gpu_blocks(available_bytes) - (1 if self._release.null_block else 0)
        return not self._groups or 0 < self.blocks_needed(max_model_len) <= usable

    def max_model_len_fit(self, available_bytes: AvailableBytes, cap: Optional[int] = None) -> int:
        """The largest length with which vLLM starts; 0 if there is none.

        Args:
            cap: no longer than this; default the engine's max_model_len (the model's own unless another was asked for).
        """
        longest = self.engine.max_model_len if cap is None else cap
        if self.fits(available_bytes, longest):
            return longest
        low, high = 0, longest  # low fits (or is none), high does not
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits(available_bytes, middle):
                low = middle
            else:
                high = middle
        return low

    def max_model_len_fit_uncapped(self, available_bytes: AvailableBytes) -> int:
        """The largest length for which the memory would do, whatever the model says about its own."""
        return self.max_model_len_fit(available_bytes, cap=_LONGEST)

    def capacity(self, available_bytes: AvailableBytes, max_model_len: Optional[int] = None) -> KvCapacity:
        """Blocks, tokens and concurrency at a length (default: the engine's max_model_len)."""
        length = self.engine.max_model_len if max_model_len is None else max_model_len
        if length < 1:
            raise VllmHostError("bad_value", f"max_model_len must be at least 1, not {length}.", key="max_model_len")
        blocks = self.num_gpu_blocks(available_bytes)
        if not self._groups:
            return KvCapacity(length, 0, 0, 0.0, "0.00x", 0, True)
        per_request = sum(group.blocks_needed(length, self._limits) for group in self._groups)
        concurrency = blocks / per_request if per_request else 0.0
        if self._release.printed_tokens == "concurrency":
            tokens = int(concurrency * length)
        else:
            smallest = min(group.first.block_size for group in self._groups)
            tokens = blocks // len(self._groups) * smallest * self._limits.decode_context_parallel_size
        return KvCapacity(
            max_model_len=length,
            num_gpu_blocks=blocks,
            kv_cache_tokens=tokens,
            max_concurrency=concurrency,
            printed_concurrency=f"{concurrency:.2f}x",
            needed_bytes=max(self.needed_bytes(length)),
            fits=self.fits(available_bytes, length),
        )

    def _per_rank(self, available_bytes: AvailableBytes) -> tuple[int, ...]:
        ranks = self.engine.pipeline_parallel_size
        given = tuple(available_bytes) if isinstance(available_bytes, (list, tuple)) else (available_bytes,) * ranks
        if len(given) != ranks:
            raise VllmHostError(
                "bad_value",
                f"Memory for {len(given)} pipeline ranks was given, but there are {ranks}.",
                key="available_kv_cache_bytes",
            )
        for value in given:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise VllmHostError(
                    "bad_value",
                    f"available_kv_cache_bytes must be a whole number of bytes and not negative, not {value!r}.",
                    key="available_kv_cache_bytes",
                    found=repr(value),
                )
        return given


def _kv_cache_dtype(model: ModelConfig, args: EngineArgs, gpu: Gpu, vllm_version: str) -> str:
    """What --kv-cache-dtype is after the checkpoint and the architecture had their say."""
    dtype = check_kv_cache_dtype(args.text("kv_cache_dtype", "auto"), vllm_version)
    if dtype == "auto":
        dtype = dtype_from_checkpoint(model.quantization, model.is_mla)
    if model.architecture == "DeepseekV32ForCausalLM" and dtype == "bfloat16":
        return "auto"
    if model.architecture == "GlmMoeDsaForCausalLM" and dtype == "auto" and gpu.compute_capability[0] == 10:
        return "fp8_e4m3"
    return dtype


def _rank_layers(plan_layers: Sequence[int], parts: Sequence[int]) -> list[frozenset[int]]:
    """Numbers of the caches on each pipeline rank; speculative layers (index -1) are on the last one."""
    bounds = [sum(parts[: rank + 1]) for rank in range(len(parts))]
    ranks: list[set[int]] = [set() for _part in parts]
    for number, index in enumerate(plan_layers):
        rank = len(parts) - 1 if index < 0 else next(rank for rank, bound in enumerate(bounds) if index < bound)
        ranks[rank].add(number)
    return [frozenset(rank) for rank in ranks]


def _bytes_by_length(
    groups: Sequence[Group], per_block: Sequence[int], limits: RequestLimits
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bytes that one more token of a long request takes, and bytes that it takes whatever its length, on each rank.

    The line through two long lengths: windows and states no longer grow there, and whole blocks are counted as vLLM does.
    """
    short, long = (
        sum(group.blocks_needed(length, limits) for group in groups) for length in (_LONG_REQUEST, 2 * _LONG_REQUEST)
    )
    per_token = tuple(size * (long - short) / _LONG_REQUEST for size in per_block)
    fixed = tuple(float(size * (2 * short - long)) for size in per_block)
    return per_token, fixed


def plan_kv_cache(
    config: Mapping[str, Any],
    hf_quant_config: Optional[Mapping[str, Any]] = None,
    engine_args: Optional[Mapping[str, Any]] = None,
    vllm_version: str = "0.32.0",
    gpu: Optional[Gpu] = None,
    env: Optional[Mapping[str, str]] = None,
    packages: Sequence[str] = (),
) -> KvPlan:
    """Resolve a model and its options to the KV cache that vLLM would build.

    Args:
        config: config.json as a dict.
        hf_quant_config: hf_quant_config.json as a dict, if there is one.
        engine_args: vLLM's options by their snake_case names.
        vllm_version: ``0.32.0``.
        gpu: the device (default: a CUDA GPU of compute capability 9.0 and unknown size).
        env: VLLM_* variables.
        packages: optional packages beside vLLM that change its choice of backend (``flashinfer``).

    Raises:
        VllmHostError: ``bad_config``, ``bad_engine_args``, ``bad_value`` or ``unsupported``, with the key and a remedy.
    """
    gpu, env = gpu or Gpu(), env or {}
    args = EngineArgs(engine_args)
    release = find_release(vllm_version)
    model = parse_model_config(
        _overridden(config, args),
        hf_quant_config,
        dtype=args.text("dtype", "auto"),
        mla_disabled=str(env.get("VLLM_MLA_DISABLE", "0")) == "1",
    )
    own = decoder_layers(model)
    kinds = {layer.kind for layer in own}
    traits = ModelTraits(
        has_attention=kinds != {"recurrent"},
        has_chunks="chunked" in kinds,
        recurrent=tuple(sorted({layer.recurrent for layer in own if layer.recurrent})),
        encoder_decoder="cross" in kinds,
        encoder_only=is_encoder_only(model),
        pooling=is_encoder_only(model) or args.text("runner", "auto") == "pooling",
    )
    scheduling = resolve_scheduling(model, args, env, gpu, release, traits)
    layers = own + speculative_layers(model, args.mapping("speculative_config"))
    states = {}
    for kind in traits.recurrent:
        conv, ssm = state_dtype_bytes(
            model, kind, _state_dtype(args, "mamba_cache_dtype"), _state_dtype(args, "mamba_ssm_cache_dtype")
        )
        options = StateOptions(scheduling.tensor_parallel_size, scheduling.num_speculative_tokens, conv, ssm)
        state = recurrent_state(model, kind, options)
        states[kind] = state if release.prefill_checkpoint else replace(state, checkpoint_blocks=0)
    dtype = _kv_cache_dtype(model, args, gpu, vllm_version)
    request = CacheRequest(
        kv_cache_dtype=dtype,
        skip_layers=tuple(
            dict.fromkeys(
                (
                    *args.words("kv_cache_dtype_skip_layers"),
                    *boundary_layers(dtype, model.num_hidden_layers, bool(states)),
                )
            )
        ),
        block_size=args.integer("block_size"),
        mamba_block_size=args.integer("mamba_block_size"),
        packages=tuple(packages),
        use_sinks=model.text_model_type in SINK_MODEL_TYPES,
        image_prefix=model.model_type in IMAGE_PREFIX_MODEL_TYPES and not args.flag("language_model_only"),
    )
    caches = build_layer_caches(model, layers, states, request, scheduling, release, gpu)
    engine = Engine(
        **asdict(scheduling),
        vllm_version=vllm_version,
        release=release.since,
        kv_cache_dtype=caches.kv_cache_dtype,
        block_size=caches.block_size,
        mamba_block_size=caches.mamba_block_size,
        mamba_page_size_padded=caches.mamba_page_size_padded,
        attention_backends=caches.backends,
    )
    limits = RequestLimits(
        max_in_flight_tokens=engine.max_in_flight_tokens,
        max_num_encoder_input_tokens=engine.max_num_encoder_input_tokens,
        decode_context_parallel_size=engine.decode_context_parallel_size,
        mamba_cache_mode=engine.mamba_cache_mode,
    )
    groups = group_layers(caches.specs, engine.disable_hybrid_kv_cache_manager, release.group_padding)
    parts = pipeline_split(model.num_hidden_layers, engine.pipeline_parallel_size, engine.layer_partition)
    ranks = _rank_layers([layer.index for layer in layers], parts)
    per_block = tuple(bytes_per_block(groups, rank) for rank in ranks) if groups else ()
    per_token, fixed = _bytes_by_length(groups, per_block, limits)
    return KvPlan(
        model=model,
        engine=engine,
        groups=tuple(_public_group(group, ranks) for group in groups),
        bytes_per_block=per_block,
        kv_bytes_per_token=per_token,
        fixed_bytes_per_request=fixed,
        notes=tuple(note for note in (*model.notes, release.note, *_engine_notes(engine, kinds)) if note),
        _groups=tuple(groups),
        _limits=limits,
        _release=release,
    )


def _state_dtype(args: EngineArgs, key: str) -> str:
    name = args.text(key, "auto")
    if name not in ("auto", "float32", "float16", "bfloat16"):
        raise VllmHostError(
            "bad_engine_args",
            f"vllm_engine_args.{key} must be auto, float32, float16 or bfloat16, not {name!r}.",
            key=key,
            found=name,
        )
    return name


def _engine_notes(engine: Engine, kinds: set[str]) -> list[str]:
    """What the reader of a plan must know about how its engine was taken."""
    notes = []
    method = engine.speculative_method
    if method and not uses_mtp(method) and not method.startswith(("ngram", "suffix")):
        notes.append(
            f"speculative_config: the draft model of method {method} is another checkpoint; its own KV cache is not counted."
        )
    if engine.pipeline_parallel_size > 1 and kinds & {"sliding", "chunked"}:
        notes.append(
            "Pipeline ranks and windows: one batch in flight a rank was counted; model runner V2 with asynchronous scheduling"
            " keeps one more (set VLLM_USE_V2_MODEL_RUNNER in vllm_env to say which runs)."
        )
    return notes


def _overridden(config: Mapping[str, Any], args: EngineArgs) -> Mapping[str, Any]:
    """config.json with --hf-overrides on top (nested mappings are merged)."""
    overrides = args.mapping("hf_overrides")
    if not overrides or not isinstance(config, Mapping):
        return config
    merged = dict(config)
    for key, value in overrides.items():
        present = merged.get(key)
        merged[key] = {**present, **value} if isinstance(present, Mapping) and isinstance(value, Mapping) else value
    return merged


def _public_group(group: Group, ranks: Sequence[frozenset[int]]) -> KvGroup:
    return KvGroup(
        kind=group.kind,
        layers=len(group.specs),
        layers_per_rank=tuple(sum(number in rank for number in group.specs) for rank in ranks),
        block_size=group.first.block_size,
        page_size_bytes=group.page_size_bytes,
    )
