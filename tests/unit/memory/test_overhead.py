# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Overhead: measured runs on one GPU to a fraction of a percent, deployments on eight within their ranges."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.model_config import ModelConfig, parse_model_config
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.overhead import (
    Overhead,
    OverheadSettings,
    cuda_total_bytes,
    overhead_per_gpu,
)
from memory_cases import GPU_CASES, KV_CASES

GIB, MIB = 2**30, 2**20


def measured_settings(case: dict[str, Any]) -> OverheadSettings:
    args = case["engine_args"]
    length = args["max_model_len"] if args["max_model_len"] > 0 else case["config"]["max_position_embeddings"]
    runner = {"v1": "0", "v2": "1"}[case["model_runner"]]
    return OverheadSettings(
        release="0.23.0",
        max_num_batched_tokens=args["max_num_batched_tokens"],
        max_num_seqs=args["max_num_seqs"],
        max_model_len=length,
        engine_args=args,
        env={"VLLM_USE_V2_MODEL_RUNNER": runner} if case["id"] == "llama8b_v1run_g8192" else {},
        gpu_name="NVIDIA H200",
        weights_are_measured=True,
    )


@pytest.mark.parametrize("name", GPU_CASES)
def test_forecast_equals_the_measurement(name: str) -> None:
    """The issue asks for 1 %; the formulas miss by 10 MiB at most."""
    case = GPU_CASES[name]
    found = overhead_per_gpu(parse_model_config(case["config"]), measured_settings(case))
    budget = math.ceil(case["engine_args"]["gpu_memory_utilization"] * case["cuda_total_bytes"])
    assert budget == case["requested_bytes"]
    available = budget - case["weights_bytes"] - found.expected
    assert available == pytest.approx(case["available_kv_cache_bytes"], rel=0.01)
    assert abs(available - case["available_kv_cache_bytes"]) < 10 * MIB
    real = budget - case["weights_bytes"] - case["available_kv_cache_bytes"]
    assert found.low - 4 * MIB <= real <= found.high + 4 * MIB


def test_cuda_total() -> None:
    case = GPU_CASES["u99"]
    assert cuda_total_bytes(case["nvml_total_bytes"], 644_939_776) == case["cuda_total_bytes"]
    assert cuda_total_bytes(case["nvml_total_bytes"], None, (9, 0)) == pytest.approx(case["cuda_total_bytes"], abs=2)
    assert cuda_total_bytes(97_887 * MIB, None, (12, 0)) == pytest.approx(94.97 * GIB, rel=1e-6)


def kimi(quant_method: str = "modelopt") -> ModelConfig:
    config = KV_CASES["kimi25-tp8-bf16"]["config"]
    return parse_model_config(
        {**config, "quantization_config": {**config["quantization_config"], "quant_method": quant_method}}
    )


def on_eight(release: str, tokens: int = 8192, sequences: int = 1024, model: Any = None, **changes: Any) -> Overhead:
    fields: dict[str, Any] = {
        "release": release,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": sequences,
        "max_model_len": 131072,
        "tensor_parallel_size": 8,
        "compute_capability": (12, 0),
    }
    return overhead_per_gpu(model or kimi(), OverheadSettings(**{**fields, **changes}))


@pytest.mark.parametrize(
    "release", ["0.16.0", "0.17.1", "0.18.0", "0.20.2", "0.23.0", "0.27.1", "0.30.0", "0.32.0", "0.33.0"]
)
def test_the_reference_deployment_is_inside(release: str) -> None:
    """0.95 x 94.97 - 70.8 - 11.7 GiB, whichever release it was; not more than 4 GiB wide."""
    found = on_eight(release)
    assert found.low / GIB < 7.72 < found.high / GIB
    assert (found.high - found.low) / GIB <= 4


WEIGHTS_GIB = 71.19
OFF = {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}


@pytest.mark.parametrize(
    ("used_gib", "kv_bytes", "settings"),
    [
        # Kimi-K2.6 INT4, fp8 KV, 0.94: 491,200 tokens (rtx6kpro, models/kimi-k26-v2.md, with its command line)
        (
            0.94 * 94.97,
            491_200 * 35_136,
            {"release": "0.20.2", "tokens": 8192, "sequences": 128, "max_model_len": 262144, "env": OFF},
        ),
        # the same with DCP 8: 3,929,600 tokens over eight GPUs
        (
            0.94 * 94.97,
            3_929_600 / 8 * 35_136,
            {
                "release": "0.20.2",
                "tokens": 8192,
                "sequences": 128,
                "max_model_len": 262144,
                "env": OFF,
                "decode_context_parallel_size": 8,
            },
        ),
        # Kimi-K2.5 INT4, fp8 KV, 0.93, 4,096 batched tokens, language model only: 449,600 tokens (models/kimi-k25.md)
        (
            0.93 * 94.97 + 0.21,
            449_600 * 35_136,
            {
                "release": "0.17.0",
                "tokens": 4096,
                "sequences": 256,
                "max_model_len": 262144,
                "engine_args": {"language_model_only": True},
            },
        ),
    ],
)
def test_public_figures_are_inside(used_gib: float, kv_bytes: float, settings: dict[str, Any]) -> None:
    real = used_gib - WEIGHTS_GIB - kv_bytes / GIB
    found = on_eight(model=kimi("compressed-tensors"), **settings)
    assert found.low / GIB < real < found.high / GIB


def test_fewer_sequences_give_gigabytes_back() -> None:
    """1024 sequences cost an MLA model gigabytes of sampler and graphs."""
    older = on_eight("0.23.0").expected - on_eight("0.23.0", sequences=64).expected
    newer = on_eight("0.32.0").expected - on_eight("0.32.0", sequences=64).expected
    assert older / GIB == pytest.approx(2.8, abs=0.1)
    assert newer / GIB == pytest.approx(0.75, abs=0.1)
    whole = overhead_per_gpu(
        parse_model_config(GPU_CASES["kimi4_g8192"]["config"]), measured_settings(GPU_CASES["kimi4_g8192"])
    )
    graphs = next(part for part in whole.parts if part.name == "cuda_graphs")
    assert graphs.expected / GIB == pytest.approx(4.18, abs=0.01)


def test_parts_are_named_and_add_up() -> None:
    found = on_eight("0.32.0")
    assert [part.name for part in found.parts] == ["non_torch", "after_loading", "activation", "encoder", "cuda_graphs"]
    assert all(part.low <= part.expected <= part.high and part.basis for part in found.parts)
    eager = on_eight("0.32.0", engine_args={"enforce_eager": True, "language_model_only": True})
    assert [part.name for part in eager.parts] == ["non_torch", "after_loading", "activation"]


def test_graphs_count_only_where_the_release_takes_them() -> None:
    def graphs(release: str, **changes: Any) -> int:
        return sum(part.expected for part in on_eight(release, **changes).parts if part.name == "cuda_graphs")

    assert graphs("0.19.1") == 0 < graphs("0.20.2") and graphs("0.32.0") > 0
    assert graphs("0.32.0", env=OFF) == 0
    assert graphs("0.32.0", engine_args={"compilation_config": {"cudagraph_mode": "NONE"}}) == 0
    assert graphs("0.23.0", decode_context_parallel_size=8) > 4 * graphs("0.23.0")
    assert graphs("0.23.0", engine_args={"max_cudagraph_capture_size": 64}) < graphs("0.23.0")
