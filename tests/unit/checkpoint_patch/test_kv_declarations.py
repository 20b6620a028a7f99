"""Every shape in which a checkpoint declares a quantized KV cache, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.kv_declarations import (
    find_declarations,
    plan_strip,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_dtypes import dtype_from_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

SCHEME = {"dynamic": False, "num_bits": 8, "type": "float"}


def strip(tmp_path, config: Any = None, hf_quant_config: Any = None):
    for name, value in (("config.json", config), ("hf_quant_config.json", hf_quant_config)):
        if value is not None:
            (tmp_path / name).write_text(json.dumps(value, indent=2))
    plan = plan_strip(tmp_path)
    return plan, {file.name: json.loads(file.after) for file in plan.files}


@pytest.mark.parametrize(
    ("config", "stripped"),
    [
        pytest.param(
            {"quantization_config": {"a": 1, "kv_cache_scheme": SCHEME, "b": 2}},
            {"quantization_config": {"a": 1, "b": 2}},
            id="an object, as in Kimi-K2.5-NVFP4",
        ),
        pytest.param({"quantization_config": {"kv_cache_scheme": "FP8"}}, {"quantization_config": {}}, id="a string"),
        pytest.param({"quantization_config": {"kv_cache_scheme": "NVFP4"}}, {"quantization_config": {}}, id="NVFP4"),
        pytest.param(
            {"quantization_config": {"kv_cache_quant_algo": "FP8"}},
            {"quantization_config": {"kv_cache_quant_algo": None}},
            id="flat kv_cache_quant_algo",
        ),
        pytest.param(
            {"quantization_config": {"quantization": {"kv_cache_quant_algo": "FP8", "kv_cache_scheme": SCHEME}}},
            {"quantization_config": {"quantization": {"kv_cache_quant_algo": None}}},
            id="a nested quantization object",
        ),
        pytest.param(
            {"text_config": {"quantization_config": {"kv_cache_scheme": SCHEME}}, "vision_config": {}},
            {"text_config": {"quantization_config": {}}, "vision_config": {}},
            id="text_config",
        ),
        pytest.param(
            {"compression_config": {"kv_cache_scheme": SCHEME, "quant_method": "compressed-tensors"}},
            {"compression_config": {"quant_method": "compressed-tensors"}},
            id="compression_config",
        ),
        pytest.param(
            {"quantization": {"kv_cache_quant_algo": "FP8", "quant_algo": "FP8"}},
            {"quantization": {"kv_cache_quant_algo": None, "quant_algo": "FP8"}},
            id="a quantization object at the top",
        ),
    ],
)
def test_config_json(tmp_path, config, stripped):
    plan, files = strip(tmp_path, config)
    assert files == {"config.json": stripped}
    assert {edit["file"] for edit in plan.edits} == {"config.json"}
    assert plan.unknown == ()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"quantization_config": None},
        {"quantization_config": {"kv_cache_scheme": None, "quant_method": "compressed-tensors"}},
        {"quantization_config": {"quantization": {"kv_cache_quant_algo": None}}},
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        {"num_key_value_heads": 8, "kv_lora_rank": 512, "use_cache": True},
    ],
)
def test_nothing_to_strip(tmp_path, config):
    plan, files = strip(tmp_path, config)
    assert (files, plan.edits, plan.unknown) == ({}, (), ())


def test_hf_quant_config_keeps_the_nested_key_that_vllm_insists_on(tmp_path):
    plan, files = strip(
        tmp_path,
        {"model_type": "deepseek_v32"},
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
    )
    assert files == {
        "hf_quant_config.json": {
            "producer": {"name": "modelopt"},
            "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None},
        }
    }
    assert plan.edits == (
        {
            "file": "hf_quant_config.json",
            "key": "quantization.kv_cache_quant_algo",
            "before": "FP8",
            "after": None,
            "action": "set",
        },
    )


def test_hf_quant_config_in_flat_form(tmp_path):
    _plan, files = strip(tmp_path, None, {"kv_cache_quant_algo": "FP8", "quant_algo": "FP8"})
    assert files["hf_quant_config.json"] == {"kv_cache_quant_algo": None, "quant_algo": "FP8"}


def test_both_files_are_patched(tmp_path):
    _plan, files = strip(
        tmp_path,
        {"quantization_config": {"kv_cache_scheme": SCHEME}},
        {"quantization": {"kv_cache_quant_algo": "FP8"}},
    )
    assert set(files) == {"config.json", "hf_quant_config.json"}


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"quantization_config": {"kv_cache_dtype": "fp8"}}, "quantization_config.kv_cache_dtype"),
        ({"quantization_config": {"kv_quant": {"bits": 8}}}, "quantization_config.kv_quant"),
        ({"kv_cache_scheme": SCHEME}, "kv_cache_scheme"),
        ({"text_config": {"kv_cache_quantization": "int8"}}, "text_config.kv_cache_quantization"),
    ],
)
def test_an_unknown_declaration_is_reported_and_stays(tmp_path, config, key):
    plan, files = strip(tmp_path, config)
    assert files == {}
    assert [item["key"] for item in plan.unknown] == [key]


def test_a_known_key_with_an_unknown_value_is_stripped_and_reported(tmp_path):
    plan, files = strip(tmp_path, {"quantization_config": {"kv_cache_scheme": {"num_bits": 3, "type": "int"}}})
    assert files == {"config.json": {"quantization_config": {}}}
    assert plan.unknown[0]["value"] == {"num_bits": 3, "type": "int"}


QUANTIZATION = st.dictionaries(
    st.sampled_from(["kv_cache_scheme", "kv_cache_quant_algo", "quant_method", "quantization", "ignore"]),
    st.sampled_from(
        [None, "FP8", "NVFP4", "modelopt", SCHEME, [], {"kv_cache_quant_algo": "FP8", "kv_cache_scheme": SCHEME}]
    ),
)
CONFIGS = st.dictionaries(
    st.sampled_from(["quantization_config", "compression_config", "text_config", "quantization", "model_type"]),
    st.one_of(QUANTIZATION, st.fixed_dictionaries({"quantization_config": QUANTIZATION}), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(config=CONFIGS)
def test_a_stripped_configuration_declares_nothing_that_vllm_would_follow(config, tmp_path_factory):
    _plan, files = strip(tmp_path_factory.mktemp("checkpoint"), config)
    stripped = files.get("config.json", config)
    assert find_declarations("config.json", stripped)[0] == []
    quantization = stripped.get("quantization_config")
    if isinstance(quantization, dict) and isinstance(quantization.get("quantization", {}), dict):
        assert dtype_from_checkpoint(quantization) == "auto"
