# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's management library says, as plain values: a field that the library refuses is ``None``, never an error.

The library is reached through ``pynvml`` (nvidia-ml-py). One call can fail for one GPU and work for the next (a GPU that
fell off the bus, a consumer board without ECC, a container without permission), so each call stands alone.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from typing import Any, Optional

from .nvml_data import ARCHITECTURES, FABRIC_STATES, NOT_WORTH_TELLING, P2P_STATUS, TOPOLOGY

Facts = dict[str, Any]


def import_client() -> Any:
    """The ``pynvml`` module, or None where it is not installed for this interpreter."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def read(client: Any) -> Facts:
    """Everything NVML tells about this host.

    Args:
        client: the ``pynvml`` module, or None.

    Returns:
        ``state``: ``ok``, ``client_missing``, ``library_missing``, ``driver_not_loaded``, ``version_mismatch``,
        ``no_permission`` or ``error``; ``error``: NVML's code as ``{code, name}`` or None; ``library_version``: version
        of the user-space library, ``driver_version``: of the kernel driver; ``cuda_version``: the newest CUDA that the
        driver runs, such as ``13.0``; ``gpus``: see :func:`read_gpu`; ``p2p``: see :func:`read_p2p`; ``processes``: list
        of ``{gpu, pid, memory_bytes}``.
    """
    facts: Facts = {
        "state": "client_missing",
        "error": None,
        "library_version": None,
        "driver_version": None,
        "cuda_version": None,
        "gpus": [],
        "p2p": {"access": [], "nvlink": [], "topology": []},
        "processes": [],
    }
    if client is None:
        return facts
    try:
        client.nvmlInit()
    except client.NVMLError as error:
        code = error_code(error)
        facts["state"] = _STATES.get(code, "error")
        facts["error"] = {"code": code, "name": error_name(client, code)}
        # The library is loaded although it would not start, so it can still say which version it is.
        facts["library_version"] = _library_version(Call(client))
        return facts
    try:
        facts["state"] = "ok"
        facts.update(_read_started(client))
    finally:
        Call(client)("nvmlShutdown")
    return facts


# NVML's codes: nvml.h, nvmlReturn_enum.
_STATES = {4: "no_permission", 9: "driver_not_loaded", 12: "library_missing", 18: "version_mismatch"}


class Call:
    """Calls NVML by function name; a refusal gives None and is kept in ``errors`` (name of the call: name of the code)."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.errors: dict[str, str] = {}

    def __call__(self, function: str, *arguments: Any, **named: Any) -> Any:
        """The call's value (text decoded), or None if NVML refuses it or is too old to know it."""
        call: Optional[Callable[..., Any]] = getattr(self.client, function, None)
        if call is None:
            return None
        try:
            value = call(*arguments, **named)
        except self.client.NVMLError as error:
            code = error_code(error)
            if code not in NOT_WORTH_TELLING:
                self.errors[function] = error_name(self.client, code)
            return None
        except UnicodeDecodeError:  # text from a corrupted info ROM, which pynvml decodes as UTF-8
            self.errors[function] = "not_text"
            return None
        return value.decode(errors="replace") if isinstance(value, bytes) else value


def error_code(error: Exception) -> int:
    return int(getattr(error, "value", 999))


def error_name(client: Any, code: int) -> str:
    """NVML's own name of a code, in lower case and without its prefix: ``gpu_is_lost``; ``code_<n>`` for an unknown one."""
    for name, value in vars(client).items():
        if name.startswith("NVML_ERROR_") and value == code:
            return name[len("NVML_ERROR_") :].lower()
    return f"code_{code}"


def _read_started(client: Any) -> Facts:
    call = Call(client)
    count = call("nvmlDeviceGetCount") or 0
    gpus: list[Facts] = []
    handles: list[Any] = []
    processes: list[Facts] = []
    for index in range(count):
        gpu_call = Call(client)
        handle = gpu_call("nvmlDeviceGetHandleByIndex", index)
        gpus.append(read_gpu(gpu_call, handle, index))
        handles.append(handle)
        if handle is not None:
            processes += read_processes(gpu_call, handle, index)
    return {
        "driver_version": call("nvmlSystemGetDriverVersion"),
        "library_version": _library_version(call),
        "cuda_version": cuda_version(call("nvmlSystemGetCudaDriverVersion_v2")),
        "gpus": gpus,
        "p2p": read_p2p(call, handles),
        "processes": processes,
    }


def _library_version(call: Call) -> Optional[str]:
    """The driver release that the user-space library belongs to.

    NVML gives its CUDA major version and the release, as in ``13.580.159.04`` (nvml.h, nvmlSystemGetNVMLVersion).
    """
    found = re.fullmatch(r"\d{1,2}\.(\d{3,}(?:\.\d+)+)", call("nvmlSystemGetNVMLVersion") or "")
    return found.group(1) if found else None


def cuda_version(number: Optional[int]) -> Optional[str]:
    """``13000`` as ``13.0`` (nvml.h: ``1000 * major + 10 * minor``)."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def sysfs_pci_id(bus_id: Optional[str]) -> Optional[str]:
    """NVML's ``00000000:C1:00.0`` in the kernel's spelling ``0000:c1:00.0``."""
    found = re.fullmatch(r"0*([0-9a-f]{4,}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", (bus_id or "").lower())
    return f"{found.group(1)}:{found.group(2)}" if found else None


def read_gpu(call: Call, handle: Any, index: int) -> Facts:
    """One GPU. Sizes are bytes, power is watts, temperatures are degrees Celsius; what NVML refuses is None.

    ``cuda_visible_bytes`` is the total less what the driver keeps for itself: exactly what CUDA's ``cudaMemGetInfo`` calls
    total (measured on an H200). ``errors`` maps each call that failed unexpectedly to NVML's name of the failure.
    """
    if handle is None:
        return {**_empty_gpu(index), "errors": dict(call.errors)}

    def ask(function: str, *arguments: Any, **named: Any) -> Any:
        return call(function, handle, *arguments, **named)

    pci = ask("nvmlDeviceGetPciInfo_v3")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    # nvml.h: nvmlMemory_v2 is the versioned struct that tells reserved memory apart from used memory.
    memory = ask("nvmlDeviceGetMemoryInfo", version=getattr(call.client, "nvmlMemory_v2", 0x02000028))
    plain_memory = memory or ask("nvmlDeviceGetMemoryInfo")
    bar1 = ask("nvmlDeviceGetBAR1MemoryInfo")
    ecc = ask("nvmlDeviceGetEccMode") or [None, None]
    mig = ask("nvmlDeviceGetMigMode") or [None, None]
    rows = ask("nvmlDeviceGetRemappedRows")
    minor = ask("nvmlDeviceGetMinorNumber")
    architecture = ask("nvmlDeviceGetArchitecture")
    nodes = ask("nvmlDeviceGetMemoryAffinity", 4, 0)  # 4 words of 64 nodes; scope 0 is the node (nvml.h)
    total = plain_memory.total if plain_memory else None
    reserved = memory.reserved if memory else None
    return {
        "index": index,
        "name": ask("nvmlDeviceGetName"),
        "uuid": ask("nvmlDeviceGetUUID"),
        "pci_id": sysfs_pci_id(_text(pci.busId)) if pci else None,
        "device_node": None if minor is None else f"/dev/nvidia{minor}",
        "architecture": None if architecture is None else ARCHITECTURES.get(architecture, "unknown"),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        "total_bytes": total,
        "reserved_bytes": reserved,
        "cuda_visible_bytes": None if total is None or reserved is None else total - reserved,
        "used_bytes": plain_memory.used if plain_memory else None,
        "free_bytes": plain_memory.free if plain_memory else None,
        "bar1_total_bytes": bar1.bar1Total if bar1 else None,
        "bar1_used_bytes": bar1.bar1Used if bar1 else None,
        "pcie": {
            "generation": ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "generation_max": ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            "width": ask("nvmlDeviceGetCurrPcieLinkWidth"),
            "width_max": ask("nvmlDeviceGetMaxPcieLinkWidth"),
        },
        "ecc": {
            "enabled": _flag(ecc[0]),
            "pending": _flag(ecc[1]),
            # 1 = uncorrected, 0 = since the driver was loaded (nvml.h).
            "uncorrected": ask("nvmlDeviceGetTotalEccErrors", 1, 0),
        },
        "mig": {"enabled": _flag(mig[0]), "pending": _flag(mig[1])},
        "persistence": _flag(ask("nvmlDeviceGetPersistenceMode")),
        "compute_mode": ask("nvmlDeviceGetComputeMode"),
        "power": {
            "usage_watts": _watts(ask("nvmlDeviceGetPowerUsage")),
            "limit_watts": _watts(ask("nvmlDeviceGetEnforcedPowerLimit")),
            "default_limit_watts": _watts(ask("nvmlDeviceGetPowerManagementDefaultLimit")),
        },
        "temperature": {
            "celsius": ask("nvmlDeviceGetTemperature", 0),
            "slowdown_celsius": ask("nvmlDeviceGetTemperatureThreshold", 1),
        },
        "remapped_rows": {
            "correctable": rows[0] if rows else None,
            "uncorrectable": rows[1] if rows else None,
            "pending": _flag(rows[2]) if rows else None,
            "failed": _flag(rows[3]) if rows else None,
        },
        "numa_node": first_node(nodes) if nodes is not None else None,
        "fabric": read_fabric(call, handle),
        "errors": dict(call.errors),
    }


# The call and its structure, the older one for drivers before 535.
_FABRIC_CALLS = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)


def read_fabric(call: Call, handle: Any) -> Facts:
    """Whether a GPU is registered at the NVSwitches of its machine.

    Returns:
        ``state``: ``not_supported`` (it has none), ``not_started``, ``in_progress`` or ``completed``; ``status``: how that
        ended, ``success`` or NVML's name of the failure, None before. Both None where NVML does not say.
    """
    for function, structure in _FABRIC_CALLS:
        make = getattr(call.client, structure, None)
        if make is None:  # an older pynvml
            continue
        info = make()
        if call(function, handle, ctypes.byref(info)) is None:
            continue
        # The library writes one byte (nvml.h), pynvml's field has four.
        state = FABRIC_STATES.get(info.state & 0xFF, "unknown")
        status = None
        if state == "completed":  # else it means nothing (nvml.h)
            status = error_name(call.client, info.status) if info.status else "success"
        return {"state": state, "status": status}
    return {"state": None, "status": None}


def first_node(words: Iterable[int]) -> Optional[int]:
    """The lowest node in a set of NUMA nodes, 64 to a word; None if the set is empty."""
    for index, word in enumerate(words):
        if word:
            return 64 * index + (word & -word).bit_length() - 1
    return None


def _empty_gpu(index: int) -> Facts:
    """The shape of :func:`read_gpu` for a GPU of which NVML gives no handle (it fell off the bus, say)."""
    names = (
        "name uuid pci_id device_node architecture compute_capability total_bytes reserved_bytes cuda_visible_bytes used_bytes "
        "free_bytes bar1_total_bytes bar1_used_bytes persistence compute_mode numa_node"
    )
    groups = {
        "pcie": "generation generation_max width width_max",
        "ecc": "enabled pending uncorrected",
        "mig": "enabled pending",
        "power": "usage_watts limit_watts default_limit_watts",
        "temperature": "celsius slowdown_celsius",
        "remapped_rows": "correctable uncorrectable pending failed",
        "fabric": "state status",
    }
    gpu: Facts = {"index": index, **dict.fromkeys(names.split())}
    gpu.update({group: dict.fromkeys(keys.split()) for group, keys in groups.items()})
    return gpu


def read_processes(call: Call, handle: Any, index: int) -> list[Facts]:
    """Compute processes on one GPU. ``memory_bytes`` is None where the driver hides it (in a container, or under MIG)."""
    found = call("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    if (
        found is None
    ):  # not the name without a number: pynvml raises another kind of error where its version is not there
        found = call("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    return [{"gpu": index, "pid": one.pid, "memory_bytes": one.usedGpuMemory} for one in found or []]


def read_p2p(call: Call, handles: list[Any]) -> Facts:
    """How each pair of GPUs reaches the other, as square matrices by index.

    ``access``: ``ok`` where both read and write work, else NVML's reason, ``self`` on the diagonal; ``nvlink``: true where
    that path is NVLink; ``topology``: ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS`` as nvidia-smi prints them. None where
    NVML does not say. Each pair is asked once: the three are symmetric.
    """
    size = len(handles)
    access: list[list[Any]] = [["self" if row == column else None for column in range(size)] for row in range(size)]
    nvlink: list[list[Any]] = [[None] * size for _row in range(size)]
    topology: list[list[Any]] = [["X" if row == column else None for column in range(size)] for row in range(size)]
    for row in range(size):
        for column in range(row + 1, size):
            pair = (handles[row], handles[column])
            if None in pair:
                continue
            # 0 read, 1 write, 2 NVLink (nvml.h, nvmlGpuP2PCapsIndex_t).
            states = [call("nvmlDeviceGetP2PStatus", *pair, index) for index in (0, 1)]
            access[row][column] = access[column][row] = _p2p_state(states)
            link = call("nvmlDeviceGetP2PStatus", *pair, 2)
            nvlink[row][column] = nvlink[column][row] = None if link is None else link == 0
            level = call("nvmlDeviceGetTopologyCommonAncestor", *pair)
            topology[row][column] = topology[column][row] = TOPOLOGY.get(level)
    return {"access": access, "nvlink": nvlink, "topology": topology}


def _p2p_state(states: list[Optional[int]]) -> Optional[str]:
    if None in states:
        return None
    worst = max(state for state in states if state is not None)
    return P2P_STATUS.get(worst, "unknown")


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _flag(value: Optional[int]) -> Optional[bool]:
    return None if value is None else bool(value)


def _watts(milliwatts: Optional[int]) -> Optional[float]:
    return None if milliwatts is None else milliwatts / 1000
