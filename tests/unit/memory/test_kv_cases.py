# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every case whose answer is vLLM's own must be met exactly: blocks, tokens, fit, concurrency, groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_cache import KvPlan, plan_kv_cache

DATA = Path(__file__).parent / "data"


def load_cases() -> list[Any]:
    found = []
    for name in ("kv_cases.json", "extra_cases.json"):
        path = DATA / name
        if path.exists():
            found += [pytest.param(case, id=case["id"]) for case in json.loads(path.read_text())["cases"]]
    return found


def plan_case(case: dict[str, Any]) -> KvPlan:
    gpu = case["gpu"]
    return plan_kv_cache(
        case["config"],
        hf_quant_config=case.get("hf_quant_config"),
        engine_args=case["engine_args"],
        vllm_version=case["expected"]["vllm"],
        gpu=Gpu(gpu["total_bytes"], tuple(gpu["compute_capability"]), name=gpu["name"]),
        env=case.get("env"),
        packages=case.get("stub_modules") or (),
    )


@pytest.mark.parametrize("case", load_cases())
def test_settings_are_those_that_vllm_resolves(case: dict[str, Any]) -> None:
    expected, engine = case["expected"], plan_case(case).engine
    assert {
        "block_size": engine.block_size,
        "mamba_block_size": engine.mamba_block_size,
        "mamba_page_size_padded": engine.mamba_page_size_padded,
        "mamba_cache_mode": engine.mamba_cache_mode,
        "cache_dtype": engine.kv_cache_dtype,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_num_seqs": engine.max_num_seqs,
        "max_in_flight_tokens": engine.max_in_flight_tokens,
        "prefix_caching": engine.enable_prefix_caching,
        "disable_hybrid": engine.disable_hybrid_kv_cache_manager,
        "max_model_len_config": engine.max_model_len,
    } == {
        key: expected[key]
        for key in (
            "block_size",
            "mamba_block_size",
            "mamba_page_size_padded",
            "mamba_cache_mode",
            "cache_dtype",
            "max_num_batched_tokens",
            "max_num_seqs",
            "max_in_flight_tokens",
            "prefix_caching",
            "disable_hybrid",
            "max_model_len_config",
        )
    }


@pytest.mark.parametrize("case", load_cases())
def test_groups_and_blocks_are_those_of_vllm(case: dict[str, Any]) -> None:
    expected, plan = case["expected"], plan_case(case)
    groups = [
        {
            "kind": group.kind,
            "layers": group.layers,
            "block_size": group.block_size,
            "page_size_bytes": group.page_size_bytes,
        }
        for group in plan.groups
    ]
    assert groups == expected["groups"]
    assert list(plan.bytes_per_block) == expected.get("bytes_per_block", [])
    if "bytes_per_token_per_gpu" in expected:
        assert list(plan.kv_bytes_per_token) == expected["bytes_per_token_per_gpu"]
        assert list(plan.fixed_bytes_per_request) == expected["fixed_bytes_per_request"]


@pytest.mark.parametrize("case", load_cases())
def test_tokens_fit_and_concurrency_are_those_that_vllm_prints(case: dict[str, Any]) -> None:
    expected, plan = case["expected"], plan_case(case)
    available = case["available_memory"]
    if not expected["groups"]:
        assert plan.num_gpu_blocks(available) == 0
        return
    assert plan.max_model_len_fit(available) == expected["max_model_len_fit"]
    assert plan.max_model_len_fit_uncapped(available) == expected["max_model_len_fit_uncapped"]
    for length, said in expected["at_max_model_len"].items():
        capacity = plan.capacity(available, int(length))
        assert capacity.fits is ("error" not in said)
        if capacity.fits:
            assert (capacity.num_gpu_blocks, capacity.kv_cache_tokens) == (said["num_blocks"], said["kv_cache_tokens"])
            assert round(capacity.max_concurrency, 6) == said["max_concurrency"]
            assert capacity.printed_concurrency == said["printed"]
