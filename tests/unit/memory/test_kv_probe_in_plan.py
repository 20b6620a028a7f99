"""The plan asks the installed release only where the table does not know, or on request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import given_configuration
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.deployment_plan import PlanRequest, make_plan
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.gpu_inventory import inventory_gpus
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_kernel_probe import release_probe
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_policy import ProbeResult
from memory_cases import KV_CASES


@pytest.fixture
def asked() -> list[tuple]:
    return []


@pytest.fixture
def kimi(asked):
    config = dict(KV_CASES["kimi25-tp8-auto"]["config"])
    scheme = {"dynamic": False, "num_bits": 8, "type": "float"}
    config["quantization_config"] = {**config["quantization_config"], "kv_cache_scheme": scheme}

    def fits(*question) -> ProbeResult:
        asked.append(question)
        return ProbeResult("fits", 83_968, 101_376)

    return PlanRequest(
        model="org/name",
        checkpoint=replace(given_configuration(config), bytes_total=595 * 10**9),
        gpus=inventory_gpus("8x96GB"),
        engine_args={"gpu_memory_utilization": 0.95},
        measured_folder="",
        kv_probe=fits,
    )


def test_a_release_that_the_table_knows_is_not_asked(kimi, asked):
    assert make_plan(kimi)["checkpoint_state"] == "stripped"
    assert asked == []


def test_another_release_is_asked_with_the_dimensions_of_the_model(kimi, asked):
    plan = make_plan(replace(kimi, vllm_version="0.34.0"))
    assert asked == [((12, 0), 512, 64)]
    assert (plan["checkpoint_state"], plan["kv_cache_dtype"]) == ("original", "fp8_e4m3")
    assert plan["kv_decision"]["source"] == "probe of the installed kernel"


def test_on_request_every_release_is_asked(kimi, asked):
    assert make_plan(replace(kimi, kv_probe_always=True))["checkpoint_state"] == "original"
    assert len(asked) == 1


def test_a_release_that_is_not_installed_cannot_be_asked(kimi):
    plan = make_plan(replace(kimi, vllm_version="0.34.0", kv_probe=None))
    assert plan["checkpoint_state"] == "stripped"
    assert "nearest older row" in plan["kv_decision"]["reason"]
    assert plan["probe_useful"]


def test_how_the_release_is_found(tmp_path):
    assert release_probe("", "0.34.0", "always") is None
    assert release_probe(str(tmp_path), "0.34.0", "always") is None
    python = tmp_path / "0.34.0-abcd" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert release_probe(str(tmp_path), "0.34.0", "never") is None
    probe = release_probe(str(tmp_path), "0.34.0", "auto")
    assert probe is not None
    assert probe((12, 0), 512, 64).verdict == "cannot_tell"


def test_a_stripped_view_that_alone_carries_the_decision_is_planned_in_16_bit(kimi):
    """vLLM 0.17.1 cannot be told bfloat16; with auto it follows the metadata, which the view no longer has."""
    silent = make_plan(replace(kimi, vllm_version="0.17.1"))
    assert (silent["checkpoint_state"], silent["kv_cache_dtype"]) == ("stripped", "auto")
    told = make_plan(kimi)
    assert silent["budget"]["kv_bytes_per_token"] == told["budget"]["kv_bytes_per_token"] == 70_272
