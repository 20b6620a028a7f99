# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of one GPU before vLLM is started: weights, overhead, KV cache, and what fits into it.

``available = ceil(utilization * CUDA total) - weights - overhead`` on a GPU, VLLM_CPU_KVCACHE_SPACE on a CPU; what vLLM measured at an
earlier start, or what the caller gives, takes the place of the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..errors import VllmHostError
from .checkpoint_metadata import CheckpointMetadata
from .config_tensors import tensors_from_config
from .engine import Gpu
from .engine_args import EngineArgs, means_longest, with_underscores
from .kv_cache import KvCapacity, KvPlan, plan_kv_cache
from .layers import pipeline_split
from .measured import Measurement
from .overhead import Overhead, OverheadSettings, Part, cuda_total_bytes, overhead_per_gpu
from .weights import Parallelism, WeightsForecast, weights_from_size, weights_per_gpu

GIB = 2**30


@dataclass(frozen=True)
class BudgetRequest:
    """Everything a budget depends on.

    Attributes:
        checkpoint: the model's metadata.
        engine_args: vLLM's options by their snake_case names.
        vllm_version: the release that will serve.
        gpu: the device; ``total_bytes`` is NVML's total of one GPU, 0 if it is not known.
        gpu_reserved_bytes: NVML v2's ``reserved`` of one GPU, None if it is not known.
        env: VLLM_* variables.
        available_kv_cache_bytes: replaces the forecast; one number, or one a pipeline rank.
        weights_bytes_per_gpu: replaces the sum over tensors; one number, or one a pipeline rank.
        overhead_bytes_per_gpu: replaces the forecast of the overhead.
        measurement: of an earlier start of the same deployment; replaces the forecast.
        packages: optional Python packages of the release that change vLLM's choices (see ``plan_kv_cache``).
    """

    checkpoint: CheckpointMetadata
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    vllm_version: str = "0.32.0"
    gpu: Gpu = field(default_factory=Gpu)
    gpu_reserved_bytes: Optional[int] = None
    env: Mapping[str, str] = field(default_factory=dict)
    available_kv_cache_bytes: Sequence[int] = ()
    weights_bytes_per_gpu: Sequence[int] = ()
    overhead_bytes_per_gpu: Optional[int] = None
    measurement: Optional[Measurement] = None
    packages: Sequence[str] = ()

    def with_engine_args(self, **changes: Any) -> BudgetRequest:
        """The same deployment with other engine arguments."""
        return replace(self, engine_args={**with_underscores(self.engine_args), **changes})


@dataclass(frozen=True)
class Available:
    """Bytes for the KV cache.

    Attributes:
        per_rank: on a GPU of each pipeline rank; may be negative.
        low, high: range of the smallest rank.
        source: ``given``, ``measured`` or ``forecast``.
        basis: in words.
    """

    per_rank: tuple[int, ...]
    low: int
    high: int
    source: str
    basis: str

    @property
    def smallest(self) -> int:
        return min(self.per_rank)

    @property
    def usable(self) -> tuple[int, ...]:
        """Never negative, as the arithmetic of blocks wants it."""
        return tuple(max(0, size) for size in self.per_rank)


@dataclass(frozen=True)
class Budget:
    """The memory of one deployment.

    Attributes:
        request: what it was computed from.
        plan: the KV arithmetic.
        weights: None when nothing is known of them.
        overhead: None on a CPU.
        available: bytes for the KV cache.
        cuda_total_bytes: what vLLM multiplies by the utilization; None on a CPU or without a GPU.
        capacity: at the requested length (the model's own without a request).
        max_model_len_fit: the largest length that the memory allows (see ``_fit``).
    """

    request: BudgetRequest
    plan: KvPlan
    weights: Optional[WeightsForecast]
    overhead: Optional[Overhead]
    available: Available
    cuda_total_bytes: Optional[int]
    capacity: KvCapacity
    max_model_len_fit: int

    @property
    def fits(self) -> bool:
        """Would vLLM start with exactly these options?"""
        longest = means_longest(EngineArgs(self.request.engine_args).get("max_model_len"))
        return self.max_model_len_fit > 0 if longest else self.capacity.fits

    def capacity_at(self, max_model_len: int) -> KvCapacity:
        return self.plan.capacity(self.available.usable, max_model_len)


def compute_budget(request: BudgetRequest) -> Budget:
    """Work out the memory of a deployment.

    Raises:
        VllmHostError: ``bad_config``, ``bad_engine_args``, ``bad_value``, ``unsupported`` of the arithmetic;
            ``gpu_memory_unknown`` when nothing says how much memory there is; ``weights_unknown`` when nothing says how
            large the weights are.
    """
    _check_numbers(request)
    plan = plan_kv_cache(
        request.checkpoint.config,
        request.checkpoint.hf_quant_config,
        request.engine_args,
        request.vllm_version,
        request.gpu,
        request.env,
        request.packages,
    )
    request = _with_tensors(request, plan)
    layers = pipeline_split(
        plan.model.num_hidden_layers, plan.engine.pipeline_parallel_size, plan.engine.layer_partition
    )
    weights = _weights(request, plan, layers)
    overhead = _overhead(request, plan) if request.gpu.device == "cuda" else None
    total = None
    if request.gpu.device == "cuda" and request.gpu.total_bytes:
        total = cuda_total_bytes(request.gpu.total_bytes, request.gpu_reserved_bytes, request.gpu.compute_capability)
    available = _available(request, plan, weights, overhead, total, len(layers))
    return Budget(
        request=request,
        plan=plan,
        weights=weights,
        overhead=overhead,
        available=available,
        cuda_total_bytes=total,
        capacity=plan.capacity(available.usable),
        max_model_len_fit=_fit(plan, available),
    )


def _fit(plan: KvPlan, available: Available) -> int:
    """The largest length that memory allows; where memory is no limit, the length asked for, or the model's own."""
    own = plan.engine.max_model_len_config
    fit = plan.max_model_len_fit(available.usable, own)
    return min(fit, plan.engine.max_model_len) if fit >= own else fit


def _with_tensors(request: BudgetRequest, plan: KvPlan) -> BudgetRequest:
    """Where only a configuration is at hand, the list of tensors that it implies."""
    checkpoint = request.checkpoint
    if checkpoint.tensors is not None or checkpoint.weight_bytes or request.weights_bytes_per_gpu:
        return request
    listed = tensors_from_config(plan.model)
    return replace(request, checkpoint=replace(checkpoint, tensors=listed, tensors_source="config"))


def _check_numbers(request: BudgetRequest) -> None:
    numbers = {
        "gpu_total_bytes": [request.gpu.total_bytes],
        "gpu_reserved_bytes": [request.gpu_reserved_bytes or 0],
        "weights_bytes_per_gpu": list(request.weights_bytes_per_gpu),
        "overhead_bytes_per_gpu": [request.overhead_bytes_per_gpu or 0],
        "available_kv_cache_bytes": list(request.available_kv_cache_bytes),
    }
    for key, values in numbers.items():
        if any(value < 0 for value in values):
            raise VllmHostError("bad_value", f"{key} must not be negative, but is {min(values)}.", key=key)
    reserved, total = request.gpu_reserved_bytes or 0, request.gpu.total_bytes
    if total and reserved >= total:
        raise VllmHostError(
            "bad_value",
            f"gpu_reserved_bytes {reserved} must be less than gpu_total_bytes {total}.",
            key="gpu_reserved_bytes",
        )


def _weights(request: BudgetRequest, plan: KvPlan, layers: tuple[int, ...]) -> Optional[WeightsForecast]:
    given = request.weights_bytes_per_gpu
    if given:
        per_rank = tuple(given) if len(given) == len(layers) else tuple(given[:1]) * len(layers)
        if len(given) not in (1, len(layers)):
            raise VllmHostError(
                "bad_value",
                f"weights_bytes_per_gpu has {len(given)} numbers for {len(layers)} pipeline ranks.",
                key="weights_bytes_per_gpu",
            )
        return WeightsForecast(per_rank, max(per_rank), max(per_rank), {"weights": max(per_rank)}, "given")
    engine = plan.engine
    parallel = Parallelism(
        engine.tensor_parallel_size, engine.data_parallel_size, engine.enable_expert_parallel, layers
    )
    checkpoint = request.checkpoint
    if checkpoint.tensors is not None:
        source = checkpoint.tensors_source
        return weights_per_gpu(checkpoint.tensors, plan.model, parallel, request.engine_args, source)
    if checkpoint.weight_bytes:
        return weights_from_size(checkpoint.weight_bytes, parallel)
    return None


def _overhead(request: BudgetRequest, plan: KvPlan) -> Overhead:
    given = request.overhead_bytes_per_gpu
    if given is not None:
        return Overhead((Part("given", given, given, given, "overhead_bytes_per_gpu"),))
    engine = plan.engine
    settings = OverheadSettings(
        release=request.vllm_version,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_model_len=engine.max_model_len,
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        decode_context_parallel_size=engine.decode_context_parallel_size,
        data_parallel_size=engine.data_parallel_size,
        tokens_per_sequence=1 + engine.num_speculative_tokens,
        engine_args=request.engine_args,
        env=request.env,
        gpu_name=request.gpu.name,
        compute_capability=request.gpu.compute_capability,
        weights_are_measured=bool(request.weights_bytes_per_gpu),
    )
    return overhead_per_gpu(plan.model, settings)


def _available(
    request: BudgetRequest,
    plan: KvPlan,
    weights: Optional[WeightsForecast],
    overhead: Optional[Overhead],
    total: Optional[int],
    ranks: int,
) -> Available:
    given = tuple(request.available_kv_cache_bytes)
    if given:
        return _exactly(given if len(given) > 1 else given * ranks, "given", "available_kv_cache_bytes")
    asked = EngineArgs(request.engine_args).integer("kv_cache_memory_bytes", minimum=0)
    if asked:
        return _exactly((asked,) * ranks, "given", "vllm_engine_args.kv_cache_memory_bytes")
    if overhead is None:
        return _exactly((_cpu_space(request.env),) * ranks, "given", "vllm_env.VLLM_CPU_KVCACHE_SPACE")
    measurement = request.measurement
    if measurement is not None and measurement.available_kv_cache_bytes is not None:
        basis = f"what vLLM {request.vllm_version} measured here at {measurement.measured_at or 'an earlier start'}"
        return _exactly(
            (_measured_bytes(measurement.available_kv_cache_bytes, measurement, plan),) * ranks, "measured", basis
        )
    if total is None:
        raise VllmHostError(
            "gpu_memory_unknown",
            "Nothing says how much memory a GPU has: give gpu_total_bytes (nvidia-smi's total), or available_kv_cache_bytes.",
            key="gpu_total_bytes",
        )
    if weights is None:
        raise VllmHostError(
            "weights_unknown",
            f"The weights of {plan.model.architecture or 'this architecture'} cannot be told from config.json alone: give path or"
            " repo_id, so that the headers can be read, or weights_bytes_per_gpu.",
            key="weights_bytes_per_gpu",
            architecture=plan.model.architecture,
        )
    budget = math.ceil(plan.engine.gpu_memory_utilization * total)
    per_rank = tuple(budget - size - overhead.expected for size in weights.per_rank)
    return Available(
        per_rank=per_rank,
        low=budget - weights.high - overhead.high,
        high=budget - weights.low - overhead.low,
        source="forecast",
        basis=f"{plan.engine.gpu_memory_utilization:g} of {total / GIB:.2f} GiB less weights and overhead",
    )


def _measured_bytes(printed: int, measurement: Measurement, plan: KvPlan) -> int:
    """Memory of an earlier start. vLLM prints it to 0.01 GiB but its tokens exactly: the blocks that give those tokens decide."""
    length, tokens = measurement.max_model_len, measurement.kv_cache_tokens
    if len(plan.bytes_per_block) != 1 or not length or not tokens:
        return printed
    block, half = plan.bytes_per_block[0], GIB // 200
    for blocks in range((printed - half) // block, (printed + half) // block + 2):
        if plan.capacity(blocks * block, length).kv_cache_tokens == tokens:
            return blocks * block
    return printed


def _exactly(per_rank: tuple[int, ...], source: str, basis: str) -> Available:
    return Available(per_rank, min(per_rank), min(per_rank), source, basis)


def _cpu_space(env: Mapping[str, str]) -> int:
    """VLLM_CPU_KVCACHE_SPACE is in GiB, for each rank."""
    text = str(env.get("VLLM_CPU_KVCACHE_SPACE", "")).strip()
    try:
        space = int(text)
    except ValueError:
        space = 0
    if space <= 0:
        raise VllmHostError(
            "gpu_memory_unknown",
            f"On a CPU vLLM takes its KV cache from vllm_env.VLLM_CPU_KVCACHE_SPACE, whole GiB such as '4'; it is {text[:100]!r}."
            if text
            else "On a CPU vLLM takes its KV cache from vllm_env.VLLM_CPU_KVCACHE_SPACE: set it to whole GiB, such as '4'.",
            key="VLLM_CPU_KVCACHE_SPACE",
            found=text,
        )
    return space * GIB
