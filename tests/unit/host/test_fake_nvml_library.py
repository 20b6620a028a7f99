"""The fake NVML as the real pynvml sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host import image

Ask = Callable[..., Any]  # see conftest.py
MIB = 2**20


def test_without_a_file_there_are_eight_rtx_pro_6000(ask: Ask) -> None:
    answer = ask(
        "dict(count=n.nvmlDeviceGetCount(), name=n.nvmlDeviceGetName(gpu(7)), cc=n.nvmlDeviceGetCudaComputeCapability(gpu(7)),"
        " total=n.nvmlDeviceGetMemoryInfo(gpu(7)).total, driver=n.nvmlSystemGetDriverVersion(),"
        " cuda=n.nvmlSystemGetCudaDriverVersion_v2(), uuids=len({n.nvmlDeviceGetUUID(gpu(i)) for i in range(8)}),"
        " buses=len({n.nvmlDeviceGetPciInfo(gpu(i)).busId for i in range(8)}))"
    )
    assert answer == {
        "count": 8,
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "cc": [12, 0],
        "total": 97887 * MIB,
        "driver": "580.95.05",
        "cuda": 13000,
        "uuids": 8,
        "buses": 8,
    }


def test_memory_in_both_versions_agrees_as_on_a_real_gpu(ask: Ask) -> None:
    config = {"gpu": {"memory_total_mib": 1000, "memory_reserved_mib": 100, "memory_used_mib": 300}}
    expression = "[[m.total, m.free, m.used] for m in [n.nvmlDeviceGetMemoryInfo(gpu(0)), n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2)]]"
    assert ask(expression, config) == [[1000 * MIB, 600 * MIB, 400 * MIB], [1000 * MIB, 600 * MIB, 300 * MIB]]


def test_one_gpu_differs_from_the_others(ask: Ask) -> None:
    config = {"gpu": {"name": "all"}, "gpus": [{}, {"name": "second", "pcie_width": 8}]}
    names = "[[n.nvmlDeviceGetName(gpu(i)), n.nvmlDeviceGetCurrPcieLinkWidth(gpu(i))] for i in range(n.nvmlDeviceGetCount())]"
    assert ask(names, config) == [["all", 16], ["second", 8]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DRIVER_NOT_LOADED", "DriverNotLoaded"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch"),
        (4, "NoPermission"),
    ],
)
def test_init_fails_as_asked(ask: Ask, name: object, expected: str) -> None:
    assert ask("0", {"errors": {"nvmlInit": name}}) == f"NVMLError_{expected}"


def test_before_init_only_the_version_of_the_library_is_told(ask: Ask) -> None:
    assert ask("n.nvmlShutdown() or n.nvmlSystemGetNVMLVersion()") == "13.580.95.05"
    assert ask("n.nvmlShutdown() or n.nvmlSystemGetDriverVersion()") == "NVMLError_Uninitialized"
    assert ask("n.nvmlShutdown() or n.nvmlShutdown()") == "NVMLError_Uninitialized"


def test_an_error_holds_for_one_function_of_one_gpu(ask: Ask) -> None:
    config = {"gpus": [{}, {"errors": {"nvmlDeviceGetBAR1MemoryInfo": 3}}]}
    assert ask("n.nvmlDeviceGetBAR1MemoryInfo(gpu(0)).bar1Total", config) == 131072 * MIB
    assert ask("n.nvmlDeviceGetBAR1MemoryInfo(gpu(1)).bar1Total", config) == "NVMLError_NotSupported"
    assert ask("n.nvmlDeviceGetName(gpu(1))[:6]", config) == "NVIDIA"


def test_an_error_holds_for_the_later_versions_of_a_function_too(ask: Ask) -> None:
    both = {"errors": {"nvmlDeviceGetMemoryInfo": "NO_PERMISSION"}}
    assert ask("n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2).total", both) == "NVMLError_NoPermission"
    later = {"errors": {"nvmlDeviceGetMemoryInfo_v2": "NO_PERMISSION"}}
    assert ask("n.nvmlDeviceGetMemoryInfo(gpu(0)).total", later) == 97887 * MIB


def test_a_lost_gpu_is_found_but_answers_nothing(ask: Ask) -> None:
    config = {"gpus": [{}, {"errors": {"*": "GPU_IS_LOST"}}]}
    assert ask("n.nvmlDeviceGetName(gpu(1))", config) == "NVMLError_GpuIsLost"
    assert ask("n.nvmlDeviceGetName(gpu(0))[:6]", config) == "NVIDIA"


def test_null_means_not_supported(ask: Ask) -> None:
    assert ask("n.nvmlDeviceGetEccMode(gpu(0))", {"gpu": {"ecc_mode": None}}) == "NVMLError_NotSupported"


def test_a_function_that_the_fake_lacks_is_missing(ask: Ask) -> None:
    assert ask("n.nvmlDeviceGetEncoderStats(gpu(0))") == "NVMLError_FunctionNotFound"


def test_processes_use_memory_as_long_as_they_live(ask: Ask, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "a-server-of-ours"])
    pid_file = tmp_path / "server.pid"
    pid_file.write_text(f"{process.pid}\n")
    config = {
        "gpu": {
            "processes": [
                {"pid": 4194999, "used_mib": 10},
                {"pid": 4194998, "used_mib": 20, "while_alive": True},
                {"pid_file": str(pid_file), "used_mib": 30},
                {"command": "a-server-of-ours", "used_mib": 40},
                {"pid": 4194997, "type": "graphics", "used_mib": None},
            ]
        }
    }
    expression = (
        "dict(compute=[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(gpu(0))],"
        " graphics=[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetGraphicsRunningProcesses(gpu(0))],"
        " used=n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2).used)"
    )
    try:
        answer = ask(expression, config)
    finally:
        process.kill()
        process.wait()
    assert answer["compute"] == [[4194999, 10 * MIB], [process.pid, 30 * MIB], [process.pid, 40 * MIB]]
    assert answer["graphics"] == [[4194997, None]]
    assert answer["used"] == 80 * MIB
    assert ask(expression, config)["compute"] == [[4194999, 10 * MIB]]


def test_memory_frees_slowly(ask: Ask, tmp_path: Path) -> None:
    used = "n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2).used // 2**20"
    course = {"gpu": {"memory_used_mib": [[0, 8000], [1000, 8000], [2000, 0]]}}
    assert ask(used, course) == 8000

    def written(seconds_ago: float) -> str:
        path = tmp_path / "gpus.json"
        return f"__import__('os').utime({str(path)!r}, (time.time() - {seconds_ago},) * 2) or n.nvmlInit() or {used}"

    assert ask(written(1500), course) == pytest.approx(4000, abs=100)
    assert ask(written(5000), course) == 0


def test_peers(ask: Ask) -> None:
    same, other = "gpu(0), gpu(1)", "gpu(0), gpu(4)"
    assert ask(f"n.nvmlDeviceGetTopologyCommonAncestor({same})") == 40
    assert ask(f"n.nvmlDeviceGetTopologyCommonAncestor({other})") == 50
    config = {"gpus": 2, "p2p": {"read": [[0, 4], [3, 0]], "nvlink": 5}, "topology": [[0, 20], [20, 0]]}
    assert ask(
        "[n.nvmlDeviceGetP2PStatus(gpu(0), gpu(1), 0), n.nvmlDeviceGetP2PStatus(gpu(1), gpu(0), 0)]", config
    ) == [4, 3]
    assert ask(f"n.nvmlDeviceGetP2PStatus({same}, 2)", config) == 5
    assert ask(f"n.nvmlDeviceGetTopologyCommonAncestor({same})", config) == 20


def test_every_init_reads_the_file_again(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    rewrite = f"[n.nvmlDeviceGetCount(), open({str(path)!r}, 'w').write('{{\"gpus\": 1}}') and n.nvmlInit(), n.nvmlDeviceGetCount()]"
    assert ask(rewrite, {"gpus": 3}) == [3, None, 1]


def test_a_file_that_is_no_json_fails_aloud(fake_nvml_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_text('{"gpus": 8,\n "gpu": {"name": }\n}\n')
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fake_nvml_folder), "FAKE_NVML_CONFIG": str(path)}
    command = [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{path}: no JSON object (line 2)" in done.stderr


def test_strings_of_the_file_may_hold_escapes(ask: Ask) -> None:
    name = 'A "fast" GPU \\ 100 % \u00e9\u20ac\t'
    assert ask("n.nvmlDeviceGetName(gpu(0))", {"gpu": {"name": name}}) == name


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"gpus": 01x}', '{"a" 1}', '{"gpus": 1} trailing', '{"a": "\\q"}', "[" * 5000]
)
def test_malformed_files_are_refused(ask: Ask, text: str) -> None:
    assert ask("0", text) == "NVMLError_Unknown"


def test_the_defaults_say_every_key_that_is_read() -> None:
    source = "".join(
        (image.FAKE_NVML / name).read_text() for name in ("nvml.c", "gpu.c", "health.c", "peers.c", "config.c")
    )
    defaults = json.loads((image.FAKE_NVML / "default.json").read_text())
    read = set(re.findall(r'gpu_value\((?:gpu|peer|index), "(\w+)"\)', source))
    read |= set(re.findall(r'_GETTER\(\w+, "(\w+)"\)', source)) | {"uuid", "serial"}
    assert set(defaults["gpu"]) == read - {"minor_number"}  # which is the index unless said otherwise
    read = set(re.findall(r'machine_value\("(\w+)"\)', source))
    assert set(defaults) == read - {"topology"} | {"gpu", "errors", "kernel_module"}
