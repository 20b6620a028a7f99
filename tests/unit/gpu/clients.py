"""Stand-ins for the module pynvml, to put any answer and any error code in the place of one call."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml

GIB = 2**30
TOTAL = 97887 * 2**20  # RTX PRO 6000 Blackwell: what nvidia-smi shows
RESERVED = 637 * 2**20


def refuse(code: int):
    """A call that NVML answers with an error code."""

    def call(*_arguments, **_named):
        raise pynvml.NVMLError(code)

    return call


def fabric(state: int, status: int = 0):
    """A GPU's place at the NVSwitches, as nvmlDeviceGetGpuFabricInfoV writes it into the caller's structure."""

    def call(_handle, info):
        info._obj.state, info._obj.status = state, status
        return pynvml.NVML_SUCCESS

    return call


def client(count: int = 1, **calls):
    """A healthy host with ``count`` GPUs; ``calls`` replace functions by name."""

    def memory(_handle, version=None):
        values = {"total": TOTAL, "used": 0, "free": TOTAL - RESERVED}
        return SimpleNamespace(**values, reserved=RESERVED) if version else SimpleNamespace(**values)

    healthy = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetNVMLVersion": lambda: "13.580.95.05",
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _handle: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetMinorNumber": lambda handle: handle,
        "nvmlDeviceGetPciInfo_v3": lambda handle: SimpleNamespace(busId=b"00000000:%02X:00.0" % (handle + 1)),
        "nvmlDeviceGetArchitecture": lambda _handle: 10,
        "nvmlDeviceGetCudaComputeCapability": lambda _handle: (12, 0),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetBAR1MemoryInfo": lambda _handle: SimpleNamespace(bar1Total=128 * GIB, bar1Used=0),
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda _handle: 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda _handle: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda _handle: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda _handle: 16,
        "nvmlDeviceGetMemoryAffinity": lambda handle, words, scope: [1 << handle % 2, *[0] * (words - 1)],
        "nvmlDeviceGetEccMode": lambda _handle: [1, 1],
        "nvmlDeviceGetTotalEccErrors": lambda *_arguments: 0,
        "nvmlDeviceGetMigMode": lambda _handle: [0, 0],
        "nvmlDeviceGetPersistenceMode": lambda _handle: 1,
        "nvmlDeviceGetComputeMode": lambda _handle: 0,
        "nvmlDeviceGetPowerUsage": lambda _handle: 90_000,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _handle: 600_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda _handle: 600_000,
        "nvmlDeviceGetTemperature": lambda *_arguments: 35,
        "nvmlDeviceGetTemperatureThreshold": lambda *_arguments: 89,
        "nvmlDeviceGetRemappedRows": lambda _handle: (0, 0, 0, 0),
        "nvmlDeviceGetComputeRunningProcesses_v3": lambda _handle: [],
        "nvmlDeviceGetGpuFabricInfoV": fabric(0),
        "nvmlDeviceGetP2PStatus": lambda *arguments: 5 if arguments[2] == 2 else 0,
        "nvmlDeviceGetTopologyCommonAncestor": lambda *_arguments: 40,
    }
    codes = {name: value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    types = {name: value for name, value in vars(pynvml).items() if name.startswith("c_nvmlGpuFabricInfo")}
    return SimpleNamespace(**{**codes, **types, "NVMLError": pynvml.NVMLError, "nvmlMemory_v2": 1, **healthy, **calls})


ERROR_CODES = sorted(value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_"))
