# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which KV-cache dtype a deployment gets, and whether the checkpoint's own declaration must be stripped for it.

The knowledge is the table in kv_policy_data.py; this module is the order in which it is asked:

1. an explicit choice of the user, checked against what is known to fail;
2. a DSA (sparse MLA) model stays as it is;
3. dense MLA on compute capability 12.x: what the installed kernel can hold;
4. everything else stays as shipped.

A 16-bit decision is carried twice, by a stripped view and by an explicit ``--kv-cache-dtype``, so that neither alone
decides. A quantized cache is explicit too: ``auto`` would follow whatever the metadata says tomorrow (vllm #29980).
``auto`` remains where nothing is declared and some models of that kind choose by themselves, and where a release cannot
take an explicit 16-bit type.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Optional

from ..errors import VllmHostError
from . import kv_policy_data as data
from .compute_capability import parse_capability
from .engine_args import EngineArgs
from .kv_dtypes import check_kv_cache_dtype, is_quantized
from .kv_failures import (
    Deployment,
    Ground,
    ProbeResult,
    amx_warning,
    dcp_failure,
    known_failure,
    old_gpu_failure,
    row_for,
    sm12x_failure,
    sm12x_ground,
)

POLICIES = ("auto", "keep", "strip")
ATTENTION_KINDS = ("mla", "dsa", "other")
DEVICES = ("cuda", "cpu")

__all__ = ["KvDecision", "ProbeResult", "decide", "wants_probe"]


@dataclass(frozen=True)
class KvDecision:
    """The decision and its grounds.

    Attributes:
        policy: the policy that was asked for.
        checkpoint_state: ``original`` or ``stripped``; what checkpoint_patch makes of the served view.
        kv_cache_dtype: the value of vLLM's ``--kv-cache-dtype``.
        reason: why, in one sentence.
        source: where that is known from.
        warnings: what a user should know although it was decided.
        probe_useful: the release is not in the table: a probe of its kernel would settle the question.
    """

    policy: str
    checkpoint_state: str
    kv_cache_dtype: str
    reason: str
    source: str
    warnings: tuple[str, ...] = ()
    probe_useful: bool = False

    def as_result(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


def decide(
    policy: str,
    *,
    attention: str,
    compute_capability: Optional[str],
    device: str,
    vllm_version: str,
    checkpoint_kv_dtype: Optional[str],
    engine_args: Optional[dict[str, Any]] = None,
    dcp: Optional[int] = None,
    force: bool = False,
    probe_result: Optional[ProbeResult] = None,
    model_dtype: Optional[str] = None,
    amx: bool = False,
) -> KvDecision:
    """Decide the KV-cache dtype of one deployment.

    Args:
        policy: ``auto``, ``keep`` (as shipped) or ``strip`` (16 bit).
        attention: ``mla`` (dense), ``dsa`` (sparse MLA with an indexer: DeepSeek-V3.2, GLM-5) or ``other``.
        compute_capability: of the GPUs, such as ``"12.0"``; None on a CPU or when it is not known.
        device: ``cuda`` or ``cpu``.
        vllm_version: the release that will serve, such as ``"0.32.0"``; what is no version counts as the newest known.
        checkpoint_kv_dtype: what the metadata makes of ``auto``, as vLLM's name (``fp8_e4m3``, ``nvfp4``); None or ``auto``
            when nothing is declared (``kv_dtypes.dtype_from_checkpoint``).
        engine_args: the user's own engine arguments by vLLM's names; ``kv_cache_dtype``, ``dtype`` and
            ``decode_context_parallel_size`` are looked at.
        dcp: decode context parallel size; default from ``engine_args``, else 1.
        force: let an explicit choice through that is known to fail, with a warning.
        probe_result: of the installed kernel, if it was asked.
        model_dtype: the model's own dtype (``bfloat16``, ``float16``, ...); None when it is not known.
        amx: the processor has AMX, of which vLLM on a CPU makes use.

    Raises:
        VllmHostError: ``kv_policy_invalid`` for a value outside the above; ``bad_engine_args`` for an unknown dtype;
            ``kv_choice_known_to_fail`` when an explicit choice is known to fail and ``force`` is false.
    """
    args = EngineArgs(engine_args)
    _require_one_of("policy", policy, POLICIES)
    _require_one_of("attention", attention, ATTENTION_KINDS)
    _require_one_of("device", device, DEVICES)
    chosen = check_kv_cache_dtype(args.get("kv_cache_dtype") or "auto")
    declared = check_kv_cache_dtype(checkpoint_kv_dtype or "auto")
    deployment = Deployment(
        attention=attention,
        capability=_capability(compute_capability),
        cuda=device == "cuda",
        vllm=vllm_version,
        declared=None if declared == "auto" else declared,
        dcp=dcp or args.integer("decode_context_parallel_size") or 1,
        model_dtype=_model_dtype(args.get("dtype"), model_dtype),
        probe=probe_result,
        amx=amx,
    )
    if chosen != "auto":
        return _obey_dtype(policy, chosen, deployment, force)
    if policy == "keep":
        return _obey_keep(deployment, force)
    if policy == "strip":
        return _obey_strip(deployment, force)
    return _decide_auto(deployment)


def wants_probe(
    *,
    attention: str,
    compute_capability: Optional[str],
    device: str,
    vllm_version: str,
    checkpoint_kv_dtype: Optional[str],
    engine_args: Optional[dict[str, Any]] = None,
    always: bool = False,
) -> bool:
    """Whether ``decide`` would look at a probe of the installed kernel.

    Args:
        always: on request, also for a release that the table knows.

    Others: as for ``decide``.
    """
    args = EngineArgs(engine_args)
    chosen = check_kv_cache_dtype(args.get("kv_cache_dtype") or "auto")
    dtype = check_kv_cache_dtype(checkpoint_kv_dtype or "auto") if chosen == "auto" else chosen
    capability = _capability(compute_capability)
    if attention != "mla" or device != "cuda" or capability is None or capability[0] != 12 or not is_quantized(dtype):
        return False
    row, row_note = row_for(vllm_version)
    return row.verdict != "not_implemented" and dtype in data.MLA_DTYPES_ON_SM12X and (always or bool(row_note))


def _obey_dtype(policy: str, chosen: str, deployment: Deployment, force: bool) -> KvDecision:
    """The user named the dtype: his word, unless it is known to fail."""
    failure = known_failure(chosen, deployment)
    warnings = _refuse_or_warn(f"vllm_engine_args.kv_cache_dtype {chosen}", failure, force)
    wants_strip = policy == "strip" or (
        policy == "auto" and not is_quantized(chosen) and deployment.declared is not None
    )
    return KvDecision(
        policy=policy,
        checkpoint_state="stripped" if wants_strip and not _must_stay_original(deployment) else "original",
        kv_cache_dtype=chosen,
        reason=f"kv_cache_dtype {chosen} was chosen explicitly",
        source="engine arguments",
        warnings=warnings + amx_warning(chosen, deployment),
    )


def _obey_keep(deployment: Deployment, force: bool) -> KvDecision:
    dtype = deployment.as_shipped
    failure = known_failure(dtype, deployment)
    return KvDecision(
        policy="keep",
        checkpoint_state="original",
        kv_cache_dtype=dtype,
        reason=f"the policy keeps the checkpoint as shipped ({_declaration(deployment)})",
        source="policy",
        warnings=_refuse_or_warn(f"plan_kv_cache_policy: keep (kv_cache_dtype {dtype})", failure, force)
        + amx_warning(dtype, deployment),
    )


def _obey_strip(deployment: Deployment, force: bool) -> KvDecision:
    if _must_stay_original(deployment):
        never = Ground(
            "a DSA model on compute capability 12.x serves only from its own quantized cache",
            data.DSA_DTYPES_ON_SM12X_SOURCE,
        )
        warnings = _refuse_or_warn("plan_kv_cache_policy: strip", never, force)
        warnings += ("the checkpoint was left as it is: it is never stripped on this GPU",)
        return KvDecision("strip", "original", "bfloat16", "the policy asks for 16 bit, by force", "policy", warnings)
    return KvDecision(
        policy="strip",
        checkpoint_state="stripped",
        kv_cache_dtype=deployment.sixteen_bit,
        reason=f"the policy asks for a 16-bit cache ({_declaration(deployment)})",
        source="policy",
        warnings=_sixteen_bit_warnings(deployment),
    )


def _decide_auto(deployment: Deployment) -> KvDecision:
    if deployment.attention == "dsa":
        return _as_shipped(
            deployment, Ground("a DSA model is served as shipped", data.DSA_DTYPES_ON_SM12X_SOURCE), warnings=()
        )
    if deployment.attention != "mla" or deployment.declared is None:
        text = "nothing is declared" if deployment.declared is None else "this kind of attention works as shipped"
        return _as_shipped(deployment, Ground(text, "kv-policy: any other architecture or GPU"), warnings=())
    failure = dcp_failure(deployment)
    if failure is None and deployment.on_sm12x:
        failure = sm12x_failure(deployment.declared, deployment)
    if failure:
        return KvDecision(
            policy="auto",
            checkpoint_state="stripped",
            kv_cache_dtype=deployment.sixteen_bit,
            reason=f"16 bit instead of {deployment.declared}: {failure.text}",
            source=failure.source,
            warnings=_sixteen_bit_warnings(deployment),
            probe_useful=failure.probe_useful,
        )
    if deployment.on_sm12x:
        return _as_shipped(deployment, sm12x_ground(deployment), warnings=())
    old_gpu = old_gpu_failure(deployment.declared, deployment)
    return _as_shipped(
        deployment,
        Ground("dense MLA works as shipped on this device", "kv-policy: any other architecture or GPU"),
        warnings=(f"{old_gpu.text} ({old_gpu.source})",) if old_gpu else amx_warning(deployment.declared, deployment),
    )


def _as_shipped(deployment: Deployment, ground: Ground, warnings: tuple[str, ...]) -> KvDecision:
    return KvDecision(
        policy="auto",
        checkpoint_state="original",
        kv_cache_dtype=deployment.as_shipped,
        reason=f"as shipped ({_declaration(deployment)}): {ground.text}",
        source=ground.source,
        warnings=warnings,
        probe_useful=ground.probe_useful,
    )


def _must_stay_original(deployment: Deployment) -> bool:
    return deployment.attention == "dsa" and deployment.on_sm12x


def _refuse_or_warn(choice: str, failure: Optional[Ground], force: bool) -> tuple[str, ...]:
    if failure is None:
        return ()
    if force:
        return (f"{choice} is known to fail and was forced: {failure.text} ({failure.source})",)
    raise VllmHostError(
        "kv_choice_known_to_fail",
        f"{choice} is known to fail: {failure.text}. Source: {failure.source}. Leave the choice to the plan"
        " (plan_kv_cache_policy: auto, no kv_cache_dtype in vllm_engine_args), or insist with plan_force: true.",
        choice=choice,
        reason=failure.text,
        source=failure.source,
        probe_useful=failure.probe_useful,
    )


def _sixteen_bit_warnings(deployment: Deployment) -> tuple[str, ...]:
    problem = deployment.explicit_16_bit_problem
    return (
        (f"{problem}: kv_cache_dtype stays auto, and the stripped view alone carries the decision",) if problem else ()
    )


def _declaration(deployment: Deployment) -> str:
    return (
        f"the checkpoint declares {deployment.declared}"
        if deployment.declared
        else "the checkpoint declares no cache type"
    )


def _model_dtype(chosen: Any, model_dtype: Optional[str]) -> Optional[str]:
    """The dtype that vLLM computes in: its own ``--dtype`` wins over the checkpoint's; torch's prefix and old names go."""
    name = str(chosen) if chosen and chosen != "auto" else model_dtype
    if not name:
        return None
    name = name.rsplit(".", maxsplit=1)[-1].lower()
    return {"half": "float16", "float": "float32"}.get(name, name)


def _capability(text: Optional[str]) -> Optional[tuple[int, int]]:
    if not text:
        return None
    found = parse_capability(text)
    if found is None:
        raise VllmHostError(
            "kv_policy_invalid",
            f"compute_capability must look like 12.0, not {text!r}.",
            key="compute_capability",
            found=str(text),
        )
    return found


def _require_one_of(key: str, found: Any, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise VllmHostError(
            "kv_policy_invalid",
            f"{'plan_kv_cache_policy' if key == 'policy' else key} must be one of {', '.join(allowed)}, not {str(found)[:100]!r}.",
            key=key,
            found=str(found),
            allowed=list(allowed),
        )
