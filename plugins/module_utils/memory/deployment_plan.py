# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision of the role plan: look at everything once, decide everything once.

From a model's metadata, the GPUs, the recipe, what was measured earlier and what the user insists on, to the options that the server is
given. Whoever asks for something explicitly gets it, or is told why it cannot work, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any, Callable, Optional

from ..checkpoint.kv_declarations import without_declarations
from ..errors import VllmHostError
from ..recipes import require_release
from .budget import GIB, Budget, BudgetRequest, compute_budget
from .budget_result import attention_kind, budget_result
from .checkpoint_metadata import CheckpointMetadata
from .engine import Gpu
from .engine_args import EngineArgs, means_longest, with_underscores
from .engine_options import judge_options
from .gpu_inventory import InventoryGpu
from .kv_dtypes import dtype_from_checkpoint
from .kv_policy import KvDecision, ProbeResult, decide, wants_probe
from .measured import MEASURED_FOLDER, Measurement, find_measurement, measurement_key
from .model_config import ModelConfig, config_int, parse_model_config
from .recommendation import Remedy, advise_sequences, recommended_length, remedies

#: Seconds that vLLM needs beside reading the weights, and bytes of weights that it reads in a second. Source: the reference
#: deployment, about 540 GB in about 9 minutes.
START_SECONDS = 60
LOAD_BYTES_PER_SECOND = 10**9
#: Left free beside a download, for the view, logs and caches.
DISK_MARGIN_BYTES = 5 * GIB


@dataclass(frozen=True)
class Disk:
    """Room for the checkpoint.

    Attributes:
        path: where the checkpoints are kept.
        free_bytes: None when it could not be asked (a plan from afar).
        present_bytes: of this checkpoint, already there.
    """

    path: str = ""
    free_bytes: Optional[int] = None
    present_bytes: int = 0


#: Compute capability and the model's latent and rope width to what the installed decode kernel says (kv_kernel_probe).
KvProbe = Callable[["tuple[int, int]", int, int], ProbeResult]


@dataclass(frozen=True)
class PlanRequest:
    """Everything that a plan depends on.

    Attributes:
        model: as the user names it, a repository or a path.
        checkpoint: its metadata.
        gpus: those that the instance uses; empty on a CPU.
        device: ``cuda`` or ``cpu``.
        vllm_version: the release that will serve.
        engine_args: the user's, which win over everything derived.
        env: the user's environment.
        recipe: ``engine_args`` and ``env`` of the model's recipe; they win over what is derived, not over the user.
        kv_cache_policy: ``auto``, ``keep``, ``strip``; force: let through what is known to fail.
        kv_probe: asks the installed release about its decode kernel; None while there is none. It is asked about releases that the table of
            kv_policy_data does not know; kv_probe_always: about every one.
        disk: room for the checkpoint.
        packages: what changes vLLM's choice of attention (see ``plan_kv_cache``); ``amx`` for a processor that has it.
        host_memory_bytes: of the host that will serve on its CPU; None when it is not known.
        measured_folder: records of earlier starts.
    """

    model: str
    checkpoint: CheckpointMetadata
    gpus: Sequence[InventoryGpu] = ()
    device: str = "cuda"
    vllm_version: str = "0.32.0"
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    kv_cache_policy: str = "auto"
    force: bool = False
    kv_probe: Optional[KvProbe] = None
    kv_probe_always: bool = False
    disk: Disk = field(default_factory=Disk)
    packages: Sequence[str] = ()
    host_memory_bytes: Optional[int] = None
    measured_folder: str = MEASURED_FOLDER


def make_plan(request: PlanRequest) -> dict[str, Any]:
    """Decide.

    Returns:
        The fact ``vllm_plan`` (docs/architecture.md), with ``warnings`` besides.

    Raises:
        VllmHostError: ``no_gpus``, ``too_few_gpus``, ``does_not_fit`` (with remedies), ``disk_too_small``, and what the budget and the KV policy
            raise; ``engine_argument_unknown``, ``host_memory_too_small``.
    """
    if request.device == "cuda" and not request.gpus:
        raise VllmHostError(
            "no_gpus",
            "There is no GPU to plan for. Make the driver of this host work, describe its GPUs (plan_gpus: 8x96GB), or set vllm_device: cpu.",
        )
    require_release(request.recipe, request.vllm_version)
    for part in ("engine_args", "env"):
        if not isinstance(request.recipe.get(part) or {}, Mapping):
            raise VllmHostError("bad_recipe", f"plan_recipe: {part} must be a mapping of keys.", key=part)
    recipes, users = (with_underscores(args or {}) for args in (request.recipe.get("engine_args"), request.engine_args))
    warnings = judge_options(users, "vllm_engine_args", request.force)
    warnings += judge_options(
        recipes, f"engine_args of the recipe {request.recipe.get('name', '')}".rstrip(), request.force
    )
    asked = {**recipes, **users}
    asked = {name: value for name, value in asked.items() if value is not None}  # null takes a recipe's option back
    if asked.get("kv_cache_dtype") == "auto":
        del asked["kv_cache_dtype"]  # not a choice: the policy makes it explicit
    env = {**(request.recipe.get("env") or {}), **(request.env or {})}
    env = {str(name): str(value) for name, value in env.items()}
    model = parse_model_config(
        request.checkpoint.config, request.checkpoint.hf_quant_config, str(asked.get("dtype", "auto"))
    )
    derived: dict[str, Any] = {}
    if request.device == "cuda" and "tensor_parallel_size" not in asked:
        derived["tensor_parallel_size"] = _tensor_parallel_size(model, len(request.gpus), asked)
    _require_gpus(request, {**derived, **asked})
    decision = _kv_decision(request, model, asked)
    derived["kv_cache_dtype"] = decision.kv_cache_dtype
    if decision.checkpoint_state == "stripped":
        # What follows is about the view that will be served.
        request = replace(request, checkpoint=_stripped(request.checkpoint))
    budget = compute_budget(_budget_request(request, {**derived, **asked}, env))
    if request.device == "cuda":
        derived["gpu_memory_utilization"] = budget.plan.engine.gpu_memory_utilization
    derived["max_num_seqs"] = advise_sequences(budget).recommended
    budget, key = _measured_budget(request, {**derived, **asked}, env, decision)
    derived["max_model_len"], length_source = _length(budget)
    if asked.get("max_model_len") is not None and not means_longest(asked["max_model_len"]):
        length_source = "asked"
    if means_longest(asked.get("max_model_len")):
        asked = {**asked, "max_model_len": derived["max_model_len"]}
    final = {**derived, **asked}
    if final["max_model_len"]:
        budget = compute_budget(replace(budget.request, engine_args=final))
    warnings = [*decision.warnings, *warnings]
    _require_fit(budget, model, warnings, any_length=not asked.get("max_model_len"))
    _require_host_memory(request, budget, warnings)
    to_download = max(0, request.checkpoint.bytes_total - request.disk.present_bytes)
    _require_disk(request, to_download)
    return {
        "model": request.model,
        "revision": request.checkpoint.commit,
        "checkpoint_state": decision.checkpoint_state,
        "kv_cache_dtype": final["kv_cache_dtype"],
        "kv_decision": {"policy": decision.policy, "reason": decision.reason, "source": decision.source},
        "max_model_len": budget.plan.engine.max_model_len,
        "max_model_len_source": length_source,
        "max_num_seqs": budget.plan.engine.max_num_seqs,
        "engine_args": final,
        "env": env,
        "budget": budget_result(budget),
        "bytes_total": request.checkpoint.bytes_total,
        "bytes_to_download": to_download,
        "disk_free_bytes": request.disk.free_bytes,
        "load_seconds_expected": _load_seconds(request, budget),
        "gpus": _gpus(request, budget),
        "vllm_version": request.vllm_version,
        "measured_key": key,
        "probe_useful": decision.probe_useful,
        "warnings": warnings,
    }


def _tensor_parallel_size(model: ModelConfig, gpus: int, asked: Mapping[str, Any]) -> int:
    """As many GPUs as divide the model's attention heads, after pipeline and data parallelism took theirs."""
    args = EngineArgs(asked)
    others = (args.integer("pipeline_parallel_size") or 1) * (args.integer("data_parallel_size") or 1)
    most = max(1, gpus // others)
    return next(size for size in range(most, 0, -1) if model.num_attention_heads % size == 0)


def _require_gpus(request: PlanRequest, engine_args: Mapping[str, Any]) -> None:
    """Stop when the options ask for more GPUs than there are, unless other hosts bring theirs."""
    args = EngineArgs(engine_args)
    if (
        request.device != "cuda"
        or (args.integer("nnodes") or 1) > 1
        or args.get("distributed_executor_backend") == "ray"
    ):
        return
    names = ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"]
    if args.get("data_parallel_size_local") is not None:
        names[2] = "data_parallel_size_local"
    sizes = {name: args.integer(name) or 1 for name in names}
    needed = prod(sizes.values())
    if needed > len(request.gpus):
        told = ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
        raise VllmHostError(
            "too_few_gpus",
            f"{told} in vllm_engine_args need {needed} GPUs and there are {len(request.gpus)}: lower them, or leave them out, or name more"
            " GPUs.",
            needed=needed,
            found=len(request.gpus),
            **sizes,
        )


def _kv_decision(request: PlanRequest, model: ModelConfig, asked: Mapping[str, Any]) -> KvDecision:
    sparse = model.is_mla and model.text.get("index_topk")
    declared = dtype_from_checkpoint(model.quantization, model.is_mla)
    capability = request.gpus[0].compute_capability if request.gpus else None
    situation: dict[str, Any] = {
        "attention": "dsa" if sparse else "mla" if model.is_mla else "other",
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "device": request.device,
        "vllm_version": request.vllm_version,
        "checkpoint_kv_dtype": None if declared == "auto" else declared,
        "engine_args": dict(asked),
    }
    probe_result = None
    if request.kv_probe and capability and wants_probe(**situation, always=request.kv_probe_always):
        latent, rope = config_int(model.text, "kv_lora_rank"), config_int(model.text, "qk_rope_head_dim")
        probe_result = request.kv_probe(capability, latent, rope)
    return decide(
        request.kv_cache_policy,
        **situation,
        force=request.force,
        probe_result=probe_result,
        model_dtype=model.dtype,
        amx="amx" in request.packages,
    )


def _stripped(checkpoint: CheckpointMetadata) -> CheckpointMetadata:
    second = checkpoint.hf_quant_config
    return replace(
        checkpoint,
        config=without_declarations("config.json", checkpoint.config),
        hf_quant_config=without_declarations("hf_quant_config.json", second) if second else second,
    )


def _budget_request(request: PlanRequest, engine_args: Mapping[str, Any], env: Mapping[str, str]) -> BudgetRequest:
    # The GPU with least memory decides: every rank gets the same share of the model.
    smallest = min(request.gpus, key=lambda gpu: gpu.total_bytes - (gpu.reserved_bytes or 0), default=None)
    if smallest is None:
        device = Gpu(device=request.device)
    else:
        capability = {"compute_capability": smallest.compute_capability} if smallest.compute_capability else {}
        device = Gpu(total_bytes=smallest.total_bytes, device=request.device, name=smallest.name, **capability)
    return BudgetRequest(
        checkpoint=request.checkpoint,
        engine_args=engine_args,
        vllm_version=request.vllm_version,
        gpu=device,
        gpu_reserved_bytes=smallest.reserved_bytes if smallest else None,
        env=env,
        packages=request.packages,
    )


def _measured_budget(
    request: PlanRequest, engine_args: Mapping[str, Any], env: Mapping[str, str], decision: KvDecision
) -> tuple[Budget, dict[str, Any]]:
    """The budget with these options, from an earlier start of exactly this deployment if there was one."""
    key = measurement_key(
        model=request.model,
        commit=request.checkpoint.commit,
        release=request.vllm_version,
        gpu_name=request.gpus[0].name if request.gpus else "cpu",
        gpu_count=len(request.gpus),
        engine_args=engine_args,
        kv_cache_dtype=str(engine_args["kv_cache_dtype"]),
        checkpoint_state=decision.checkpoint_state,
    )
    measurement: Optional[Measurement] = find_measurement(key, request.measured_folder)
    wanted = replace(_budget_request(request, engine_args, env), measurement=measurement)
    return compute_budget(wanted), key


def _length(budget: Budget) -> tuple[int, str]:
    """The length to serve when nobody insists on one, and why: ``served`` before, or ``recommended``.

    A length that was served before stays as long as it fits and is no worse than half of what would be recommended now: a measurement
    that merely corrects the forecast must not restart a healthy server.
    """
    recommended = recommended_length(budget)
    measurement = budget.request.measurement
    if measurement is not None and measurement.max_model_len:
        served = measurement.max_model_len
        if budget.available.source == "measured" and recommended <= 2 * served and served <= budget.max_model_len_fit:
            return served, "served"
    return recommended, "recommended"


def _require_fit(budget: Budget, model: ModelConfig, warnings: list[str], any_length: bool) -> None:
    """Stop when it cannot fit; warn when only the better end of a forecast says that it does.

    Args:
        any_length: nobody insists on a length, so that a remedy is enough that makes a usual one fit.
    """
    if budget.fits and budget.plan.engine.max_model_len > 0 and budget.max_model_len_fit > 0:
        return
    optimistic = tuple(max(0, budget.available.high) for _rank in budget.available.per_rank)
    length = budget.plan.engine.max_model_len
    if budget.available.source == "forecast" and budget.plan.fits(optimistic, length):
        warnings.append(
            f"{length:,} tokens fit only if the overhead stays near the low end of its range; the start will tell."
        )
        return
    ways = remedies(budget, attention_kind(budget), model.dtype, any_length)
    raise VllmHostError("does_not_fit", _no_fit_message(budget, ways), **_no_fit_details(budget, ways))


def _no_fit_message(budget: Budget, ways: Sequence[Remedy]) -> str:
    length, fit = budget.plan.engine.max_model_len, budget.max_model_len_fit
    left = budget.available.smallest / GIB
    if fit > 0:
        first = f"{length:,} tokens need {budget.capacity.needed_bytes / GIB:.2f} GiB of KV cache a GPU, {left:.2f} GiB are left"
        first += f" ({budget.available.source}): at most {fit:,} tokens fit."
    else:
        weights = max(budget.weights.per_rank) / GIB if budget.weights else 0.0
        room = f"{left:.2f} GiB are left" if left > 0 else f"{-left:.2f} GiB are missing"
        first = f"The model does not fit: weights take {weights:.2f} GiB of a GPU, {room} for the KV cache."
    enough = [way for way in ways if way.enough] + [way for way in ways if not way.enough and way.max_model_len_fit]
    if not enough:
        return f"{first} No option of one host makes it fit: use more or larger GPUs, or a smaller or quantized checkpoint."
    steps = [f"{way.text}{'' if way.enough or way.action == 'context' else ' (not enough alone)'}" for way in ways]
    return (
        f"{first} Remedies in vllm_engine_args, cheapest first: "
        + "; ".join(f"({n}) {step}" for n, step in enumerate(steps, 1))
        + "."
    )


def _no_fit_details(budget: Budget, ways: Sequence[Remedy]) -> dict[str, Any]:
    return {
        "max_model_len": budget.plan.engine.max_model_len,
        "max_model_len_fit": budget.max_model_len_fit,
        "available_kv_cache_bytes": budget.available.smallest,
        "needed_bytes": budget.capacity.needed_bytes,
        "source": budget.available.source,
        "remedies": [asdict(way) for way in ways],
    }


def _require_disk(request: PlanRequest, to_download: int) -> None:
    free = request.disk.free_bytes
    if free is None or to_download == 0 or to_download + DISK_MARGIN_BYTES <= free:
        return
    raise VllmHostError(
        "disk_too_small",
        f"{request.disk.path} has {free / GIB:.1f} GiB free; {request.model} needs {to_download / GIB:.1f} GiB more and"
        f" {DISK_MARGIN_BYTES / GIB:.0f} GiB beside it. Free some space, or keep the"
        " checkpoints on a larger disk (plan_store and checkpoint_fetch_store).",
        path=request.disk.path,
        free_bytes=free,
        needed_bytes=to_download + DISK_MARGIN_BYTES,
    )


def _require_host_memory(request: PlanRequest, budget: Budget, warnings: list[str]) -> None:
    """Stop when weights and KV cache are more than the memory of a host that serves on its CPU."""
    memory = request.host_memory_bytes
    if request.device != "cpu" or memory is None:
        return
    engine = budget.plan.engine
    copies = engine.tensor_parallel_size * engine.data_parallel_size
    weights = sum(budget.weights.per_rank) * copies if budget.weights else 0
    cache = sum(budget.available.per_rank) * copies
    if weights + cache <= memory:
        return
    most = max(0, memory - weights) // (copies * len(budget.available.per_rank)) // GIB
    asked = f"{budget.available.basis} asks for {cache / GIB:.1f} GiB of KV cache and the weights take {weights / GIB:.1f} GiB"
    asked += f", but the host has {memory / GIB:.1f} GiB of memory"
    if request.force:
        warnings.append(f"{asked}; it was forced")
        return
    remedy = f"Lower it to {most} or less" if most else "Use a host with more memory or a smaller model"
    raise VllmHostError(
        "host_memory_too_small",
        f"{asked}. {remedy}, or insist with plan_force: true.",
        host_memory_bytes=memory,
        weights_bytes=weights,
        kv_cache_bytes=cache,
        most_gib=most,
    )


def _load_seconds(request: PlanRequest, budget: Budget) -> int:
    measurement = budget.request.measurement
    if measurement is not None and measurement.load_seconds:
        return int(measurement.load_seconds) + START_SECONDS
    size = request.checkpoint.weight_bytes or request.checkpoint.bytes_total
    return START_SECONDS + size // LOAD_BYTES_PER_SECOND


def _gpus(request: PlanRequest, budget: Budget) -> dict[str, Any]:
    first = request.gpus[0] if request.gpus else None
    engine = budget.plan.engine
    return {
        "count": len(request.gpus),
        "used": engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size,
        "name": first.name if first else request.device,
        "total_bytes": first.total_bytes if first else 0,
    }
