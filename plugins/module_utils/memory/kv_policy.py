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
from .kv_dtypes import check_kv_cache_dtype, is_quantized
from .kv_policy_data import MlaFp8Row
from .releases import parse_version

POLICIES = ("auto", "keep", "strip")
ATTENTION_KINDS = ("mla", "dsa", "other")
DEVICES = ("cuda", "cpu")
SIXTEEN_BIT = ("float16", "bfloat16")


@dataclass(frozen=True)
class ProbeResult:
    """What compiling the installed kernel said (see kv_kernel_probe).

    Attributes:
        verdict: ``fits``, ``does_not_fit`` or ``cannot_tell``.
        shared_memory_bytes: what the kernel asks for with an FP8 cache, None if it is not known.
        limit_bytes: what the device offers to a block, None if it is not known.
        detail: why, in words.
    """

    verdict: str
    shared_memory_bytes: Optional[int] = None
    limit_bytes: Optional[int] = None
    detail: str = ""


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
        probe_useful: a probe of the installed kernel could still change this decision.
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


@dataclass(frozen=True)
class _Ground:
    """A statement, where it is known from, and whether a probe could overturn it."""

    text: str
    source: str
    probe_useful: bool = False


@dataclass(frozen=True)
class _Deployment:
    """The facts of one deployment, checked."""

    attention: str
    capability: Optional[tuple[int, int]]
    cuda: bool
    vllm: str
    declared: Optional[str]
    dcp: int
    model_dtype: Optional[str]
    probe: Optional[ProbeResult]

    @property
    def on_sm12x(self) -> bool:
        return self.cuda and self.capability is not None and self.capability[0] == 12

    def older_than(self, release: str) -> bool:
        version = _version_or_none(self.vllm)
        return version is not None and version < parse_version(release)

    @property
    def sixteen_bit(self) -> str:
        """The 16-bit value that this vLLM takes; ``auto`` where only a silent checkpoint can say it."""
        explicit_works = not (self.cuda and self.older_than(data.EXPLICIT_16_BIT_FROM))
        return self.model_dtype if self.model_dtype in SIXTEEN_BIT and explicit_works else "auto"

    @property
    def as_shipped(self) -> str:
        """The dtype that the checkpoint means, said aloud."""
        if self.declared:
            return self.declared
        return self.sixteen_bit if self.attention == "mla" else "auto"


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

    Raises:
        VllmHostError: ``kv_policy_invalid`` for a value outside the above; ``bad_engine_args`` for an unknown dtype;
            ``kv_choice_known_to_fail`` when an explicit choice is known to fail and ``force`` is false.
    """
    args = {str(name).replace("-", "_"): value for name, value in (engine_args or {}).items()}
    _require_one_of("policy", policy, POLICIES)
    _require_one_of("attention", attention, ATTENTION_KINDS)
    _require_one_of("device", device, DEVICES)
    chosen = check_kv_cache_dtype(args.get("kv_cache_dtype") or "auto")
    declared = check_kv_cache_dtype(checkpoint_kv_dtype or "auto")
    deployment = _Deployment(
        attention=attention,
        capability=_capability(compute_capability),
        cuda=device == "cuda",
        vllm=vllm_version,
        declared=None if declared == "auto" else declared,
        dcp=int(dcp or args.get("decode_context_parallel_size") or 1),
        model_dtype=_model_dtype(args.get("dtype"), model_dtype),
        probe=probe_result,
    )
    if chosen != "auto":
        return _obey_dtype(policy, chosen, deployment, force)
    if policy == "keep":
        return _obey_keep(deployment, force)
    if policy == "strip":
        return _obey_strip(deployment, force)
    return _decide_auto(deployment)


def _obey_dtype(policy: str, chosen: str, deployment: _Deployment, force: bool) -> KvDecision:
    """The user named the dtype: his word, unless it is known to fail."""
    failure = _known_failure(chosen, deployment)
    warnings = _refuse_or_warn(f"kv_cache_dtype {chosen}", failure, force)
    wants_strip = policy == "strip" or (
        policy == "auto" and not is_quantized(chosen) and deployment.declared is not None
    )
    return KvDecision(
        policy=policy,
        checkpoint_state="stripped" if wants_strip and not _must_stay_original(deployment) else "original",
        kv_cache_dtype=chosen,
        reason=f"kv_cache_dtype {chosen} was chosen explicitly",
        source="engine arguments",
        warnings=warnings,
    )


def _obey_keep(deployment: _Deployment, force: bool) -> KvDecision:
    dtype = deployment.as_shipped
    failure = _known_failure(dtype, deployment)
    return KvDecision(
        policy="keep",
        checkpoint_state="original",
        kv_cache_dtype=dtype,
        reason=f"the policy keeps the checkpoint as shipped ({_declaration(deployment)})",
        source="policy",
        warnings=_refuse_or_warn(f"the policy keep (kv_cache_dtype {dtype})", failure, force),
    )


def _obey_strip(deployment: _Deployment, force: bool) -> KvDecision:
    if _must_stay_original(deployment):
        never = _Ground(
            "a DSA model on compute capability 12.x serves only from its own quantized cache",
            data.DSA_DTYPES_ON_SM12X_SOURCE,
        )
        warnings = _refuse_or_warn("the policy strip", never, force)
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


def _decide_auto(deployment: _Deployment) -> KvDecision:
    if deployment.attention == "dsa":
        return _as_shipped(
            deployment, _Ground("a DSA model is served as shipped", data.DSA_DTYPES_ON_SM12X_SOURCE), warnings=()
        )
    if deployment.attention != "mla" or deployment.declared is None:
        text = "nothing is declared" if deployment.declared is None else "this kind of attention works as shipped"
        return _as_shipped(deployment, _Ground(text, "kv-policy: any other architecture or GPU"), warnings=())
    failure = _dcp_failure(deployment) or (
        _sm12x_failure(deployment.declared, deployment) if deployment.on_sm12x else None
    )
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
        return _as_shipped(deployment, _sm12x_row_ground(deployment), warnings=())
    old_gpu = _old_gpu_failure(deployment.declared, deployment)
    return _as_shipped(
        deployment,
        _Ground("dense MLA works as shipped on this device", "kv-policy: any other architecture or GPU"),
        warnings=(f"{old_gpu.text} ({old_gpu.source})",) if old_gpu else (),
    )


def _as_shipped(deployment: _Deployment, ground: _Ground, warnings: tuple[str, ...]) -> KvDecision:
    return KvDecision(
        policy="auto",
        checkpoint_state="original",
        kv_cache_dtype=deployment.as_shipped,
        reason=f"as shipped ({_declaration(deployment)}): {ground.text}",
        source=ground.source,
        warnings=warnings,
        probe_useful=ground.probe_useful,
    )


def _known_failure(dtype: str, deployment: _Deployment) -> Optional[_Ground]:
    """Why this dtype is known to fail here, None when nothing is known against it."""
    if dtype == "auto":
        return None
    if deployment.attention == "dsa":
        if deployment.on_sm12x and dtype not in data.DSA_DTYPES_ON_SM12X:
            allowed = ", ".join(data.DSA_DTYPES_ON_SM12X)
            return _Ground(
                f"a DSA model on compute capability 12.x takes only {allowed}", data.DSA_DTYPES_ON_SM12X_SOURCE
            )
        return None
    if not is_quantized(dtype):
        return _sixteen_bit_failure(dtype, deployment)
    if deployment.attention != "mla":
        return None
    return (
        _dcp_failure(deployment)
        or (_sm12x_failure(dtype, deployment) if deployment.on_sm12x else None)
        or _old_gpu_failure(dtype, deployment)
    )


def _sixteen_bit_failure(dtype: str, deployment: _Deployment) -> Optional[_Ground]:
    if deployment.model_dtype in SIXTEEN_BIT and dtype != deployment.model_dtype:
        return _Ground(
            f"a {dtype} cache under a {deployment.model_dtype} model answers nonsense without an error",
            data.MISMATCHED_16_BIT_SOURCE,
        )
    if deployment.cuda and deployment.older_than(data.EXPLICIT_16_BIT_FROM):
        return _Ground(
            f"vLLM {deployment.vllm} cannot write a cache whose type is named {dtype} (leave kv_cache_dtype out and set the"
            " policy strip)",
            data.EXPLICIT_16_BIT_SOURCE,
        )
    return None


def _dcp_failure(deployment: _Deployment) -> Optional[_Ground]:
    if deployment.dcp > 1 and deployment.older_than(data.MLA_FP8_DCP_WORKS_FROM):
        return _Ground(
            f"decode context parallel ({deployment.dcp}) with a quantized MLA cache works only from vLLM"
            f" {data.MLA_FP8_DCP_WORKS_FROM}, not in {deployment.vllm}",
            data.MLA_FP8_DCP_SOURCE,
        )
    return None


def _old_gpu_failure(dtype: str, deployment: _Deployment) -> Optional[_Ground]:
    if deployment.cuda and deployment.capability and deployment.capability < data.MLA_FP8_LOWEST_CAPABILITY:
        needed = ".".join(str(part) for part in data.MLA_FP8_LOWEST_CAPABILITY)
        return _Ground(
            f"an MLA cache in {dtype} needs compute capability {needed} or newer", data.MLA_FP8_LOWEST_CAPABILITY_SOURCE
        )
    return None


def _sm12x_failure(dtype: str, deployment: _Deployment) -> Optional[_Ground]:
    """Why TRITON_MLA, the only dense MLA backend on compute capability 12.x, cannot keep its cache in this dtype."""
    if dtype not in data.MLA_DTYPES_ON_SM12X:
        return _Ground(
            f"TRITON_MLA, the only dense MLA backend on compute capability 12.x, has no {dtype}",
            data.MLA_DTYPES_ON_SM12X_SOURCE,
        )
    row, row_note = _row_for(deployment.vllm)
    if row.verdict == "not_implemented":
        return _Ground(f"TRITON_MLA of vLLM {row.vllm} has no FP8 cache{row_note}", row.source)
    probe = deployment.probe
    if probe is not None and probe.verdict == "does_not_fit":
        return _Ground(f"the installed decode kernel does not fit ({_sizes(probe)})", "probe of the installed kernel")
    if probe is not None and probe.verdict == "fits":
        return None
    if row.verdict == "does_not_fit":
        unclear = f"; the probe cannot tell: {probe.detail}" if probe is not None else ""
        return _Ground(
            f"the decode kernel of vLLM {row.vllm} wants {row.shared_memory_bytes:,} B of shared memory, the GPU has"
            f" {data.SHARED_MEMORY_LIMIT_SM12X_BYTES:,} B{row_note}{unclear}",
            row.source,
            probe_useful=probe is None,
        )
    return None


def _sm12x_row_ground(deployment: _Deployment) -> _Ground:
    """Why FP8 was left alone on compute capability 12.x."""
    if deployment.probe is not None and deployment.probe.verdict == "fits":
        return _Ground(
            f"the installed decode kernel fits ({_sizes(deployment.probe)})", "probe of the installed kernel"
        )
    row, row_note = _row_for(deployment.vllm)
    return _Ground(
        f"the decode kernel of vLLM {row.vllm} fits with {row.shared_memory_bytes:,} B of shared memory{row_note}",
        row.source,
        probe_useful=bool(row_note) and deployment.probe is None,
    )


def _row_for(vllm_version: str) -> tuple[MlaFp8Row, str]:
    """The row of a release, else of the nearest older one, and the words that say which was taken.

    A pre-release or development build counts as the release that it leads to: its kernels are nearer to that one. What is
    no version counts as the newest row, and what is older than the oldest as the oldest: both say 16 bit.
    """
    rows = data.TRITON_MLA_FP8_ON_SM12X
    plain = vllm_version.split("+", maxsplit=1)[0].lstrip("v") if isinstance(vllm_version, str) else ""
    for row in rows:
        if row.vllm == plain:
            return row, ""
    version = _version_or_none(vllm_version)
    if version is None:
        return rows[-1], f" (version {vllm_version!r} is not known; judged by the newest row, {rows[-1].vllm})"
    older = [row for row in rows if parse_version(row.vllm) <= version]
    if not older:
        return rows[0], f" (judged for {vllm_version} by the oldest row, {rows[0].vllm})"
    return older[-1], f" (judged for {vllm_version} by the nearest older row, {older[-1].vllm})"


def _must_stay_original(deployment: _Deployment) -> bool:
    return deployment.attention == "dsa" and deployment.on_sm12x


def _refuse_or_warn(choice: str, failure: Optional[_Ground], force: bool) -> tuple[str, ...]:
    if failure is None:
        return ()
    if force:
        return (f"{choice} is known to fail and was forced: {failure.text} ({failure.source})",)
    raise VllmHostError(
        "kv_choice_known_to_fail",
        f"{choice} is known to fail: {failure.text}. Source: {failure.source}. Leave the choice to the policy auto,"
        " or force it.",
        choice=choice,
        reason=failure.text,
        source=failure.source,
        probe_useful=failure.probe_useful,
    )


def _sixteen_bit_warnings(deployment: _Deployment) -> tuple[str, ...]:
    if deployment.sixteen_bit != "auto":
        return ()
    if deployment.model_dtype in SIXTEEN_BIT:
        return (
            f"vLLM {deployment.vllm} takes no explicit 16-bit dtype ({data.EXPLICIT_16_BIT_SOURCE}): the stripped view alone"
            " carries the decision",
        )
    return (
        f"the model's dtype is {deployment.model_dtype or 'not known'}: kv_cache_dtype stays auto and the stripped view alone"
        " carries the decision",
    )


def _declaration(deployment: _Deployment) -> str:
    return (
        f"the checkpoint declares {deployment.declared}"
        if deployment.declared
        else "the checkpoint declares no cache type"
    )


def _sizes(probe: ProbeResult) -> str:
    if probe.shared_memory_bytes is None or probe.limit_bytes is None:
        return probe.detail or "sizes not known"
    return f"{probe.shared_memory_bytes:,} B of {probe.limit_bytes:,} B shared memory"


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
    major, _dot, minor = str(text).partition(".")
    if not major.isdigit() or not (minor or "0").isdigit():
        raise VllmHostError(
            "kv_policy_invalid",
            f"compute_capability must look like 12.0, not {text!r}.",
            key="compute_capability",
            found=str(text),
        )
    return int(major), int(minor or 0)


def _version_or_none(text: str) -> Optional[tuple[int, int, int]]:
    try:
        return parse_version(text)
    except VllmHostError:
        return None


def _require_one_of(key: str, found: Any, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise VllmHostError(
            "kv_policy_invalid",
            f"{key} must be one of {', '.join(allowed)}, not {found!r}.",
            key=key,
            found=str(found),
            allowed=list(allowed),
        )
