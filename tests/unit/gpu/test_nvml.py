"""NVML's answers as plain values; each refusal is null for that field alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pynvml
import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu import nvml
from clients import ERROR_CODES, RESERVED, TOTAL, client, fabric, refuse

PER_GPU = sorted(name for name in vars(client()) if name.startswith("nvmlDeviceGet"))
NOT_OF_ONE_GPU = (
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetComputeRunningProcesses_v3",
)
QUIET = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}


def test_without_the_client_library_the_result_says_so():
    found = nvml.read(None)
    assert (found["state"], found["gpus"], found["driver_version"]) == ("client_missing", [], None)


def test_a_healthy_host():
    found = nvml.read(client(2))
    assert (found["state"], found["driver_version"], found["library_version"], found["cuda_version"]) == (
        "ok",
        "580.95.05",
        "580.95.05",
        "13.0",
    )
    gpu = found["gpus"][1]
    assert (gpu["pci_id"], gpu["device_node"], gpu["compute_capability"]) == ("0000:02:00.0", "/dev/nvidia1", "12.0")
    assert (gpu["total_bytes"], gpu["cuda_visible_bytes"]) == (TOTAL, TOTAL - RESERVED)
    assert gpu["errors"] == {}
    assert found["p2p"] == {
        "access": [["self", "ok"], ["ok", "self"]],
        "nvlink": [[None, False], [False, None]],
        "topology": [["X", "NODE"], ["NODE", "X"]],
    }


@pytest.mark.parametrize("code", ERROR_CODES)
def test_an_nvml_that_does_not_start_is_a_state(code):
    found = nvml.read(client(nvmlInit=refuse(code)))
    assert found["state"] in ("no_permission", "driver_not_loaded", "library_missing", "version_mismatch", "error")
    assert found["error"]["code"] == code
    assert found["gpus"] == []


def test_a_library_that_does_not_start_still_says_its_release():
    found = nvml.read(client(nvmlInit=refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)))
    assert (found["state"], found["library_version"]) == ("version_mismatch", "580.95.05")


@pytest.mark.parametrize("function", PER_GPU)
def test_a_refused_call_is_null_and_leaves_the_rest(function):
    """Every call that we make, refused with every code that NVML has and some that it may get."""
    for code in (*ERROR_CODES, 31, 4711):
        found = nvml.read(client(2, **{function: refuse(code)}))
        json.dumps(found)
        if function == "nvmlDeviceGetCount":
            assert found["gpus"] == []
            continue
        assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
        gpu = found["gpus"][0]
        assert list(gpu["errors"]) == ([] if code in QUIET or function in NOT_OF_ONE_GPU else [function])
        if function != "nvmlDeviceGetHandleByIndex":
            assert (gpu["name"] is None) == (function == "nvmlDeviceGetName")
            assert (gpu["pci_id"] is None) == (function == "nvmlDeviceGetPciInfo_v3")


def test_a_gpu_without_a_handle_has_the_shape_of_the_others():
    def handle(index):
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    lost, healthy = nvml.read(client(2, nvmlDeviceGetHandleByIndex=handle))["gpus"]
    assert _shape(lost) == _shape(healthy)
    assert lost["errors"] == {"nvmlDeviceGetHandleByIndex": "gpu_is_lost"}


def _shape(value):
    return {key: sorted(part) if isinstance(part, dict) and key != "errors" else None for key, part in value.items()}


def test_without_nvml_v2_memory_the_total_is_known_and_reserved_is_null():
    def memory(_handle, version=None):
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return client().nvmlDeviceGetMemoryInfo(0)

    gpu = nvml.read(client(nvmlDeviceGetMemoryInfo=memory))["gpus"][0]
    assert (gpu["total_bytes"], gpu["reserved_bytes"], gpu["cuda_visible_bytes"]) == (TOTAL, None, None)


@pytest.mark.parametrize(
    ("states", "access"),
    [((0, 0), "ok"), ((0, 1), "chipset_not_supported"), ((4, 0), "disabled_by_regkey"), ((9, 0), "unknown")],
)
def test_peer_access_needs_both_directions(states, access):
    found = nvml.read(
        client(2, nvmlDeviceGetP2PStatus=lambda *arguments: {0: states[0], 1: states[1], 2: 0}[arguments[2]])
    )
    assert found["p2p"]["access"][0][1] == found["p2p"]["access"][1][0] == access


@pytest.mark.parametrize(
    ("told", "kernel"),
    [
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("", None),
        (None, None),
        ("x", None),
    ],
)
def test_pci_ids_are_spelled_as_the_kernel_does(told, kernel):
    assert nvml.sysfs_pci_id(told) == kernel


UNKNOWN_FABRIC = {"state": None, "status": None}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (fabric(0), {"state": "not_supported", "status": None}),
        (fabric(1), {"state": "not_started", "status": None}),
        (fabric(2, 999), {"state": "in_progress", "status": None}),  # the status means nothing yet
        (fabric(3), {"state": "completed", "status": "success"}),
        (fabric(3, 10), {"state": "completed", "status": "timeout"}),
        (fabric(3, 4711), {"state": "completed", "status": "code_4711"}),
        (fabric(7), {"state": "unknown", "status": None}),
        (fabric(0xAB03), {"state": "completed", "status": "success"}),  # one byte is the library's
    ],
)
def test_fabric(answer, expected):
    assert nvml.read(client(nvmlDeviceGetGpuFabricInfoV=answer))["gpus"][0]["fabric"] == expected


def test_an_older_driver_tells_the_fabric_by_its_older_call():
    calls = {"nvmlDeviceGetGpuFabricInfoV": refuse(13), "nvmlDeviceGetGpuFabricInfo": fabric(1)}
    gpu = nvml.read(client(**calls))["gpus"][0]
    assert (gpu["fabric"], gpu["errors"]) == ({"state": "not_started", "status": None}, {})


@pytest.mark.parametrize("code", ERROR_CODES)
def test_a_fabric_that_nvml_does_not_tell_is_null(code):
    calls = {"nvmlDeviceGetGpuFabricInfoV": refuse(code), "nvmlDeviceGetGpuFabricInfo": refuse(code)}
    assert nvml.read(client(**calls))["gpus"][0]["fabric"] == UNKNOWN_FABRIC


def test_a_pynvml_without_the_fabric_leaves_it_null():
    old = client()
    for name in [name for name in vars(old) if "FabricInfo" in name]:
        delattr(old, name)
    gpu = nvml.read(old)["gpus"][0]
    assert (gpu["fabric"], gpu["errors"]) == (UNKNOWN_FABRIC, {})


def test_text_that_is_none_is_null():
    def name(_handle):
        return b"\xff\xfe".decode()

    gpu = nvml.read(client(nvmlDeviceGetName=name))["gpus"][0]
    assert (gpu["name"], gpu["errors"]) == (None, {"nvmlDeviceGetName": "not_text"})


@pytest.mark.parametrize(("words", "node"), [([1], 0), ([2], 1), ([0, 4], 66), ([0, 0], None), ([], None), ([6], 1)])
def test_numa_nodes_are_bits(words, node):
    assert nvml.first_node(words) == node


def test_processes_of_an_older_library_are_found_too():
    one = SimpleNamespace(pid=7, usedGpuMemory=None)
    calls = {
        "nvmlDeviceGetComputeRunningProcesses_v3": refuse(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        "nvmlDeviceGetComputeRunningProcesses_v2": lambda _handle: [one],
    }
    assert nvml.read(client(**calls))["processes"] == [{"gpu": 0, "pid": 7, "memory_bytes": None}]
