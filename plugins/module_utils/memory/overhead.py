# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU memory outside weights and KV cache: what vLLM subtracts from its budget before it gives the rest to the cache.

``available = ceil(utilization * CUDA total) - weights - overhead``. The overhead is a range made of named parts; on one GPU
with a 16-bit model the formulas were fitted to measured runs and the range is narrow, elsewhere it is wide and says why.

Symbols, after the source of the formulas (measured with vLLM 0.23.0 on an H200, docs/benchmarks/kv_cache_budget.md): n batched
tokens, S sequences, R = min(S, n), H, I, V hidden, intermediate and vocabulary size, h heads. Widths that tensor parallelism divides are
those of one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from . import overhead_data as data
from .engine_args import EngineArgs
from .model_config import ModelConfig, config_size
from .releases import parse_version


@dataclass(frozen=True)
class OverheadSettings:
    """What the overhead depends on beside the model.

    Attributes:
        release: vLLM's version.
        tensor_parallel_size, pipeline_parallel_size, decode_context_parallel_size: ranks.
        data_parallel_size: ranks over which experts are spread as well.
        max_num_batched_tokens, max_num_seqs, max_model_len: as resolved.
        tokens_per_sequence: 1 + speculative tokens: what one sequence decodes in a step.
        engine_args: for ``enforce_eager``, ``compilation_config``, ``max_cudagraph_capture_size``, ``language_model_only``.
        env: VLLM_* variables.
        gpu_name, compute_capability: of the device.
        weights_are_measured: the weights given are vLLM's own figure, which holds what is allocated while loading.
    """

    release: str
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    data_parallel_size: int = 1
    tokens_per_sequence: int = 1
    engine_args: Optional[Mapping[str, Any]] = None
    env: Optional[Mapping[str, str]] = None
    gpu_name: str = ""
    compute_capability: Optional[tuple[int, int]] = None
    weights_are_measured: bool = False


@dataclass(frozen=True)
class Part:
    """One named part of the overhead, in bytes, with the reason for its size."""

    name: str
    low: int
    expected: int
    high: int
    basis: str


@dataclass(frozen=True)
class Overhead:
    """The whole overhead of one GPU: parts and their sums in bytes."""

    parts: tuple[Part, ...]

    @property
    def low(self) -> int:
        return sum(part.low for part in self.parts)

    @property
    def expected(self) -> int:
        return sum(part.expected for part in self.parts)

    @property
    def high(self) -> int:
        return sum(part.high for part in self.parts)


def overhead_per_gpu(model: ModelConfig, settings: OverheadSettings) -> Overhead:
    """The overhead of the pipeline rank that has most of it (the last one: it samples).

    Args:
        model: the parsed configuration.
        settings: see the class.
    """
    shape = _Shape.of(model, settings)
    parts = [
        _non_torch(shape, settings),
        _after_loading(shape, settings),
        _activation(shape, settings),
        _encoder(model, shape, settings),
    ]
    parts.append(_graphs(shape, settings))
    if parse_version(settings.release) < (0, 20, 0):
        parts.append(
            Part("older_profile", *data.UNMEASURED_OLD_PROFILE_BYTES, "releases before 0.20 were not measured")
        )
    return Overhead(tuple(part for part in parts if part.high))


def cuda_total_bytes(
    nvml_total_bytes: int, reserved_bytes: Optional[int] = None, compute_capability: Optional[tuple[int, int]] = None
) -> int:
    """The total that CUDA reports and vLLM multiplies: NVML's total less what the driver reserves.

    Args:
        nvml_total_bytes: nvidia-smi's total.
        reserved_bytes: NVML v2's ``reserved``; estimated when None.
        compute_capability: for the estimate.
    """
    if reserved_bytes is not None:
        return nvml_total_bytes - reserved_bytes
    share = data.RESERVED_BY_CAPABILITY.get(compute_capability or (0, 0), data.RESERVED_DEFAULT)
    return int(nvml_total_bytes * (1 - share))


@dataclass(frozen=True)
class _Shape:
    """Widths of the model on one GPU."""

    architecture: str
    kind: str
    layers: int
    hidden: int
    inner: int
    vocabulary: int
    vocabulary_share: int
    heads: float
    value_width: int
    mla_lora: int
    mla_width: int
    experts_per_token: int
    expert_inner: int
    experts_before_attention: bool
    quantization: str

    @classmethod
    def of(cls, model: ModelConfig, settings: OverheadSettings) -> _Shape:
        text, tensor = model.text, settings.tensor_parallel_size
        lora = config_size(text, "kv_lora_rank") if model.is_mla else 0
        per_token = config_size(text, "num_experts_per_tok", "experts_per_token")
        expert_inner = config_size(text, "moe_intermediate_size", "intermediate_size")
        whole_experts = bool(EngineArgs(settings.engine_args).flag("enable_expert_parallel"))
        vocabulary = config_size(text, "vocab_size")
        return cls(
            architecture=model.architecture,
            kind=model.text_model_type,
            layers=-(-model.num_hidden_layers // settings.pipeline_parallel_size),
            hidden=model.hidden_size,
            inner=config_size(text, "intermediate_size", default=4 * model.hidden_size) // tensor,
            vocabulary=vocabulary,
            vocabulary_share=vocabulary // tensor,
            heads=max(1.0, model.num_attention_heads / tensor),
            value_width=lora or model.head_size,
            mla_lora=lora,
            mla_width=config_size(text, "qk_nope_head_dim") + config_size(text, "v_head_dim") if lora else 0,
            experts_per_token=per_token,
            expert_inner=expert_inner // (1 if whole_experts else tensor * settings.data_parallel_size),
            experts_before_attention=model.num_hidden_layers - config_size(text, "first_k_dense_replace") >= 2,
            quantization=str((model.quantization or {}).get("quant_method", "")),
        )

    def expert_workspace(self, tokens: int) -> tuple[int, int]:
        """Bytes of the fused experts' two workspaces: (expected, largest). Triton's was measured; kernels for packed
        weights take less."""
        if not self.experts_per_token:
            return 0, 0
        rows = tokens * self.experts_per_token * 2
        first = max(2 * self.expert_inner, self.hidden)
        triton = rows * (first + max(self.expert_inner, self.hidden))
        packed = self.quantization in data.PACKED_EXPERT_METHODS
        return rows * (first + self.expert_inner) if packed else triton, triton


def _non_torch(shape: _Shape, settings: OverheadSettings) -> Part:
    graphs = model_runner(shape, settings) == "v1" and not _eager(settings)
    expected = data.NON_TORCH_BYTES + (data.NON_TORCH_GRAPHS_BYTES if graphs else 0)
    peers = settings.tensor_parallel_size * settings.pipeline_parallel_size - 1
    low, middle, high = (peers * each for each in data.COLLECTIVES_BYTES_PER_PEER)
    basis = "libraries of the CUDA context" + (f", NCCL and all-reduce buffers for {peers} peers" if peers else "")
    return Part("non_torch", data.NON_TORCH_BYTES + low, expected + middle, data.NON_TORCH_HIGH_BYTES + high, basis)


def _after_loading(shape: _Shape, settings: OverheadSettings) -> Part:
    """Copies that vLLM makes of loaded weights. 2 h lora (nope + v) bytes a layer: MLA's absorbed matrices."""
    if settings.weights_are_measured:
        return Part("after_loading", 0, 0, 0, "part of the weights given")
    absorbed = int(2 * shape.heads * shape.mla_lora * shape.mla_width * shape.layers)
    low, expected, high = (absorbed + slack for slack in data.LOAD_SLACK_BYTES)
    basis = "allocator rounding" + (" and MLA's absorbed matrices" if absorbed else "")
    return Part("after_loading", low, expected, high, basis)


def _activation(shape: _Shape, settings: OverheadSettings) -> Part:
    """The highest of three peaks: forward pass, first compilation, sampler."""
    runner = model_runner(shape, settings)
    tokens, sequences = settings.max_num_batched_tokens, settings.max_num_seqs
    workspace, largest = shape.expert_workspace(tokens)
    forward, sampler = _forward(shape, settings, workspace), _sampler(shape, settings, workspace, runner)
    compiled = 0 if _eager(settings) else 2 * shape.vocabulary_share * shape.hidden + 4 * shape.hidden * tokens
    expected = max(forward, compiled, sampler)
    basis = f"{tokens} batched tokens" if expected > sampler else f"sampler for {min(sequences, tokens)} sequences"
    if settings.tensor_parallel_size == 1 and not shape.quantization:
        slack = int(expected * data.MEASURED_TOLERANCE)
        return Part("activation", expected - slack, expected, expected + slack, basis)
    high = max(expected, _forward(shape, settings, largest), _sampler(shape, settings, largest, "v1"))
    return Part("activation", expected, expected, high, f"{basis}; with TP or quantization not measured")


def _forward(shape: _Shape, settings: OverheadSettings, workspace: int) -> int:
    """A forward pass of n tokens. Dense n (6 I + 6 H), n (6 I + 8 H) with norms of queries and keys; experts
    workspace + 20 H n; MLA workspace + W h (nope + v) 2 + n (868 h + c), c = 22,400 eager, 900 compiled, and
    W = min(max(8 L, 64 S), 65536) the tokens of a chunked prefill. The experts' workspace stays while later layers
    attend, so it counts beside attention only when one follows."""
    tokens, hidden = settings.max_num_batched_tokens, shape.hidden
    if shape.mla_lora:
        chunk = min(max(8 * settings.max_model_len, 64 * settings.max_num_seqs), 65536)
        constant = 22400 if _eager(settings) else 900
        kept = workspace if shape.experts_before_attention else 0
        peak = kept + int(chunk * shape.heads * shape.mla_width * 2) + int(tokens * (868 * shape.heads + constant))
    elif workspace:
        peak = workspace + 20 * hidden * tokens
    else:
        peak = tokens * (6 * shape.inner + (8 if shape.kind.startswith(("qwen3", "gemma")) else 6) * hidden)
    return data.FORWARD_BASE_BYTES + peak


def _sampler(shape: _Shape, settings: OverheadSettings, workspace: int, runner: str) -> int:
    """Logits and sampling of R sequences: 2 H (n + R) + workspace + R (14 V + 2 H) + 4 V min(R, SMs), newer runner 6 V R."""
    tokens, rows = settings.max_num_batched_tokens, min(settings.max_num_seqs, settings.max_num_batched_tokens)
    base = data.FORWARD_BASE_BYTES + 2 * shape.hidden * (tokens + rows) + workspace
    if runner == "v2":
        return base + 6 * shape.vocabulary * rows
    multiprocessors = _multiprocessors(settings)
    return base + rows * (14 * shape.vocabulary + 2 * shape.hidden) + 4 * shape.vocabulary * min(rows, multiprocessors)


def _encoder(model: ModelConfig, shape: _Shape, settings: OverheadSettings) -> Part:
    """A multimodal encoder: its outputs for the whole budget stay while the language model is profiled."""
    has_encoder = any(isinstance(model.top.get(key), Mapping) for key in ("vision_config", "audio_config"))
    if not has_encoder or EngineArgs(settings.engine_args).flag("language_model_only"):
        return Part("encoder", 0, 0, 0, "none")
    outputs = 2 * settings.max_num_batched_tokens * shape.hidden
    low, high = data.ENCODER_EXTRA_BYTES
    return Part(
        "encoder", low, outputs, outputs + high, "outputs of the multimodal encoder; its own peak was not measured"
    )


def _graphs(shape: _Shape, settings: OverheadSettings) -> Part:
    """CUDA graphs, as far as the release takes them from the KV budget."""
    runner = model_runner(shape, settings)
    _since, _default, v1_deducted, v2_deducted = _release_row(settings.release)
    wanted = (settings.env or {}).get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "1")
    deducted = v2_deducted if runner == "v2" else v1_deducted
    if _eager(settings) or not deducted or str(wanted) == "0":
        return Part("cuda_graphs", 0, 0, 0, "not taken from the KV budget")
    if runner == "v2":
        expected = int(data.V2_GRAPHS_BASE_BYTES + data.V2_GRAPHS_BYTES_PER_LAYER * shape.layers)
        low, high = expected, expected
    else:
        low, expected, high = _older_graphs(shape, settings)
    measured = settings.tensor_parallel_size == 1 and runner == "v1"
    if not measured:
        low_factor, high_factor = data.UNMEASURED_GRAPH_FACTORS[runner]
        low, high = int(low * low_factor), int(high * high_factor)
    return Part("cuda_graphs", low, expected, high, f"model runner {runner}, up to {_capture_size(settings)} tokens")


def _older_graphs(shape: _Shape, settings: OverheadSettings) -> tuple[int, int, int]:
    """The older runner's estimate: the first FULL capture, 128 h tokens d_v bytes, and 1 to 4 MiB for every further graph."""
    largest = _capture_size(settings)
    decoded = min(largest, settings.max_num_seqs * settings.tokens_per_sequence)
    heads = shape.heads * settings.decode_context_parallel_size
    first = int(128 * heads * decoded * shape.value_width)
    if shape.mla_lora and decoded >= data.MLA_FULL_CAPTURE_FACTOR_FROM:
        first *= data.MLA_FULL_CAPTURE_FACTOR
    full, piecewise = len(_capture_sizes(decoded)) - 1, len(_capture_sizes(largest)) - 1
    fixed = first + data.PIECEWISE_FIRST_BYTES + piecewise * data.PIECEWISE_GRAPH_BYTES
    least = data.FULL_GRAPH_LOW_BYTES_MLA if shape.mla_lora else data.FULL_GRAPH_LOW_BYTES
    each = min(max(shape.layers * data.FULL_GRAPH_BYTES_PER_LAYER, least), data.FULL_GRAPH_HIGH_BYTES)
    return (
        int(fixed + full * data.FULL_GRAPH_LOW_BYTES),
        int(fixed + full * each),
        int(fixed + full * data.FULL_GRAPH_HIGH_BYTES),
    )


def model_runner(shape: _Shape, settings: OverheadSettings) -> str:
    """``v1`` or ``v2``, as the release chooses it, or as VLLM_USE_V2_MODEL_RUNNER says."""
    forced = (settings.env or {}).get("VLLM_USE_V2_MODEL_RUNNER")
    if forced is not None:
        return "v1" if str(forced) == "0" else "v2"
    default = _release_row(settings.release)[1]
    if default == "some":
        return "v2" if shape.architecture in data.V2_ARCHITECTURES and not shape.quantization else "v1"
    return default


def _release_row(release: str) -> tuple[str, str, bool, bool]:
    version = parse_version(release)
    return [row for row in data.RUNNERS if parse_version(row[0]) <= version][-1]


def _eager(settings: OverheadSettings) -> bool:
    options = EngineArgs(settings.engine_args)
    no_graphs = str(options.compilation().get("cudagraph_mode", "")).upper() == "NONE"
    return bool(options.flag("enforce_eager")) or no_graphs


def _capture_size(settings: OverheadSettings) -> int:
    """The largest batch that is captured, in tokens: min(2 S, 512) unless the options say otherwise."""
    options = EngineArgs(settings.engine_args)
    nested = EngineArgs(options.compilation())
    sizes = nested.integers("cudagraph_capture_sizes") or options.integers("cudagraph_capture_sizes")
    asked = options.integer("max_cudagraph_capture_size") or nested.integer("max_cudagraph_capture_size")
    if sizes:
        return max(sizes)
    if asked:
        return asked
    return min(2 * settings.max_num_seqs * settings.tokens_per_sequence, 512, settings.max_num_batched_tokens)


def _capture_sizes(largest: int) -> list[int]:
    """1, 2, 4, every 8th up to 256, every 16th beyond (vLLM's config/vllm.py)."""
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, 8192, 16)) if size <= largest]


def _multiprocessors(settings: OverheadSettings) -> int:
    for name, count in data.MULTIPROCESSORS_BY_NAME:
        if name in settings.gpu_name:
            return count
    return data.MULTIPROCESSORS_BY_CAPABILITY.get(settings.compute_capability or (0, 0), data.MULTIPROCESSORS_DEFAULT)
