# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules as Ansible calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import TensorGroup
from ansible_collections.gpuhost.vllm.plugins.modules import deployment_plan, kv_cache_budget
from memory_cases import KV_CASES, write_checkpoint

from tests.unit.module_process import module_process


def run(module: Any, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    with module_process(options), pytest.raises(SystemExit):
        module.main()
    return dict(json.loads(capsys.readouterr().out))


def test_reference_case(capsys: pytest.CaptureFixture[str]) -> None:
    case = KV_CASES["kimi25-tp8-bf16"]
    result = run(
        kv_cache_budget,
        capsys,
        config=case["config"],
        hf_quant_config=case["hf_quant_config"],
        engine_args=case["engine_args"],
        vllm_version="0.32.0",
        gpu_total_bytes=case["gpu"]["total_bytes"],
        compute_capability="12.0",
        available_kv_cache_bytes=case["available_memory"],
        weights_bytes_per_gpu=[76439268692],
        overhead_bytes_per_gpu=8 * 2**30,
        _ansible_check_mode=True,
    )
    budget = result["budget"]
    assert result["changed"] is False
    assert (budget["max_model_len"], budget["max_model_len_fit"], budget["num_gpu_blocks"]) == (131072, 178752, 11173)
    assert budget["overhead_bytes_per_gpu"]["low"] == budget["overhead_bytes_per_gpu"]["high"] == 8 * 2**30
    assert budget["weights_bytes_per_gpu"] == [76439268692]


def test_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [TensorGroup("model.layers.0.mlp.up_proj.weight", "BF16", (64, 32), 1, 4096)]
    write_checkpoint(tmp_path, KV_CASES["llama8b-tp1"]["config"], groups, 1)
    result = run(kv_cache_budget, capsys, path=str(tmp_path), gpu_total_bytes=80 * 2**30, compute_capability="9.0")
    assert result["budget"]["weights"]["source"] == "headers"
    assert result["checkpoint"]["origin"] == str(tmp_path)
    plan = run(deployment_plan, capsys, path=str(tmp_path), gpus="1x80GB", measured="")
    assert plan["plan"]["model"] == str(tmp_path) and plan["plan"]["bytes_to_download"] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"path": "/nowhere"}, "checkpoint_not_found"),
        ({"config": {"model_type": "llama"}}, "bad_config"),
        ({"config": KV_CASES["llama8b-tp1"]["config"]}, "gpu_memory_unknown"),
        ({"config": KV_CASES["llama8b-tp1"]["config"], "compute_capability": "new"}, "bad_value"),
        ({"config": KV_CASES["llama8b-tp1"]["config"], "available_kv_cache_bytes": [-5]}, "bad_value"),
        (
            {"config": KV_CASES["llama8b-tp1"]["config"], "available_kv_cache_bytes": [5], "vllm_version": "new"},
            "bad_value",
        ),
    ],
)
def test_failures_have_a_code(options: dict[str, Any], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(kv_cache_budget, capsys, **options)
    assert result["failed"] and result["failure"]["code"] == code and result["msg"]


def test_exactly_one_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert "one of the following" in run(kv_cache_budget, capsys)["msg"]
    assert "mutually exclusive" in run(kv_cache_budget, capsys, path="/a", repo_id="b/c")["msg"]


def test_a_hub_needs_its_library() -> None:
    # In a process of its own: what an import found missing stays missing there.
    program = """
import sys
sys.modules["huggingface_hub"] = None
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpuhost.vllm.plugins.modules import kv_cache_budget
with patch_module_args({"repo_id": "org/name"}):
    kv_cache_budget.main()
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    result = json.loads(process.stdout)
    assert result["failure"] == {"code": "missing_library", "details": {"library": "huggingface_hub"}}
    assert "vllm_tools.python" in result["msg"]


def test_a_misspelt_option_is_noted_by_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    options = {
        "engine_args": {"gpu-memory-utilisation": 0.5, "kv_cache_memory_bytes": "4G"},
        "compute_capability": "9.0",
    }
    found = run(kv_cache_budget, capsys, config=KV_CASES["llama8b-tp1"]["config"], **options)
    notes = [reason for reason in found["budget"]["reasons"] if "not known to the plan" in reason]
    assert len(notes) == 1 and "gpu_memory_utilisation (did you mean gpu_memory_utilization?)" in notes[0]


def test_a_cpu_is_asked_for_its_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [TensorGroup("model.layers.0.mlp.up_proj.weight", "BF16", (64, 32), 1, 4096)]
    write_checkpoint(tmp_path, KV_CASES["llama8b-tp1"]["config"], groups, 1)
    options = {"path": str(tmp_path), "device": "cpu", "env": {"VLLM_CPU_KVCACHE_SPACE": "1000000"}, "measured": ""}
    refused = run(deployment_plan, capsys, **options, store=str(tmp_path))
    assert refused["failure"]["code"] == "host_memory_too_small"
    assert run(deployment_plan, capsys, **options)["plan"]["budget"]["source"] == "given", "another host is not asked"


def test_a_release_that_yaml_made_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"config": KV_CASES["llama8b-tp1"]["config"], "vllm_version": 0.3}
    for module, more in ((deployment_plan, {"gpus": "1x96GB"}), (kv_cache_budget, {"gpu_total_bytes": 10**11})):
        refused = run(module, capsys, **options, **more)
        assert refused["failure"]["code"] == "bad_value" and "vllm_version: '0.30.0'" in refused["msg"]


def test_a_recipe_that_could_not_be_read_is_told_by_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = {"failure": {"code": "bad_recipe", "message": "/x.yml: is missing.", "details": {"file": "/x.yml"}}}
    refused = run(deployment_plan, capsys, config=KV_CASES["llama8b-tp1"]["config"], gpus="1x96GB", recipe=recipe)
    assert refused["msg"] == "/x.yml: is missing."
    assert refused["failure"] == {"code": "bad_recipe", "details": {"file": "/x.yml"}}
