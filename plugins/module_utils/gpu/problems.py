# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From facts to problems: each with what was found, what it costs and the remedy (the table is problems_data.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Optional

from .problems_data import KNOWN, XIDS

Facts = dict[str, Any]
Problem = dict[str, Any]

_SEVERITIES = ("error", "warning", "info")

# NVML's states in which nothing more is known: the problem that says so, and what was found.
_STATE_PROBLEMS = {
    "client_missing": "client_missing",
    "library_missing": "library_missing",
    "driver_not_loaded": "driver_not_loaded",
    "version_mismatch": "driver_library_mismatch",
    "no_permission": "nvml_no_permission",
    "error": "nvml_error",
}


def find(facts: Facts) -> list[Problem]:
    """Problems of a host, errors first.

    Args:
        facts: what :func:`info.collect` gathers, without ``problems``.

    Returns:
        List of ``id``, ``severity`` (``error``, ``warning``, ``info``), ``gpus`` (indices; empty when it is about the host),
        ``found``, ``cost``, ``remedy``, ``source``.
    """
    found = [
        *_of_nvml(facts),
        *_of_kernel(facts),
        *_of_devices(facts),
        *_of_gpus(facts),
        *_of_links(facts),
        *_of_fabric(facts),
        *_of_log(facts),
    ]
    return sorted(found, key=lambda problem: _SEVERITIES.index(problem["severity"]))


def problem(identity: str, found: str, gpus: Optional[list[int]] = None, severity: Optional[str] = None) -> Problem:
    """A row of the table with what was found; ``severity`` overrides the table's."""
    known = KNOWN[identity]
    return {
        "id": identity,
        "severity": severity or known.severity,
        "gpus": gpus or [],
        "found": found,
        "cost": known.cost,
        "remedy": known.remedy,
        "source": known.source,
    }


def _of_nvml(facts: Facts) -> Iterator[Problem]:
    nvml, kernel = facts["nvml"], facts["kernel_module"]
    if nvml["state"] == "ok":
        if kernel["matches_library"] is False:
            yield problem("driver_library_mismatch", _versions(nvml, kernel))
        return
    error = nvml["error"]
    detail = f"NVML says {error['name']} ({error['code']})" if error else "pynvml cannot be imported"
    if nvml["state"] == "version_mismatch":
        detail = f"{detail}: {_versions(nvml, kernel)}"
    yield problem(_STATE_PROBLEMS[nvml["state"]], detail)


def _versions(nvml: Facts, kernel: Facts) -> str:
    return f"library {nvml['library_version'] or 'unknown'}, kernel module {kernel['version'] or 'unknown'}"


def _of_kernel(facts: Facts) -> Iterator[Problem]:
    kernel, on_metal = facts["kernel_module"], facts["container"] == "none"
    if kernel["nouveau_loaded"] and not kernel["loaded"] and facts["pci_gpus"]:
        yield problem("nouveau_loaded", "module nouveau is loaded, module nvidia is not")
    if kernel["secure_boot"] and not kernel["loaded"] and kernel["installed_version"]:
        yield problem("secure_boot", f"module {kernel['installed_version']} is installed but not loaded")
    installed, loaded = kernel["installed_version"], kernel["version"]
    if on_metal and installed and loaded and (installed != loaded or other_flavour(kernel)):
        flavours = (
            (f" ({kernel['flavour']})", f" ({kernel['installed_flavour']})") if other_flavour(kernel) else ("", "")
        )
        yield problem("reboot_required", f"loaded {loaded}{flavours[0]}, on disk {installed}{flavours[1]}")
    if kernel["flavour"] == "proprietary":
        yield from _of_the_proprietary_flavour(facts)


def other_flavour(kernel: Facts) -> bool:
    """Whether the module on disk is known to be of the other flavour than the loaded one: both have the same release numbers."""
    loaded, installed = kernel["flavour"], kernel["installed_flavour"]
    return bool(loaded and installed and loaded != installed)


def _of_the_proprietary_flavour(facts: Facts) -> Iterator[Problem]:
    """GPUs that want the other flavour: seldom among those that NVML counts (it leaves out what did not start), else on the bus."""
    served = [gpu["index"] for gpu in facts["gpus"] if at_least(gpu["compute_capability"], "10.0")]
    refused = [f"{one['pci_id']} (10de:{one['device_id']})" for one in _unserved(facts) if one["needs_open_modules"]]
    if not served and not refused:
        return
    found = f"module {facts['kernel_module']['version']} is the proprietary flavour"
    if refused:
        found += f", which does not start {', '.join(refused)}"
    # Where some are not counted, the problem is about more than the indices that there are.
    yield problem("proprietary_on_blackwell", found, [] if refused else served)


def _of_devices(facts: Facts) -> Iterator[Problem]:
    """GPUs that are there but not served, and device nodes. Nodes are judged only where the kernel side is up."""
    nvml, kernel, nodes = facts["nvml"], facts["kernel_module"], facts["device_nodes"]
    if nvml["state"] == "ok":
        missing = _not_served(facts)
        if missing:
            yield problem("gpu_not_served", f"on the bus but not offered by the driver: {', '.join(missing)}")
        elif not facts["gpus"]:
            yield problem("no_gpu", "NVML counts no GPU, and the PCI bus shows none")
    elif nvml["state"] in ("library_missing", "driver_not_loaded") and not facts["pci_gpus"] and not kernel["loaded"]:
        yield problem("no_gpu", "the PCI bus shows no device of NVIDIA")
    if not kernel["loaded"]:
        return
    if not nodes["uvm"]:
        yield problem("uvm_node_missing", "/dev/nvidia-uvm does not exist")
    wanted = [gpu["device_node"] for gpu in facts["gpus"] if gpu["device_node"]]
    absent = [node for node in wanted if node not in nodes["gpus"]] + ([] if nodes["control"] else ["/dev/nvidiactl"])
    if absent:
        yield problem("device_node_missing", f"missing: {', '.join(absent)}")


def _not_served(facts: Facts) -> list[str]:
    """PCI ids of GPUs that the driver should offer and does not.

    Not counted: as many as NVML counts without being able to say where they are (lost ones, which have their own problem).
    """
    missing = [one["pci_id"] for one in _unserved(facts)]
    return missing if len(missing) > [gpu["pci_id"] for gpu in facts["gpus"]].count(None) else []


def _unserved(facts: Facts) -> list[Facts]:
    """GPUs on the bus that NVML does not name.

    Not counted: GPUs given to virtual machines (vfio-pci), and those that a container was not given while it has others.
    """
    if facts["container"] != "none" and facts["gpus"]:
        return []
    served = [gpu["pci_id"] for gpu in facts["gpus"]]
    return [one for one in facts["pci_gpus"] if one["pci_id"] not in served and one["driver"] != "vfio-pci"]


def _of_gpus(facts: Facts) -> Iterator[Problem]:
    gpus = facts["gpus"]

    def about(identity: str, hit: list[Facts], found: str) -> Iterator[Problem]:
        if hit:
            yield problem(identity, found, [gpu["index"] for gpu in hit])

    yield from about("gpu_lost", _failing(gpus, "gpu_is_lost"), "NVML answers gpu_is_lost")
    yield from about("gpu_reset_required", _failing(gpus, "reset_required"), "NVML answers reset_required")
    for gpu in gpus:
        rows, temperature, power = gpu["remapped_rows"], gpu["temperature"], gpu["power"]
        if rows["failed"]:
            yield problem(
                "row_remap_failed", f"{rows['uncorrectable']} rows remapped for uncorrectable errors", [gpu["index"]]
            )
        if rows["pending"]:
            yield problem("row_remap_pending", "a row remapping is pending", [gpu["index"]])
        if gpu["ecc"]["uncorrected"]:
            yield problem("ecc_uncorrected", f"{gpu['ecc']['uncorrected']} uncorrected errors", [gpu["index"]])
        if below(power["limit_watts"], power["default_limit_watts"]):
            found = f"{power['limit_watts']:.0f} W, default {power['default_limit_watts']:.0f} W"
            yield problem("power_limited", found, [gpu["index"]])
        now, slowdown = temperature["celsius"], temperature["slowdown_celsius"]
        if slowdown and now is not None and now >= slowdown:
            yield problem("hot", f"{now} °C, slows down at {slowdown} °C", [gpu["index"]])
    yield from about("mig_enabled", [gpu for gpu in gpus if gpu["mig"]["enabled"]], "MIG is on")
    yield from about("persistence_off", [gpu for gpu in gpus if gpu["persistence"] is False], "persistence mode is off")
    # 2 = PROHIBITED (nvml.h).
    yield from about("prohibited", [gpu for gpu in gpus if gpu["compute_mode"] == 2], "compute mode PROHIBITED")
    unknown = [gpu for gpu in gpus if gpu["total_bytes"] and gpu["reserved_bytes"] is None]
    yield from about("reserved_unknown", unknown, "NVML's v2 memory information is not available")
    kinds = sorted({(gpu["name"], gpu["total_bytes"]) for gpu in gpus if gpu["name"] and gpu["total_bytes"]})
    if len(kinds) > 1:
        yield problem("mixed_gpus", "; ".join(f"{name} with {total / 2**30:.0f} GiB" for name, total in kinds))


def _failing(gpus: list[Facts], code: str) -> list[Facts]:
    return [gpu for gpu in gpus if code in gpu["errors"].values()]


def _of_links(facts: Facts) -> Iterator[Problem]:
    gpus = facts["gpus"]
    places = {one["pci_id"]: one for one in facts["pci_gpus"]}
    for gpu in gpus:
        narrow = _narrow_link(gpu["pcie"], places.get(gpu["pci_id"]))
        if narrow:
            yield problem("pcie_width", narrow, [gpu["index"]])
        if below(gpu["bar1_total_bytes"], gpu["total_bytes"]):
            found = f"BAR1 {gpu['bar1_total_bytes'] / 2**30:.2f} GiB of {gpu['total_bytes'] / 2**30:.0f} GiB"
            yield problem("bar1_small", found, [gpu["index"]])
    if len(gpus) < 2:
        return
    refused = sorted(
        {state for row in facts["p2p"]["access"] for state in row if state not in (None, "ok", "self")},
    )
    if refused:
        hit = [index for index, row in enumerate(facts["p2p"]["access"]) if set(row) & set(refused)]
        yield problem("p2p_unavailable", f"NVML says {', '.join(refused)}", hit)
    bridges = sorted({bridge for gpu in gpus for bridge in gpu["acs_redirecting"] or []})
    if bridges:
        yield problem(
            "acs_redirect", f"bridges {', '.join(bridges)}", [g["index"] for g in gpus if g["acs_redirecting"]]
        )
    translated = [gpu["index"] for gpu in gpus if (gpu["iommu_type"] or "").startswith("DMA")]
    if translated:
        yield problem("iommu_translates", "IOMMU groups of type DMA", translated)


def _of_fabric(facts: Facts) -> Iterator[Problem]:
    """GPUs behind NVSwitches of which CUDA takes none until the fabric manager has set the switches up.

    A100 and older do not register at the fabric (NVML says not_supported): there the switches and the daemon tell.
    """
    waiting, states = [], set()
    for gpu in facts["gpus"]:
        state, status = gpu["fabric"]["state"], gpu["fabric"]["status"]
        if state in ("not_started", "in_progress"):
            waiting.append(gpu["index"])
            states.add(state)
        elif state == "completed" and status != "success":
            waiting.append(gpu["index"])
            states.add(f"completed with {status}")
    if waiting:
        yield problem("fabric_not_ready", f"NVML's fabric state is {', '.join(sorted(states))}", waiting)
        return
    registered = any(gpu["fabric"]["state"] == "completed" for gpu in facts["gpus"])
    if facts["nvswitches"] and facts["gpus"] and facts["fabric_manager"] is False and not registered:
        yield problem("fabric_not_ready", f"{facts['nvswitches']} NVSwitches, and nv-fabricmanager does not run")


def _narrow_link(pcie: Facts, place: Optional[Facts]) -> Optional[str]:
    """What is seen of a link narrower than the card can, or None.

    NVML's maximum is that of card and slot together (nvml.h): what the card alone can is in sysfs. The generation is not
    judged, it drops when the GPU is idle.
    """
    place = place or {"link_width": None, "link_width_max": None, "slot_width_max": None}
    width = pcie["width"] or place["link_width"]
    card = max((most for most in (place["link_width_max"], pcie["width_max"]) if most), default=None)
    if not below(width, card):
        return None
    slot = place["slot_width_max"]
    return f"x{width} of x{card}" + (f", in a slot of x{slot}" if below(slot, card) else "")


def _of_log(facts: Facts) -> Iterator[Problem]:
    by_pci_id = {gpu["pci_id"]: gpu["index"] for gpu in facts["gpus"] if gpu["pci_id"]}
    for event in facts["xids"] or []:
        severity, meaning = XIDS.get(event["xid"], ("warning", "see NVIDIA's catalogue"))
        times = "once" if event["count"] == 1 else f"{event['count']} times"
        # The card may have been reset since: what is broken now shows in NVML, the log alone is a warning.
        severity = "warning" if severity == "error" else severity
        index = by_pci_id.get(event["pci_id"])
        found = f"Xid {event['xid']} {times} at {event['pci_id']}: {meaning}"
        yield problem("xid", found, [] if index is None else [index], severity)


def below(value: Optional[float], limit: Optional[float]) -> bool:
    """Whether both are known and the value is smaller."""
    return value is not None and limit is not None and value < limit


def at_least(version: Optional[str], minimum: str) -> bool:
    """Whether a dotted version is known and not older than the minimum: ``at_least("12.0", "9.0")``."""
    return bool(version) and _numbers(str(version)) >= _numbers(str(minimum))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
