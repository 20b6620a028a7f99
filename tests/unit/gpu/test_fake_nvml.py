"""The real pynvml against the fake libnvidia-ml.so.1 of the test hosts, in a process of its own: a library loads once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clients import ERROR_CODES

from tests.host.image import build_fake_nvml

CHECKOUT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu import info, nvml
print(json.dumps(info.collect(nvml.import_client())))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    build_fake_nvml(folder / "libnvidia-ml.so.1")
    return folder


@pytest.fixture
def collect(library, tmp_path):
    """gpu_info's facts with these keys of the fake's JSON changed; without the library if ``keys`` is None."""

    def run(keys):
        config = tmp_path / "gpus.json"
        config.write_text(json.dumps(keys or {}))
        environment = {**os.environ, "FAKE_NVML_CONFIG": str(config), "PYTHONPATH": str(CHECKOUT / ".collections")}
        if keys is not None:
            environment["LD_LIBRARY_PATH"] = str(library)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return run


def test_eight_gpus(collect):
    facts = collect({})
    assert [gpu["total_bytes"] for gpu in facts["gpus"]] == [97887 * 2**20] * 8
    assert {gpu["compute_capability"] for gpu in facts["gpus"]} == {"12.0"}
    assert [gpu["numa_node"] for gpu in facts["gpus"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert facts["p2p"]["access"][0] == ["self", *["ok"] * 7]
    assert facts["p2p"]["topology"][0][3:5] == ["NODE", "SYS"]
    assert facts["problems"] == []


def test_no_library(collect):
    facts = collect(None)
    assert (facts["nvml"]["state"], facts["gpus"]) == ("library_missing", [])


@pytest.mark.parametrize("code", ERROR_CODES)
def test_each_code_at_the_start(collect, code):
    facts = collect({"errors": {"nvmlInit": code}})
    assert facts["nvml"]["error"]["code"] == code
    assert facts["gpus"] == []
    assert any(problem["severity"] == "error" for problem in facts["problems"])


@pytest.mark.parametrize("code", ERROR_CODES)
def test_each_code_from_each_call_about_a_gpu(collect, code):
    """Everything about GPU 1 is refused, also its handle; GPU 0 is whole."""
    facts = collect({"gpus": [{}, {"errors": {"*": code}}]})
    assert len(facts["gpus"]) == 2
    whole, broken = facts["gpus"]
    assert whole["name"] and whole["total_bytes"] and not whole["errors"]
    assert broken["name"] is None and broken["total_bytes"] is None
    json.dumps(facts)


def test_a_machine_whose_fabric_manager_does_not_run(collect):
    facts = collect(
        {"gpus": [{"fabric": {"state": 3, "status": 0}}, {"fabric": {"state": 1, "status": 0}}, {"fabric": None}]}
    )
    assert [gpu["fabric"] for gpu in facts["gpus"]] == [
        {"state": "completed", "status": "success"},
        {"state": "not_started", "status": None},
        {"state": None, "status": None},
    ]
    assert [(problem["id"], problem["gpus"]) for problem in facts["problems"]] == [("fabric_not_ready", [1])]


@pytest.mark.parametrize("code", ERROR_CODES)
def test_each_code_of_the_fabric_leaves_it_null(collect, code):
    refused = {"nvmlDeviceGetGpuFabricInfoV": code, "nvmlDeviceGetGpuFabricInfo": code}
    facts = collect({"gpus": [{"errors": refused}]})
    assert facts["gpus"][0]["fabric"] == {"state": None, "status": None}
    assert "fabric_not_ready" not in [problem["id"] for problem in facts["problems"]]


def test_an_older_library_tells_the_fabric_too(collect):
    keys = {"errors": {"nvmlDeviceGetGpuFabricInfoV": 13}, "fabric": {"state": 3, "status": 10}}
    (gpu,) = collect({"gpus": [keys]})["gpus"]
    assert (gpu["fabric"], gpu["errors"]) == ({"state": "completed", "status": "timeout"}, {})


def test_a_mismatch_of_library_and_module(collect):
    facts = collect({"errors": {"nvmlInit": 18}, "nvml_version": "13.580.105.08"})
    assert facts["nvml"] == {
        "state": "version_mismatch",
        "error": {"code": 18, "name": "lib_rm_version_mismatch"},
        "library_version": "580.105.08",
    }


def test_processes(collect):
    facts = collect({"gpus": [{"processes": [{"pid": os.getpid(), "used_mib": 512}]}]})
    (process,) = facts["processes"]
    assert (process["gpu"], process["pid"], process["memory_bytes"]) == (0, os.getpid(), 512 * 2**20)
    assert process["name"]
