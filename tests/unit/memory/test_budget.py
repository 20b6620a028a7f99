# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget of a GPU: vLLM's own answers through the module's path, sources of the memory, recommendation, remedies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.budget import Budget, BudgetRequest, compute_budget
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.budget_result import budget_result
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import given_configuration
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.measured import Measurement
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.recommendation import (
    LEAST_CONCURRENCY,
    ROUND_TOKENS,
    recommended_length,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import GPU_CASES, KV_CASES, RTX_PRO_6000, kv_case_request

GIB = 2**30
KIMI = KV_CASES["kimi25-tp8-bf16"]


def kimi(**changes: Any) -> BudgetRequest:
    return kv_case_request(KIMI, **changes)


def forecast(**changes: Any) -> BudgetRequest:
    return kimi(available_kv_cache_bytes=(), gpu=RTX_PRO_6000, **changes)


@pytest.mark.parametrize("name", KV_CASES)
def test_equals_vllm(name: str) -> None:
    case = KV_CASES[name]
    expected = case["expected"]
    found = budget_result(compute_budget(kv_case_request(case)))
    assert found["max_model_len_fit"] == expected["max_model_len_fit"]
    assert found["block_size"] == expected["block_size"]
    assert found["bytes_per_block"] == expected["bytes_per_block"]
    assert found["kv_bytes_per_token"] == pytest.approx(max(expected["bytes_per_token_per_gpu"]), rel=1e-4)
    for length, at in expected["at_max_model_len"].items():
        asked = compute_budget(kv_case_request(case, engine_args={**case["engine_args"], "max_model_len": int(length)}))
        result = budget_result(asked)
        assert result["fits"] is ("error" not in at)
        if result["fits"]:
            assert result["num_gpu_blocks"] == at["num_blocks"]
            assert result["kv_cache_tokens"] == at["kv_cache_tokens"]
            assert result["max_concurrency"] == pytest.approx(at["max_concurrency"], abs=1e-6)
            assert result["remedies"] == []


@pytest.mark.parametrize("name", GPU_CASES)
def test_available_memory_equals_the_measurement(name: str) -> None:
    case = GPU_CASES[name]
    request = BudgetRequest(
        checkpoint=given_configuration(case["config"]),
        engine_args=case["engine_args"],
        vllm_version="0.23.0",
        gpu=Gpu(case["nvml_total_bytes"], (9, 0), name="NVIDIA H200"),
        gpu_reserved_bytes=case["nvml_total_bytes"] - case["cuda_total_bytes"],
        weights_bytes_per_gpu=[case["weights_bytes"]],
        env={"VLLM_USE_V2_MODEL_RUNNER": "0"} if name == "llama8b_v1run_g8192" else {},
    )
    found = budget_result(compute_budget(request))
    assert found["source"] == "forecast"
    assert found["available_kv_cache_bytes"] == pytest.approx(case["available_kv_cache_bytes"], rel=0.01)


@pytest.mark.parametrize(
    ("release", "fit"), [("0.32.0", 178_752), ("0.29.0", 178_752), ("0.28.0", 178_768), ("0.20.2", 178_768)]
)
def test_reference(release: str, fit: int) -> None:
    """11.7 GiB for the cache of a GPU, as the reference deployment reported."""
    found = budget_result(compute_budget(kimi(vllm_version=release)))
    assert (found["max_model_len"], found["max_model_len_fit"], found["fits"]) == (131072, fit, False)
    words = " ".join(found["reasons"])
    assert "262,144 tokens need 17.16 GiB and do not fit" in words
    assert f"at most {fit:,}" in words and "MLA is not divided" in words
    assert "Recommended: 131,072 tokens, the longest round length of which one request leaves a quarter" in words
    assert found["max_num_seqs"]["recommended"] == 64 and found["max_num_seqs"]["current"] == 1024
    assert "max_num_seqs 64 instead of 1024 would give back" in words


def test_reference_with_its_own_options_fits() -> None:
    args = {**KIMI["engine_args"], "max_model_len": 131072}
    found = budget_result(compute_budget(kimi(engine_args=args)))
    assert found["fits"] and found["max_model_len_fit"] == 178_752 and found["max_model_len"] == 131072


def test_remedies_in_order_of_cost_with_numbers() -> None:
    found = budget_result(compute_budget(kimi()))
    assert [way["action"] for way in found["remedies"]] == [
        "context",
        "max_num_seqs",
        "decode_context_parallel",
        "utilization",
        "more_gpus",
    ]
    assert all(any(character.isdigit() for character in way["text"]) for way in found["remedies"])
    parallel = next(way for way in found["remedies"] if way["action"] == "decode_context_parallel")
    assert parallel["engine_args"] == {"decode_context_parallel_size": 2} and parallel["enough"]


def test_an_fp8_cache_is_offered_only_where_it_works() -> None:
    """Not for dense MLA on SM120 with a release whose kernel does not fit; for the same model on Hopper yes."""

    def actions(gpu: Gpu, release: str) -> list[str]:
        return [way["action"] for way in budget_result(compute_budget(kimi(gpu=gpu, vllm_version=release)))["remedies"]]

    assert "kv_cache_dtype" not in actions(RTX_PRO_6000, "0.32.0")
    assert "kv_cache_dtype" in actions(Gpu(150_754_820_096, (9, 0), name="NVIDIA H200"), "0.32.0")


def test_forecast_names_its_range() -> None:
    budget = compute_budget(forecast())
    found = budget_result(budget)
    ends = found["available_kv_cache_bytes_range"]
    assert found["source"] == "forecast"
    assert ends["low"] < found["available_kv_cache_bytes"] < ends["high"]
    assert found["overhead_bytes_per_gpu"]["low"] < 7.72 * GIB < found["overhead_bytes_per_gpu"]["high"]
    assert ends["low"] < 11.7 * GIB < ends["high"]
    assert found["weights_bytes_per_gpu"] == pytest.approx([76_439_268_692], rel=0.001)
    low_end = compute_budget(replace(budget.request, available_kv_cache_bytes=(ends["low"],)))
    assert found["max_model_len"] <= low_end.max_model_len_fit, "what is recommended fits at the low end too"


def test_a_measurement_replaces_the_forecast() -> None:
    measurement = Measurement(
        {"model": "x"},
        round(11.7 * GIB),
        kv_cache_tokens=178_768,
        max_model_len=131072,
        measured_at="2026-12-01T00:00:00Z",
    )
    found = budget_result(compute_budget(forecast(measurement=measurement)))
    assert found["source"] == "measured"
    assert found["kv_cache_tokens"] == 178_768, "the log's 11.70 GiB are rounded, its tokens are not"
    assert found["available_kv_cache_bytes"] == pytest.approx(11.7 * GIB, abs=0.005 * GIB)
    given_too = compute_budget(kimi(measurement=measurement, available_kv_cache_bytes=[10 * GIB]))
    assert given_too.available.source == "given"


def test_cpu_takes_its_own_variable() -> None:
    cpu = Gpu(device="cpu")
    request = kv_case_request(KV_CASES["llama8b-tp1"], gpu=cpu, available_kv_cache_bytes=())
    found = compute_budget(replace(request, env={"VLLM_CPU_KVCACHE_SPACE": "3"}))
    assert found.available.smallest == 3 * GIB and found.overhead is None and found.available.source == "given"
    for env in ({}, {"VLLM_CPU_KVCACHE_SPACE": "much"}, {"VLLM_CPU_KVCACHE_SPACE": "0"}):
        with pytest.raises(VllmHostError, match="VLLM_CPU_KVCACHE_SPACE") as caught:
            compute_budget(replace(request, env=env))
        assert caught.value.code == "gpu_memory_unknown"


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"available_kv_cache_bytes": [-1]}, "bad_value", "available_kv_cache_bytes"),
        ({"weights_bytes_per_gpu": [-1]}, "bad_value", "weights_bytes_per_gpu"),
        ({"overhead_bytes_per_gpu": -5}, "bad_value", "overhead_bytes_per_gpu"),
        ({"gpu": Gpu(-1)}, "bad_value", "gpu_total_bytes"),
        ({"gpu": Gpu(10), "gpu_reserved_bytes": 10}, "bad_value", "gpu_reserved_bytes"),
        ({"weights_bytes_per_gpu": [1, 2]}, "bad_value", "2 numbers for 1 pipeline ranks"),
        ({"available_kv_cache_bytes": (), "gpu": Gpu()}, "gpu_memory_unknown", "gpu_total_bytes"),
        ({"engine_args": {"tensor_parallel_size": 3}}, "bad_engine_args", "64 attention heads"),
        ({"checkpoint": given_configuration({"model_type": "llama"})}, "bad_config", "is missing"),
        ({"checkpoint": given_configuration({})}, "bad_config", "config.json"),
    ],
)
def test_bad_input(changes: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(VllmHostError) as caught:
        compute_budget(kimi(**changes))
    assert caught.value.code == code
    assert says in caught.value.message


def test_weights_of_an_unknown_architecture_are_never_guessed() -> None:
    strange = {**KV_CASES["llama8b-tp1"]["config"], "architectures": ["NobodyKnowsForCausalLM"]}
    with pytest.raises(VllmHostError, match="give path or repo_id") as caught:
        compute_budget(BudgetRequest(checkpoint=given_configuration(strange), gpu=RTX_PRO_6000))
    assert caught.value.code == "weights_unknown"


def test_not_even_the_weights_fit() -> None:
    request = replace(forecast(), engine_args={"tensor_parallel_size": 2, "kv_cache_dtype": "bfloat16"})
    budget = compute_budget(request)
    found = budget_result(budget)
    assert found["available_kv_cache_bytes"] < 0 and not found["fits"]
    assert (found["max_model_len_fit"], found["max_model_len"], found["num_gpu_blocks"]) == (0, 0, 0)
    gpus = next(way for way in found["remedies"] if way["action"] == "more_gpus")
    assert gpus["engine_args"]["tensor_parallel_size"] in (8, 16)


def is_round(length: int) -> bool:
    return length & (length - 1) == 0 or length % ROUND_TOKENS == 0


NAMES = ["kimi25-tp8-bf16", "llama70b-tp4", "gemma3-27b-tp1", "qwen3next-tp1", "nemotron3nano-tp1", "dsv2lite-tp1"]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(NAMES), st.integers(0, 60 * GIB), st.integers(0, GIB))
def test_properties(name: str, available: int, more: int) -> None:
    """More memory never gives fewer tokens; the fit is the true boundary; the recommendation keeps its rule."""

    def with_memory(size: int) -> Budget:
        return compute_budget(kv_case_request(KV_CASES[name], available_kv_cache_bytes=[size]))

    budget, larger = with_memory(available), with_memory(available + more)
    assert larger.capacity.kv_cache_tokens >= budget.capacity.kv_cache_tokens
    assert larger.max_model_len_fit >= budget.max_model_len_fit
    fit, usable = budget.max_model_len_fit, budget.available.usable
    if fit:
        assert budget.plan.fits(usable, fit)
    if fit < budget.plan.engine.max_model_len:
        assert not budget.plan.fits(usable, fit + 1)
    length = recommended_length(budget)
    assert length <= fit
    if length:
        assert is_round(length)
        assert budget.capacity_at(length).max_concurrency >= LEAST_CONCURRENCY
