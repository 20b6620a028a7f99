# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input is refused with a code, the key and a remedy; nothing is guessed in silence."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.compute_capability import parse_capability
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_cache import plan_kv_cache
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.releases import release_text

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
GPU = Gpu(96 * 1024**3, (12, 0))


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in LLAMA.items() if key not in keys}


@pytest.mark.parametrize(
    ("config", "engine_args", "code", "key"),
    [
        ({}, {}, "bad_config", "config"),
        ([], {}, "bad_config", "config"),
        (without("num_hidden_layers"), {}, "bad_config", "num_hidden_layers"),
        (without("num_attention_heads"), {}, "bad_config", "num_attention_heads"),
        (without("hidden_size"), {}, "bad_config", "hidden_size"),
        ({**LLAMA, "num_hidden_layers": "many"}, {}, "bad_config", "num_hidden_layers"),
        ({**LLAMA, "num_hidden_layers": 0}, {}, "bad_config", "num_hidden_layers"),
        ({**LLAMA, "num_key_value_heads": -8}, {}, "bad_config", "num_key_value_heads"),
        ({**LLAMA, "num_attention_heads": True}, {}, "bad_config", "num_attention_heads"),
        ({**LLAMA, "architectures": "LlamaForCausalLM"}, {}, "bad_config", "architectures"),
        ({**LLAMA, "quantization_config": "fp8"}, {}, "bad_config", "quantization_config"),
        ({**LLAMA, "layer_types": ["full_attention"]}, {}, "bad_config", "layer_types"),
        ({**LLAMA, "layer_types": ["telepathy"] * 32}, {}, "bad_config", "layer_types"),
        ({**LLAMA, "layer_types": ["linear_attention"] * 32}, {}, "bad_config", "layer_types"),
        ({**LLAMA, "torch_dtype": "int3"}, {}, "bad_config", "dtype"),
        (LLAMA, {"tensor_parallel_size": 3}, "bad_engine_args", "tensor_parallel_size"),
        (LLAMA, {"tensor_parallel_size": 0}, "bad_engine_args", "tensor_parallel_size"),
        (LLAMA, {"tensor_parallel_size": "two"}, "bad_engine_args", "tensor_parallel_size"),
        (LLAMA, {"tensor_parallel_size": 1.5}, "bad_engine_args", "tensor_parallel_size"),
        (LLAMA, {"pipeline_parallel_size": 33}, "unsupported", "pipeline_parallel_size"),
        (
            LLAMA,
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 3},
            "bad_engine_args",
            "decode_context_parallel_size",
        ),
        (
            LLAMA,
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 2},
            "bad_engine_args",
            "decode_context_parallel_size",
        ),
        (LLAMA, {"kv_cache_dtype": "fp7"}, "bad_engine_args", "kv_cache_dtype"),
        (LLAMA, {"kv_cache_dtype": 8}, "bad_engine_args", "kv_cache_dtype"),
        (LLAMA, {"max_model_len": 200000}, "bad_engine_args", "max_model_len"),
        (LLAMA, {"max_num_seqs": -1}, "bad_engine_args", "max_num_seqs"),
        (LLAMA, {"gpu_memory_utilization": 1.5}, "bad_engine_args", "gpu_memory_utilization"),
        (LLAMA, {"speculative_config": "{"}, "bad_engine_args", "speculative_config"),
        (
            LLAMA,
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
            "unsupported",
            "speculative_config",
        ),
        (LLAMA, ["--tensor-parallel-size", "8"], "bad_engine_args", "engine_args"),
        (LLAMA, {"dtype": "int8"}, "bad_engine_args", "dtype"),
    ],
)
def test_bad_input_is_refused(config: Any, engine_args: Any, code: str, key: str) -> None:
    with pytest.raises(VllmHostError) as caught:
        plan_kv_cache(config, engine_args=engine_args, gpu=GPU)
    assert caught.value.code == code
    assert caught.value.details["key"] == key
    assert len(caught.value.message) > 20


@pytest.mark.parametrize("available", [-1, [-1], [1, 2], 1.5, True, "1"])
def test_bad_memory_is_refused(available: Any) -> None:
    with pytest.raises(VllmHostError) as caught:
        plan_kv_cache(LLAMA, gpu=GPU).capacity(available)
    assert caught.value.code == "bad_value"


@pytest.mark.parametrize("partition", ["16", "10,10", "a,b", "40,-8"])
def test_a_pipeline_partition_must_fit(partition: str) -> None:
    with pytest.raises(VllmHostError, match="VLLM_PP_LAYER_PARTITION"):
        plan_kv_cache(
            LLAMA, engine_args={"pipeline_parallel_size": 2}, gpu=GPU, env={"VLLM_PP_LAYER_PARTITION": partition}
        )


@pytest.mark.parametrize(
    ("version", "word"),
    [("0.14.0", "older"), ("0.34.0", "newer"), ("1.0.0", "newer"), ("0.15.0", None), ("0.33.0", None)],
)
def test_an_unknown_release_is_named(version: str, word: Optional[str]) -> None:
    notes = plan_kv_cache(LLAMA, vllm_version=version, gpu=GPU).notes
    assert any(word in note and version in note for note in notes) if word else not notes


@pytest.mark.parametrize("version", ["latest", "", None, "0", 0.32])
def test_a_release_must_be_one(version: Any) -> None:
    with pytest.raises(VllmHostError) as caught:
        plan_kv_cache(LLAMA, vllm_version=version, gpu=GPU)
    assert (caught.value.code, caught.value.details["key"]) == ("bad_value", "vllm_version")


def test_hyphens_words_and_numbers_of_the_command_line_are_understood() -> None:
    engine = plan_kv_cache(
        LLAMA,
        engine_args={"max-model-len": "32k", "tensor-parallel-size": "2", "no-enable-prefix-caching": True},
        gpu=GPU,
    ).engine
    assert (engine.max_model_len, engine.tensor_parallel_size, engine.enable_prefix_caching) == (32000, 2, False)


NONSENSE: tuple[Any, ...] = (None, "x", "", -1, 0, 1.5, [], {}, True, 10**30, [None], float("nan"), float("inf"))
HYBRID: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 0,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
}
MLA: dict[str, Any] = {
    **LLAMA,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_topk": 2048,
    "index_head_dim": 128,
    "rope_scaling": {"type": "yarn", "factor": 40},
}
OPTIONS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "decode_context_parallel_size",
    "max_model_len",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "block_size",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "mamba_cache_mode",
    "speculative_config",
    "hf_overrides",
    "gpu_memory_utilization",
)


@pytest.mark.parametrize("model", [LLAMA, HYBRID, MLA], ids=["llama", "hybrid", "mla"])
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_no_nonsense_escapes_as_another_error(model: dict[str, Any], value: Any) -> None:
    """Each key and each option may hold anything: the answer is a plan or our own error, and it comes at once."""
    questions = [({**model, key: value}, {}) for key in model] + [(model, {key: value}) for key in OPTIONS]
    for config, engine_args in questions:
        try:
            plan = plan_kv_cache(config, engine_args=engine_args, gpu=GPU)
            plan.capacity(10**10)
            plan.max_model_len_fit(10**10)
        except VllmHostError as error:
            assert error.code in ("bad_config", "bad_engine_args", "bad_value", "unsupported")


@pytest.mark.parametrize("model_type", ["deepseek_v4", "qwen4_exp_text"])
def test_caches_with_rules_not_known_here_are_refused(model_type: str) -> None:
    with pytest.raises(VllmHostError, match="not known here") as caught:
        plan_kv_cache({**LLAMA, "model_type": model_type}, gpu=GPU)
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("architecture", "words"),
    [("NovelForCausalLM", "no architecture that vLLM"), ("BambaForCausalLM", "dropped"), ("LlamaForCausalLM", None)],
)
def test_an_unknown_architecture_is_named(architecture: str, words: Optional[str]) -> None:
    notes = plan_kv_cache({**LLAMA, "architectures": [architecture]}, gpu=GPU).notes
    assert any(words in note for note in notes) if words else not notes


def test_a_cache_type_of_a_later_release_is_refused() -> None:
    options = {"kv_cache_dtype": "turboquant_4bit_nc"}
    with pytest.raises(VllmHostError, match="from vLLM 0.20.0 on"):
        plan_kv_cache(LLAMA, engine_args=options, vllm_version="0.19.1", gpu=GPU)
    assert plan_kv_cache(LLAMA, engine_args=options, vllm_version="0.20.2", gpu=GPU).groups


@pytest.mark.parametrize("version", [0.3, 0.32, 1, "0.3", "1", " 0.9 "])
def test_a_release_without_quotes_is_refused(version: Any) -> None:
    """YAML makes the number 0.3 of 0.30, and Ansible may make a text of that."""
    with pytest.raises(VllmHostError, match="vllm_version: '0.30.0'") as caught:
        release_text(version)
    assert (caught.value.code, caught.value.details["key"]) == ("bad_value", "vllm_version")


def test_a_release_in_quotes() -> None:
    assert [release_text(text) for text in ("0.30", "0.30.0", "v0.32", "0.33.0rc1")] == [
        "0.30",
        "0.30.0",
        "v0.32",
        "0.33.0rc1",
    ]
    with pytest.raises(VllmHostError, match="vllm_version must be a release"):
        release_text(None)


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("12.0", (12, 0)),
        ("9", (9, 0)),
        (8.9, (8, 9)),
        ("12.", None),
        ("²", None),
        ("१२.०", None),
        ("12.0.0", None),
        ("", None),
    ],
)
def test_compute_capability(text: Any, capability: Any) -> None:
    assert parse_capability(text) == capability
