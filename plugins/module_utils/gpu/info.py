# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All facts about the GPUs of this host in one dictionary: what the module gpu_info returns."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any, Optional

from . import containers, kernel, nvml, problems

Facts = dict[str, Any]


def collect(client: Any = None, root: Path = Path("/"), log: Optional[list[str]] = None) -> Facts:
    """Read NVML, the kernel and the container.

    Args:
        client: the ``pynvml`` module; None where it is not installed.
        root: where /proc, /sys, /dev and /run are; tests bring their own.
        log: lines of the kernel log about the driver; read from the system when None and ``root`` is the real one.

    Returns:
        The contract of ``gpu_info``: ``gpus``, ``driver_version``, ``cuda_version``, ``kernel_module``, ``container``,
        ``p2p``, ``processes``, ``problems``, and ``nvml``, ``device_nodes``, ``pci_gpus``, ``iommu``, ``xids``,
        ``nvswitches``, ``fabric_manager``.
    """
    real = root == Path("/")
    told = nvml.read(client)
    module = kernel.kernel_module(root, run_tools=real)
    library = told["library_version"]
    module["matches_library"] = None if not (library and module["version"]) else library == module["version"]
    lines = kernel.kernel_log() if log is None and real else log
    pci = _with_refusals(kernel.pci_gpus(root), lines)
    container = containers.container_kind(root)
    nvswitches = kernel.nvswitches(root)
    facts: Facts = {
        "gpus": [_with_pci(gpu, pci) for gpu in told["gpus"]],
        "driver_version": told["driver_version"] or module["version"],
        "cuda_version": told["cuda_version"],
        "kernel_module": module,
        "container": container,
        "p2p": told["p2p"],
        "processes": [_with_owner(process, root) for process in told["processes"]],
        "nvml": {key: told[key] for key in ("state", "error", "library_version")},
        "device_nodes": kernel.device_nodes(root),
        "pci_gpus": pci,
        "iommu": kernel.iommu_enabled(root),
        "nvswitches": nvswitches,
        # A container does not see its host's processes.
        "fabric_manager": kernel.is_running("nv-fabricmanager", root) if nvswitches and container == "none" else None,
        "xids": None if lines is None else kernel.parse_xids(lines),
    }
    facts["problems"] = problems.find(facts)
    return facts


def _with_pci(gpu: Facts, pci: list[Facts]) -> Facts:
    """A GPU with its place in the machine; None where the PCI bus is not visible (NVML may know the NUMA node all the same)."""
    place = next((one for one in pci if one["pci_id"] == gpu["pci_id"]), {})
    found = {key: place.get(key) for key in ("numa_node", "iommu_group", "iommu_type", "acs_redirecting")}
    if found["numa_node"] is None:
        found["numa_node"] = gpu["numa_node"]
    return {**gpu, **found}


def _with_refusals(pci: list[Facts], lines: Optional[list[str]]) -> list[Facts]:
    """GPUs with what the kernel log adds: a card too new for our table of device ids, refused by the proprietary module."""
    refused = kernel.parse_refused(lines or [])
    return [{**one, "needs_open_modules": one["needs_open_modules"] or one["pci_id"] in refused} for one in pci]


def _with_owner(process: Facts, root: Path) -> Facts:
    owner = kernel.process_owner(process["pid"], root)
    user = None
    if owner["uid"] is not None:
        try:
            user = pwd.getpwuid(owner["uid"]).pw_name
        except KeyError:
            user = str(owner["uid"])
    return {**process, "name": owner["name"], "user": user, "unit": owner["unit"]}
