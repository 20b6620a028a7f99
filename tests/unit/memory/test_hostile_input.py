# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clumsy and hostile input: one line that names the fault or the right answer, never another error and never another number."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import given_configuration
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.deployment_plan import PlanRequest, make_plan
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.gpu_inventory import inventory_gpus
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.plan_report import render_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import KV_CASES

#: One case of each architecture.
FAMILIES = sorted({case["config"]["architectures"][0]: name for name, case in KV_CASES.items()}.values())
NONSENSE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 1.5, 10**30, -(10**30), float("nan"), float("inf")),
    *("", "abc", "8", "1e5", "²", "x" * 300, "re:("),
    *([], [1], ["x"], [None], [{}], [[1, 2], [3]], {}, {"a": 1}, {"a": {"b": []}}),
)
OPTIONS = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"),
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_memory_bytes"),
    *("kv_cache_dtype", "dtype", "block_size", "num_gpu_blocks_override", "kv_cache_dtype_skip_layers"),
    *("speculative_config", "compilation_config", "hf_overrides", "limit_mm_per_prompt", "enforce_eager"),
    *("language_model_only", "enable_expert_parallel", "enable_prefix_caching", "max_cudagraph_capture_size"),
    *("cudagraph_capture_sizes", "mm_encoder_tp_mode", "all2all_backend", "distributed_executor_backend", "nnodes"),
)


def places(part: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a configuration (the first few of a list)."""
    for key in part if isinstance(part, dict) else range(min(len(part), 4)) if isinstance(part, list) else ():
        yield (*way, key)
        yield from places(part[key], (*way, key))


def changed(part: Any, way: tuple[Any, ...], value: Any) -> Any:
    copied = copy.deepcopy(part)
    place = copied
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    return copied


def planned(case: str, config: Any = None, quantization: Any = None, gpus: str = "8x96GB", **changes: Any) -> Any:
    known = KV_CASES[case]
    checkpoint = given_configuration(config or known["config"], quantization or known.get("hf_quant_config"))
    fields = {"model": "org/name", "checkpoint": checkpoint, "gpus": inventory_gpus(gpus), "measured_folder": ""}
    return make_plan(PlanRequest(**{**fields, **changes}))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(FAMILIES), st.sampled_from(NONSENSE), st.sampled_from(["cuda", "cpu"]))
def test_any_value_of_a_configuration_may_be_nonsense(data: st.DataObject, case: str, value: Any, device: str) -> None:
    known = KV_CASES[case]
    second = known.get("hf_quant_config")
    documents = [known["config"], *([second] if second else [])]
    which = data.draw(st.integers(0, len(documents) - 1))
    way = data.draw(st.sampled_from(list(places(documents[which]))))
    documents[which] = changed(documents[which], way, value)
    options = {"engine_args": known["engine_args"], "device": device, "env": {"VLLM_CPU_KVCACHE_SPACE": "4"}}
    try:
        render_plan(planned(case, *documents, **options, force=True))
    except VllmHostError as error:
        assert "\n" not in error.message and (len(error.message) < 1000 or error.code == "does_not_fit")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["kimi25-tp8-auto", "qwen3next-tp1", "gemma3-27b-tp1"])
def test_any_option_may_be_nonsense(case: str) -> None:
    for option in OPTIONS:
        for value in NONSENSE:
            try:
                render_plan(planned(case, engine_args={option: value}, force=True))
            except VllmHostError as error:
                assert "\n" not in error.message and len(error.message) < 2000


def test_a_key_that_is_missing_is_named() -> None:
    config = {key: value for key, value in KV_CASES["llama8b-tp1"]["config"].items() if key != "intermediate_size"}
    with pytest.raises(VllmHostError, match="intermediate_size is missing"):
        planned("llama8b-tp1", {**config, "model_type": "unheard"}, gpus="1x96GB")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intermediate_size", "14336"),
        ("vocab_size", {"all": 32000}),
        ("max_position_embeddings", "32768"),
        ("head_dim", {}),
        ("sliding_window", "4096"),
        ("rope_scaling", {"rope_type": "linear", "factor": "4"}),
        ("quantization_config", {"quant_method": "fp8", "weight_block_size": 128}),
        ("quantization_config", {"quant_method": "gptq", "bits": "4"}),
        ("quantization_config", {"quant_method": "compressed-tensors", "config_groups": ["x"]}),
        ("quantization_config", {"quant_method": "compressed-tensors", "ignore": ["re:("]}),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: Any) -> None:
    config = {**KV_CASES["llama8b-tp1"]["config"], key: value}
    named = (
        key
        if not isinstance(value, dict) or not value
        else next(k for k in (*value, key) if k not in ("quant_method", "rope_type"))
    )
    with pytest.raises(VllmHostError, match=named) as caught:
        planned("llama8b-tp1", config, gpus="1x96GB")
    assert caught.value.code == "bad_config"


def test_a_width_for_each_layer_is_understood() -> None:
    """Gemma 3n and its like state a list; the widest layer decides about the workspace."""
    config = {**KV_CASES["llama8b-tp1"]["config"], "architectures": ["NovelForCausalLM"]}
    checkpoint = given_configuration(config)
    plans = [
        make_plan(
            PlanRequest(
                model="org/name",
                checkpoint=type(checkpoint)("", "", {**config, "intermediate_size": width}, weight_bytes=14 * 10**9),
                gpus=inventory_gpus("1x96GB"),
                measured_folder="",
            )
        )
        for width in (14336, [8192, 14336])
    ]
    assert plans[0]["budget"]["overhead_bytes_per_gpu"] == plans[1]["budget"]["overhead_bytes_per_gpu"]


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ({"max_model_len": "32768"}, {"max_model_len": 32768}),
        ({"max_model_len": "32K"}, {"max_model_len": 32768}),
        ({"max-model-len": " AUTO "}, {}),
        ({"max_model_len": -1}, {}),
        ({"max_model_len": None, "max_num_seqs": None, "tensor_parallel_size": None}, {}),
        ({"kv_cache_memory_bytes": "12G"}, {"kv_cache_memory_bytes": 12 * 2**30}),
        ({"kv_cache_memory_bytes": "12.5g"}, {"kv_cache_memory_bytes": 12_500_000_000}),
        ({"gpu_memory_utilization": "0.95"}, {"gpu_memory_utilization": 0.95}),
        ({"tensor_parallel_size": "8"}, {"tensor_parallel_size": 8}),
        ({"decode_context_parallel_size": "8"}, {"decode_context_parallel_size": 8}),
        ({"enforce_eager": "false"}, {"enforce_eager": False}),
        ({"enforce-eager": "True"}, {"enforce_eager": True}),
        ({"no_enforce_eager": True}, {}),
        ({"enable_expert_parallel": "false"}, {}),
        ({"language_model_only": "false"}, {}),
        ({"compilation_config": '{"cudagraph_mode": "NONE"}'}, {"enforce_eager": True}),
        ({"compilation_config": 3}, {}),
        ({"cudagraph_capture_sizes": "1,2,4"}, {"cudagraph_capture_sizes": [1, 2, 4]}),
        ({"cudagraph_capture_sizes": "[1, 2, 4]"}, {"compilation_config": {"cudagraph_capture_sizes": ["4", 1, 2]}}),
    ],
)
def test_another_spelling_gives_the_same_numbers(spelled: dict[str, Any], meant: dict[str, Any]) -> None:
    known = ("max_model_len", "max_num_seqs", "kv_cache_dtype", "budget", "gpus")
    one, other = (planned("kimi25-tp8-auto", engine_args=args) for args in (spelled, meant))
    assert [one[key] for key in known] == [other[key] for key in known]


def test_speculation_as_json_counts_its_layer() -> None:
    """A prediction layer costs weights and cache however it was asked for."""
    text, mapping = (
        planned("dsv3-tp8-h200-mtp1", gpus="8xH200", engine_args={"speculative_config": config})["budget"]
        for config in ('{"method": "mtp", "num_speculative_tokens": 1}', {"method": "mtp", "num_speculative_tokens": 1})
    )
    none = planned("dsv3-tp8-h200-mtp1", gpus="8xH200")["budget"]
    assert text == mapping and text["weights_bytes_per_gpu"][0] > none["weights_bytes_per_gpu"][0]


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 16},
        {"tensor_parallel_size": 8, "pipeline_parallel_size": "2"},
        {"data_parallel_size": 16},
        {"tensor_parallel_size": 8, "data_parallel_size": 16, "data_parallel_size_local": 2},
    ],
)
def test_more_gpus_than_there_are_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(VllmHostError, match="16 GPUs and there are 8") as caught:
        planned("kimi25-tp8-auto", engine_args=options)
    assert caught.value.code == "too_few_gpus"


def test_gpus_of_other_hosts_are_not_counted() -> None:
    options = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}
    for more in ({"nnodes": 2}, {"distributed_executor_backend": "ray"}):
        assert planned("kimi25-tp8-auto", engine_args={**options, **more})["max_model_len"]
    spread = {"tensor_parallel_size": 8, "data_parallel_size": 4, "data_parallel_size_local": 1}
    assert planned("kimi25-tp8-auto", engine_args=spread)["max_model_len"]


@pytest.mark.parametrize("recipe", [{"engine_args": "x"}, {"env": ["x"]}, {"minimum_vllm_version": "new"}])
def test_a_recipe_given_by_hand_is_checked(recipe: dict[str, Any]) -> None:
    with pytest.raises(VllmHostError) as caught:
        planned("kimi25-tp8-auto", recipe=recipe)
    assert caught.value.code == "bad_recipe"


@pytest.mark.parametrize("version", ["nightly", "", "latest", "0." + "9" * 5000, "0.32.0\n", None])
@pytest.mark.parametrize("recipe", [{}, {"name": "x", "minimum_vllm_version": "0.20.0"}])
def test_what_is_no_release_is_named(version: Any, recipe: dict[str, Any]) -> None:
    with pytest.raises(VllmHostError, match="vllm_version must be a release") as caught:
        planned("kimi25-tp8-auto", vllm_version=version, recipe=recipe)
    assert caught.value.code == "bad_value" and "\n" not in caught.value.message
