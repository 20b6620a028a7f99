# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deployment asks of the GPUs, compared with what is there; and the same as a short report for people."""

from __future__ import annotations

import re
from typing import Any, Optional

from .problems import at_least

Facts = dict[str, Any]


def unmet(
    facts: Facts,
    minimum_driver: str = "",
    minimum_compute_capability: str = "",
    expected_gpus: int = 0,
    gpus: Optional[list[int]] = None,
) -> list[str]:
    """Sentences on what keeps these GPUs from serving, each with its remedy; empty when all is well.

    Args:
        facts: what ``gpu_info`` returns.
        minimum_driver: oldest driver release that will do; empty for any.
        minimum_compute_capability: such as ``9.0``; empty for any. A minimum that cannot be read is a sentence too.
        expected_gpus: how many there must be; 0 for at least one.
        gpus: indices that the deployment uses; empty for all. Troubles of the others do not count.
    """
    wanted = set(gpus or [])
    blocking = [
        problem
        for problem in facts["problems"]
        if problem["severity"] == "error" and (not wanted or not problem["gpus"] or wanted & set(problem["gpus"]))
    ]
    sentences = unreadable(minimum_driver, minimum_compute_capability) + [describe(problem) for problem in blocking]
    if facts["nvml"]["state"] != "ok":
        return sentences
    present = {gpu["index"]: gpu for gpu in facts["gpus"]}
    absent = sorted(wanted - set(present))
    if absent:
        sentences.append(
            f"GPU {_list(absent)} is asked for, but this host has {_list(sorted(present)) or 'none'}: correct vllm_gpus."
        )
    if expected_gpus and len(present) != expected_gpus:
        sentences.append(
            f"{expected_gpus} GPUs are expected (drivers_expected_gpus), {len(present)} are there: look at `dmesg | grep NVRM` and "
            "the power of the missing ones, or correct the number."
        )
    driver = facts["driver_version"]
    if _RELEASE.fullmatch(str(minimum_driver)) and not at_least(driver, minimum_driver):
        sentences.append(
            f"The driver is {driver or 'of unknown release'}, at least {minimum_driver} is needed (drivers_minimum_driver): set "
            "drivers_state to present to install it, in a container on the host first."
        )
    old = [
        gpu
        for gpu in facts["gpus"]
        if (not wanted or gpu["index"] in wanted)
        and _CAPABILITY.fullmatch(str(minimum_compute_capability))
        and not at_least(gpu["compute_capability"], minimum_compute_capability)
    ]
    for gpu in old:
        sentences.append(
            f"GPU {gpu['index']} ({gpu['name'] or 'unnamed'}) has compute capability {gpu['compute_capability'] or 'unknown'}, at least "
            f"{minimum_compute_capability} is needed (drivers_minimum_compute_capability): leave it out with vllm_gpus."
        )
    return sentences


# 580 or 580.95.05
_RELEASE = re.compile(r"\d{3,4}(\.\d+){0,3}")
# 9 or 12.0; two digits before the dot begin with 1, so that 90 (of sm_90) is not taken for one that no GPU has.
_CAPABILITY = re.compile(r"1?\d(\.\d)?")


def unreadable(minimum_driver: str, minimum_compute_capability: str) -> list[str]:
    """Sentences on minimums that are no release and no compute capability: compared as they are, they would let all or none pass."""
    sentences = []
    if minimum_driver and not _RELEASE.fullmatch(str(minimum_driver)):
        sentences.append(
            f"drivers_minimum_driver is {str(minimum_driver)!r}, which is no release of the driver: give one such as 580 or 580.95.05."
        )
    if minimum_compute_capability and not _CAPABILITY.fullmatch(str(minimum_compute_capability)):
        sentences.append(
            f"drivers_minimum_compute_capability is {str(minimum_compute_capability)!r}, which is no compute capability: give one such "
            "as 9.0 (which compilers call sm_90) or 12.0 (sm_120)."
        )
    return sentences


def describe(problem: Facts) -> str:
    """A problem in one line: whom, what was seen, what it costs, what to do."""
    whom = f"GPU {_list(problem['gpus'])}: " if problem["gpus"] else ""
    return f"[{problem['id']}] {whom}{problem['found']}. Cost: {problem['cost']}. Remedy: {problem['remedy']}."


def report(facts: Facts) -> list[str]:
    """The host in a few lines: driver, container, GPUs of a kind together, then problems."""
    kernel, nvml = facts["kernel_module"], facts["nvml"]
    module = f"{kernel['version']} ({kernel['flavour'] or 'flavour unknown'})" if kernel["version"] else "not visible"
    lines = [
        f"driver {facts['driver_version'] or 'none'}, library {nvml['library_version'] or 'none'}, kernel module {module}, "
        f"CUDA up to {facts['cuda_version'] or 'unknown'}, container {facts['container']}"
    ]
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for gpu in facts["gpus"]:
        kinds.setdefault((gpu["name"], gpu["compute_capability"], gpu["total_bytes"]), []).append(gpu["index"])
    for (name, capability, total), indices in kinds.items():
        size = f"{total / 2**20:,.0f} MiB" if total else "unknown memory"
        lines.append(
            f"{len(indices)} x {name or 'unnamed GPU'}, {size}, compute capability {capability or 'unknown'}: GPU {_list(indices)}"
        )
    if not facts["gpus"]:
        lines.append(f"no GPU can be used (NVML: {nvml['state']})")
    lines += [f"{problem['severity']}: {describe(problem)}" for problem in facts["problems"]]
    return lines


def _list(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
