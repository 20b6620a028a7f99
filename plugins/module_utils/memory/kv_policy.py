# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which KV-cache dtype a deployment gets, and whether the checkpoint's own declaration must be stripped for it.

The knowledge is the table in kv_policy_data.py; this module is the order in which it is asked:

1. an explicit choice of the user, checked against what is known to fail;
2. a DSA (sparse MLA) model stays as it is;
3. dense MLA on compute capability 12.x: what the installed kernel can hold;
4. everything else stays as shipped.

A 16-bit decision is carried twice, by a stripped view and by an explicit C(--kv-cache-dtype), so that neither alone
decides. "As shipped" is explicit too: vLLM's C(auto) would follow whatever the metadata says tomorrow (vllm #29980).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Optional

from ..errors import VllmHostError
from . import kv_policy_data as data

POLICIES = ("auto", "keep", "strip")
ATTENTION_KINDS = ("mla", "dsa", "other")
SIXTEEN_BIT = ("float16", "bfloat16")

Version = tuple[int, ...]


@dataclass(frozen=True)
class ProbeResult:
    """What compiling the installed kernel said (see kv_kernel_probe).

    Attributes:
        verdict: C(fits), C(does_not_fit) or C(cannot_tell).
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
        checkpoint_state: C(original) or C(stripped); what checkpoint_patch makes the served view.
        kv_cache_dtype: the value of vLLM's C(--kv-cache-dtype).
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
        policy: C(auto), C(keep) (as shipped) or C(strip) (16 bit).
        attention: C(mla) (dense), C(dsa) (sparse MLA with an indexer: DeepSeek-V3.2, GLM-5) or C(other).
        compute_capability: of the GPUs, such as C("12.0"); None on a CPU or when it is not known.
        device: C(cuda) or C(cpu).
        vllm_version: release that will serve, such as C("0.32.0").
        checkpoint_kv_dtype: what the checkpoint's metadata declares, as vLLM's dtype name (C(fp8), C(fp8_e4m3),
            C(nvfp4)); None when it declares nothing. C(quant_config.declared_kv_cache_dtype) gives it.
        engine_args: the user's own engine arguments, vLLM's names; C(kv_cache_dtype), C(dtype) and
            C(decode_context_parallel_size) are looked at.
        dcp: decode context parallel size; default from C(engine_args), else 1.
        force: let through an explicit choice that is known to fail, with a warning.
        probe_result: of the installed kernel, if it was asked.
        model_dtype: the model's own dtype (C(bfloat16), C(float16), ...); None when it is not known.

    Raises:
        VllmHostError: C(kv_policy_invalid) for a value outside the above; C(kv_choice_known_to_fail) when the user's
            explicit choice is known to fail and C(force) is false.
    """
    raise NotImplementedError
