# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights on a GPU: vLLM's built models, from configurations and from headers on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import read_local_checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.config_tensors import tensors_from_config
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.layers import pipeline_split
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.model_config import ModelConfig, parse_model_config
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.quant_formats import quant_scheme
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import TensorGroup
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.weights import (
    Parallelism,
    WeightsForecast,
    rotary_table_bytes,
    weights_from_size,
    weights_per_gpu,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import KV_CASES, WEIGHTS_CASES, write_checkpoint

GIB = 2**30
#: One case of each family.
FAMILIES = sorted({case["config"]["architectures"][0]: name for name, case in KV_CASES.items()}.values())


def model_of(name: str, **changes: Any) -> ModelConfig:
    case = KV_CASES[name]
    return parse_model_config({**case["config"], **changes}, case.get("hf_quant_config"))


def listed(model: ModelConfig) -> tuple[TensorGroup, ...]:
    tensors = tensors_from_config(model)
    assert tensors is not None
    return tensors


def forecast(model: ModelConfig, tensors: tuple[TensorGroup, ...], args: dict[str, Any]) -> WeightsForecast:
    parallel = Parallelism(
        args.get("tensor_parallel_size", 1),
        args.get("data_parallel_size", 1),
        args.get("enable_expert_parallel", False),
    )
    return weights_per_gpu(tensors, model, parallel, args)


@pytest.mark.parametrize("name", KV_CASES)
def test_equals_the_built_model(name: str) -> None:
    """The issue asks for 1 %; it is 0.14 % at most (DeepSeek-V3.2, whose buffer of the indexer is no weight)."""
    model = model_of(name)
    expected = KV_CASES[name]["expected"]["weights_bytes_per_gpu"]
    found = forecast(model, listed(model), KV_CASES[name]["engine_args"])
    assert list(found.per_rank) == pytest.approx(expected, rel=0.0015)
    assert sum(found.parts.values()) == pytest.approx(found.per_rank[0], abs=8)


@pytest.mark.parametrize("case", WEIGHTS_CASES, ids=lambda case: case["id"])
def test_equals_more_built_models(case: dict[str, Any]) -> None:
    """Pipeline ranks, other families, packed and FP8 checkpoints; 0.5 % at most (INT4 packs scales of odd layers)."""
    args = case.get("engine_args", {})
    model = parse_model_config(case["config"], case.get("hf_quant_config"), str(args.get("dtype", "auto")))
    given_split = (case.get("env") or {}).get("VLLM_PP_LAYER_PARTITION")
    split = tuple(int(part) for part in given_split.split(",")) if given_split else None
    layers = pipeline_split(model.num_hidden_layers, args.get("pipeline_parallel_size", 1), split)
    parallel = Parallelism(
        args.get("tensor_parallel_size", 1),
        args.get("data_parallel_size", 1),
        args.get("enable_expert_parallel", False),
        layers,
    )
    found = weights_per_gpu(listed(model), model, parallel, args)
    assert list(found.per_rank) == pytest.approx(case["weights_bytes_per_gpu"], rel=0.005)


@pytest.mark.parametrize("name", FAMILIES)
def test_headers_say_the_same(name: str, tmp_path: Path) -> None:
    """Written to disk as shards and read back: the sum over headers is the sum over the list."""
    model = model_of(name)
    tensors = listed(model)
    small = tuple(TensorGroup(g.name, g.dtype, g.shape, min(g.count, 3), g.tensor_bytes) for g in tensors)
    written = write_checkpoint(tmp_path, dict(model.top), small, 4, KV_CASES[name].get("hf_quant_config"))
    read = read_local_checkpoint(str(tmp_path))
    assert read.tensors is not None and sum(group.count for group in read.tensors) == written
    args = KV_CASES[name]["engine_args"]
    assert forecast(model, read.tensors, args).per_rank == forecast(model, small, args).per_rank


def test_kimi_k25_nvfp4_is_70_8_gib() -> None:
    """The reported figure of the reference deployment, for either split of the quantization."""
    for name in ("kimi25-tp8-bf16", "kimi-var-sharedq"):
        model = model_of(name)
        found = forecast(model, listed(model), {"tensor_parallel_size": 8}).per_rank[0]
        assert found == pytest.approx(70.8 * GIB, rel=0.01)


def test_speculation_brings_the_prediction_layer() -> None:
    model = model_of("dsv3-tp8-h200")
    without = forecast(model, listed(model), {"tensor_parallel_size": 8})
    other = forecast(model, listed(model), {"tensor_parallel_size": 8, "speculative_config": {"method": "ngram"}})
    assert without.per_rank == other.per_rank


def test_language_model_only_leaves_the_tower_out() -> None:
    model = model_of("kimi25-tp8-bf16")
    whole = forecast(model, listed(model), {"tensor_parallel_size": 8})
    text = forecast(model, listed(model), {"tensor_parallel_size": 8, "language_model_only": True})
    data = forecast(model, listed(model), {"tensor_parallel_size": 8, "mm_encoder_tp_mode": "data"})
    assert "vision" in whole.parts and "vision" not in text.parts
    assert data.parts["vision"] > 3 * whole.parts["vision"]


def test_tied_embeddings_count_once_unless_the_pipeline_splits_them() -> None:
    model = model_of("qwen3-32b-tp4", tie_word_embeddings=True)
    untied = model_of("qwen3-32b-tp4")
    table = untied.text["vocab_size"] * untied.hidden_size * 2
    one = weights_per_gpu(listed(untied), model, Parallelism())
    two = weights_per_gpu(listed(untied), untied, Parallelism())
    assert two.per_rank[0] - one.per_rank[0] == pytest.approx(table, rel=0.001)
    split = weights_per_gpu(listed(model), model, Parallelism(layers_per_rank=(32, 32)))
    assert split.per_rank[0] == pytest.approx(split.per_rank[1], rel=0.001), "both ends hold the table"


def test_pipeline_ranks_add_up() -> None:
    model = model_of("kimi-nomm")
    whole = weights_per_gpu(listed(model), model, Parallelism(8), {"language_model_only": True})
    ranks = weights_per_gpu(
        listed(model), model, Parallelism(8, layers_per_rank=(31, 30)), {"language_model_only": True}
    )
    table = rotary_table_bytes(model)
    assert sum(ranks.per_rank) == pytest.approx(whole.per_rank[0] + table, abs=64)
    assert ranks.low == ranks.high == max(ranks.per_rank)


def test_expert_parallel_takes_the_larger_share() -> None:
    """384 experts over 5 ranks: 77 on the fullest."""
    model = model_of("kimi25-tp8-bf16")
    even = weights_per_gpu(listed(model), model, Parallelism(1, 8, True)).parts["experts"]
    uneven = weights_per_gpu(listed(model), model, Parallelism(1, 5, True)).parts["experts"]
    assert uneven / even == pytest.approx(77 / 48)


@pytest.mark.parametrize(
    ("declared", "bytes_per_weight"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, 0.5 + 1 / 16),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, 1.0),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "ignore": ["lm_head"],
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            0.5 + 2 / 32,
        ),
    ],
)
def test_quantized_formats(declared: dict[str, Any], bytes_per_weight: float) -> None:
    """Bytes of the linear layers of a dense model, and an even split over four GPUs."""
    plain, model = model_of("llama70b-tp1"), model_of("llama70b-tp1", quantization_config=declared)
    text = plain.text
    table = text["vocab_size"] * plain.hidden_size * 2
    weights = sum(group.total_bytes for group in listed(plain)) - 2 * table
    quantized = sum(group.total_bytes for group in listed(model)) - 2 * table
    assert quantized / (weights / 2) == pytest.approx(bytes_per_weight, rel=0.003)
    one, four = forecast(model, listed(model), {}), forecast(model, listed(model), {"tensor_parallel_size": 4})
    assert four.per_rank[0] == pytest.approx(one.per_rank[0] / 4, rel=0.01)


def test_unknown_formats_are_not_guessed() -> None:
    assert quant_scheme({"quant_method": "next_years_method"}) is None
    assert (
        tensors_from_config(model_of("llama8b-tp1", quantization_config={"quant_method": "next_years_method"})) is None
    )
    assert tensors_from_config(model_of("llama8b-tp1", architectures=["NobodyKnowsForCausalLM"])) is None


def test_size_alone_is_a_range() -> None:
    model = model_of("kimi25-tp8-bf16")
    found = weights_from_size(sum(group.total_bytes for group in listed(model)), Parallelism(8))
    assert found.low < found.per_rank[0] < found.high
    assert found.notes and found.source == "size"
    assert found.low < forecast(model, listed(model), {"tensor_parallel_size": 8}).per_rank[0] < found.high


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(FAMILIES), st.sampled_from([1, 2, 4]))
def test_more_tensor_parallelism_never_more_bytes(name: str, tensor: int) -> None:
    model = model_of(name)
    less = forecast(model, listed(model), {"tensor_parallel_size": 2 * tensor})
    more = forecast(model, listed(model), {"tensor_parallel_size": tensor})
    assert less.per_rank[0] <= more.per_rank[0]
