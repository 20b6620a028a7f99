# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known to fail: a KV-cache dtype, an attention kind, a GPU and a vLLM release against the table in kv_policy_data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ..errors import VllmHostError
from . import kv_policy_data as data
from .kv_dtypes import is_quantized
from .kv_policy_data import MlaFp8Row
from .releases import parse_version

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
class Ground:
    """A statement, where it is known from, and whether a probe could overturn it."""

    text: str
    source: str
    probe_useful: bool = False


@dataclass(frozen=True)
class Deployment:
    """The facts of one deployment, checked."""

    attention: str
    capability: Optional[tuple[int, int]]
    cuda: bool
    vllm: str
    declared: Optional[str]
    dcp: int
    model_dtype: Optional[str]
    probe: Optional[ProbeResult]
    amx: bool = False

    @property
    def on_sm12x(self) -> bool:
        return self.cuda and self.capability is not None and self.capability[0] == 12

    def older_than(self, release: str) -> bool:
        version = _version_or_none(self.vllm)
        return version is not None and version < parse_version(release)

    @property
    def explicit_16_bit_problem(self) -> Optional[str]:
        """Why this vLLM cannot be told the 16-bit type by name, so that a stripped checkpoint alone must say it."""
        if self.model_dtype not in SIXTEEN_BIT:
            return f"the model's dtype is {self.model_dtype or 'not known'}"
        if self.cuda and self.older_than(data.EXPLICIT_16_BIT_FROM):
            return f"vLLM {self.vllm} takes no explicit 16-bit dtype ({data.EXPLICIT_16_BIT_SOURCE})"
        if self.amx and not self.cuda and self.attention == "mla":
            return f"on a processor with AMX vLLM takes no explicit dtype ({data.AMX_MLA_AUTO_ONLY_SOURCE})"
        return None

    @property
    def sixteen_bit(self) -> str:
        """The 16-bit value of ``--kv-cache-dtype``; ``auto`` where it cannot be said."""
        return "auto" if self.explicit_16_bit_problem or not self.model_dtype else self.model_dtype

    @property
    def as_shipped(self) -> str:
        """The dtype that the checkpoint means, said aloud."""
        if self.declared:
            return self.declared
        return self.sixteen_bit if self.attention == "mla" else "auto"


def known_failure(dtype: str, deployment: Deployment) -> Optional[Ground]:
    """Why this dtype is known to fail here, None when nothing is known against it."""
    if dtype == "auto":
        return None
    if deployment.attention == "dsa":
        if deployment.on_sm12x and dtype not in data.DSA_DTYPES_ON_SM12X:
            allowed = ", ".join(data.DSA_DTYPES_ON_SM12X)
            return Ground(
                f"a DSA model on compute capability 12.x takes only {allowed}", data.DSA_DTYPES_ON_SM12X_SOURCE
            )
        return None
    if not is_quantized(dtype):
        return _sixteen_bit_failure(dtype, deployment)
    if deployment.attention != "mla":
        return None
    return (
        dcp_failure(deployment)
        or (sm12x_failure(dtype, deployment) if deployment.on_sm12x else None)
        or old_gpu_failure(dtype, deployment)
    )


def _sixteen_bit_failure(dtype: str, deployment: Deployment) -> Optional[Ground]:
    if deployment.model_dtype in SIXTEEN_BIT and dtype != deployment.model_dtype:
        return Ground(
            f"a {dtype} cache under a {deployment.model_dtype} model answers nonsense without an error",
            data.MISMATCHED_16_BIT_SOURCE,
        )
    if deployment.cuda and deployment.older_than(data.EXPLICIT_16_BIT_FROM):
        return Ground(
            f"vLLM {deployment.vllm} cannot write a cache whose type is named {dtype} (leave kv_cache_dtype out and set"
            " plan_kv_cache_policy: strip)",
            data.EXPLICIT_16_BIT_SOURCE,
        )
    return None


def dcp_failure(deployment: Deployment) -> Optional[Ground]:
    if deployment.dcp > 1 and deployment.older_than(data.MLA_FP8_DCP_WORKS_FROM):
        return Ground(
            f"decode context parallel ({deployment.dcp}) with a quantized MLA cache works only from vLLM"
            f" {data.MLA_FP8_DCP_WORKS_FROM}, not in {deployment.vllm}",
            data.MLA_FP8_DCP_SOURCE,
        )
    return None


def old_gpu_failure(dtype: str, deployment: Deployment) -> Optional[Ground]:
    if deployment.cuda and deployment.capability and deployment.capability < data.MLA_FP8_LOWEST_CAPABILITY:
        needed = ".".join(str(part) for part in data.MLA_FP8_LOWEST_CAPABILITY)
        return Ground(
            f"an MLA cache in {dtype} needs compute capability {needed} or newer", data.MLA_FP8_LOWEST_CAPABILITY_SOURCE
        )
    return None


def amx_warning(dtype: str, deployment: Deployment) -> tuple[str, ...]:
    """What to say of an MLA cache on a CPU with AMX whose type is anything but auto: it loads, and ends at the first request."""
    if deployment.cuda or not deployment.amx or deployment.attention != "mla" or dtype == "auto":
        return ()
    return (
        f"on a processor with AMX vLLM answers only with kv_cache_dtype auto and a stripped checkpoint, not with {dtype}"
        f" ({data.AMX_MLA_AUTO_ONLY_SOURCE}); use plan_kv_cache_policy: strip",
    )


def sm12x_failure(dtype: str, deployment: Deployment) -> Optional[Ground]:
    """Why TRITON_MLA, the only dense MLA backend on compute capability 12.x, cannot keep its cache in this dtype."""
    if dtype not in data.MLA_DTYPES_ON_SM12X:
        return Ground(
            f"TRITON_MLA, the only dense MLA backend on compute capability 12.x, has no {dtype}",
            data.MLA_DTYPES_ON_SM12X_SOURCE,
        )
    row, row_note = row_for(deployment.vllm)
    if row.verdict == "not_implemented":
        return Ground(f"TRITON_MLA of vLLM {row.vllm} has no FP8 cache{row_note}", row.source)
    probe = deployment.probe
    if probe is not None and probe.verdict == "does_not_fit":
        return Ground(f"the installed decode kernel does not fit ({_sizes(probe)})", "probe of the installed kernel")
    if probe is not None and probe.verdict == "fits":
        return None
    if row.verdict == "does_not_fit":
        unclear = f"; the probe cannot tell: {probe.detail}" if probe is not None else ""
        return Ground(
            f"the decode kernel of vLLM {row.vllm} wants {row.shared_memory_bytes:,} B of shared memory, the GPU has"
            f" {data.SHARED_MEMORY_LIMIT_SM12X_BYTES:,} B{row_note}{unclear}",
            row.source,
            probe_useful=bool(row_note) and probe is None,
        )
    return None


def sm12x_ground(deployment: Deployment) -> Ground:
    """Why FP8 was left alone on compute capability 12.x."""
    if deployment.probe is not None and deployment.probe.verdict == "fits":
        return Ground(f"the installed decode kernel fits ({_sizes(deployment.probe)})", "probe of the installed kernel")
    row, row_note = row_for(deployment.vllm)
    return Ground(
        f"the decode kernel of vLLM {row.vllm} fits with {row.shared_memory_bytes:,} B of shared memory{row_note}",
        row.source,
        probe_useful=bool(row_note) and deployment.probe is None,
    )


def row_for(vllm_version: str) -> tuple[MlaFp8Row, str]:
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


def _version_or_none(text: str) -> Optional[tuple[int, int, int]]:
    try:
        return parse_version(text)
    except VllmHostError:
        return None


def _sizes(probe: ProbeResult) -> str:
    if probe.shared_memory_bytes is None or probe.limit_bytes is None:
        return probe.detail or "sizes not known"
    return f"{probe.shared_memory_bytes:,} B of {probe.limit_bytes:,} B shared memory"
