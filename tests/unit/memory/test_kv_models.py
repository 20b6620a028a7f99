# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single rules: nested configurations, the demo servers on a CPU, metadata of checkpoints, releases."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_cache import KvPlan, plan_kv_cache
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_dtypes import dtype_from_checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.layers import pipeline_split

GIB = 1024**3
CPU = Gpu(device="cpu")
RTX = Gpu(102641958912, (12, 0))

TINY_MLA: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 4096,
}
SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}
DECLARES_FP8 = {
    "quant_method": "modelopt",
    "quant_algo": "FP8",
    "ignore": ["*"],
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt"},
}


def tokens(plan: KvPlan, available: int = GIB) -> int:
    return plan.capacity(available).kv_cache_tokens


@pytest.mark.parametrize(
    ("config", "engine_args", "expected"),
    [
        (TINY_MLA, {}, 310688),
        (TINY_MLA, {"kv_cache_dtype": "fp8"}, 621376),
        ({**TINY_MLA, "quantization_config": DECLARES_FP8}, {}, 621376),
        ({**TINY_MLA, "quantization_config": DECLARES_FP8}, {"kv_cache_dtype": "bfloat16"}, 310688),
        (TINY_MLA, {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2}, 621376),
        (TINY_MLA, {"kv_cache_dtype": "fp8", "pipeline_parallel_size": 2}, 932064),
        ({**SMOLLM2, "quantization_config": DECLARES_FP8}, {}, 93184),
    ],
)
def test_what_the_demo_servers_on_a_cpu_print(
    config: dict[str, Any], engine_args: dict[str, Any], expected: int
) -> None:
    """The figures of real servers (facts testing.md): MLA blocks of 16, others of 128."""
    assert tokens(plan_kv_cache(config, engine_args=engine_args, gpu=CPU)) == expected


@pytest.mark.parametrize(
    ("engine_args", "expected"),
    [({}, 310656), ({"kv_cache_dtype": "fp8"}, 621312), ({"block_size": 64}, 310656), ({"block_size": 32}, 310688)],
)
def test_mla_on_a_processor_with_amx_keeps_the_block_size(engine_args: dict[str, Any], expected: int) -> None:
    """The first two are figures of real servers on such a processor."""
    assert tokens(plan_kv_cache(TINY_MLA, engine_args=engine_args, gpu=CPU, packages=("amx",))) == expected


def test_a_stripped_checkpoint_doubles_the_bytes_of_a_token() -> None:
    shipped = plan_kv_cache({**TINY_MLA, "quantization_config": DECLARES_FP8}, gpu=RTX)
    stripped = plan_kv_cache(TINY_MLA, gpu=RTX)
    assert (shipped.engine.kv_cache_dtype, stripped.engine.kv_cache_dtype) == ("fp8_e4m3", "auto")
    assert stripped.kv_bytes_per_token[0] == 2 * shipped.kv_bytes_per_token[0] == 3456


@pytest.mark.parametrize(
    ("quantization", "mla", "expected"),
    [
        (None, False, "auto"),
        (DECLARES_FP8, True, "fp8_e4m3"),
        ({**DECLARES_FP8, "kv_cache_scheme": {"dynamic": True, "num_bits": 8, "type": "float"}}, False, "auto"),
        ({**DECLARES_FP8, "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, False, "nvfp4"),
        ({"quant_method": "modelopt_fp4", "quantization": {"kv_cache_quant_algo": "FP8"}}, False, "fp8_e4m3"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, False, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "INT8"}, False, "auto"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, False, "auto"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}, False, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}, True, "auto"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, False, "auto"),
    ],
)
def test_what_a_checkpoint_declares_about_its_cache(quantization: Any, mla: bool, expected: str) -> None:
    assert dtype_from_checkpoint(quantization, mla) == expected


def test_hf_quant_config_counts_only_where_config_json_is_silent() -> None:
    separate = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    silent = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert plan_kv_cache(TINY_MLA, separate, gpu=RTX).engine.kv_cache_dtype == "fp8_e4m3"
    assert plan_kv_cache({**TINY_MLA, "quantization_config": silent}, separate, gpu=RTX).engine.kv_cache_dtype == "auto"


GEMMA3_TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
}


def test_a_nested_language_model_is_read_with_the_defaults_of_its_class() -> None:
    """config.json of gemma-3-4b-it leaves heads, widths, length and pattern to its class."""
    nested = plan_kv_cache(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "torch_dtype": "bfloat16",
            "text_config": GEMMA3_TEXT,
            "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16},
        },
        gpu=RTX,
    )
    assert nested.engine.max_model_len == 131072
    assert {(group.kind, group.page_size_bytes) for group in nested.groups} == {
        ("SlidingWindowSpec", 16 * 4 * 2 * 256 * 2),
        ("FullAttentionSpec", 16 * 4 * 2 * 256 * 2),
    }
    full = [group for group in nested.groups if group.kind == "FullAttentionSpec"]
    assert sum(group.layers for group in full) == 34 // 6
    assert any("num_attention_heads=8" in note for note in nested.notes)


def test_a_thinker_inside_a_thinker_is_found() -> None:
    text = {
        "model_type": "qwen3_omni_moe_text",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 65536,
    }
    config = {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "model_type": "qwen3_omni_moe",
        "dtype": "bfloat16",
        "thinker_config": {"model_type": "qwen3_omni_moe_thinker", "text_config": text},
    }
    plan = plan_kv_cache(config, engine_args={"tensor_parallel_size": 2}, gpu=RTX)
    assert plan.kv_bytes_per_token == (48 * 2 * 2 * 128 * 2,)


@pytest.mark.parametrize(
    ("layers", "ranks", "expected"),
    [(61, 2, (31, 30)), (61, 4, (15, 15, 16, 15)), (62, 4, (15, 16, 16, 15)), (7, 4, (2, 2, 2, 1)), (8, 1, (8,))],
)
def test_left_over_layers_go_to_the_ranks_before_the_last(layers: int, ranks: int, expected: tuple[int, ...]) -> None:
    assert pipeline_split(layers, ranks) == expected


WINDOWS = {
    **SMOLLM2,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
    "sliding_window": 1024,
}


@pytest.mark.parametrize(
    ("version", "in_flight", "null_block", "utilization"),
    [
        ("0.17.1", 8192, False, 0.9),
        ("0.19.1", 8192, False, 0.9),
        ("0.20.2", 8192, False, 0.92),
        ("0.25.1", 8192, False, 0.92),
        ("0.26.0", 16384, False, 0.92),
        ("0.28.0", 16384, False, 0.92),
        ("0.29.0", 16384, True, 0.92),
        ("0.33.0", 16384, True, 0.92),
    ],
)
def test_releases_differ(version: str, in_flight: int, null_block: bool, utilization: float) -> None:
    plan = plan_kv_cache(WINDOWS, vllm_version=version, gpu=RTX)
    assert plan.engine.max_in_flight_tokens == in_flight
    assert plan.engine.gpu_memory_utilization == utilization
    needed = plan.needed_bytes(8192)[0]
    assert plan.fits(needed, 8192) is not null_block
    assert plan.fits(needed + plan.bytes_per_block[0], 8192)


def test_old_releases_needed_the_first_group_only_and_printed_blocks_of_one_group() -> None:
    old, new = (plan_kv_cache(WINDOWS, vllm_version=version, gpu=RTX) for version in ("0.17.1", "0.32.0"))
    assert len(old.groups) == 6
    assert old.blocks_needed(8192) == 8192 // 16 + 1
    assert new.blocks_needed(8192) == 5 * (8192 // 16 + 1) + 8192 // 16
    capacity = old.capacity(GIB)
    assert capacity.kv_cache_tokens == capacity.num_gpu_blocks // 6 * 16


def test_the_reference_deployment_before_and_after_the_null_block() -> None:
    kimi = {
        **TINY_MLA,
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "max_position_embeddings": 262144,
    }
    fits = {
        version: plan_kv_cache(
            kimi, engine_args={"tensor_parallel_size": 8}, vllm_version=version, gpu=RTX
        ).max_model_len_fit(12562779340)
        for version in ("0.19.1", "0.28.0", "0.29.0", "0.33.0")
    }
    assert fits == {"0.19.1": 178768, "0.28.0": 178768, "0.29.0": 178752, "0.33.0": 178752}


def test_recurrent_states_are_kept_for_every_block_before_0_28() -> None:
    """Mode all: the state of each block is kept, so that a request takes as many state blocks as attention blocks."""
    config = {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "torch_dtype": "bfloat16",
        "hidden_size": 1536,
        "num_hidden_layers": 40,
        "layer_types": (["mamba"] * 9 + ["attention"]) * 4,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "mamba_n_heads": 48,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": 128,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 256,
        "max_position_embeddings": 131072,
    }
    old = plan_kv_cache(config, engine_args={"enable_prefix_caching": True}, vllm_version="0.25.1", gpu=RTX)
    assert (old.engine.mamba_cache_mode, old.engine.block_size % 256) == ("all", 0)
    assert old.blocks_needed(131072) == len(old.groups) * -(-131072 // old.engine.block_size)
    assert plan_kv_cache(config, vllm_version="0.25.1", gpu=RTX).engine.mamba_cache_mode == "none"
    assert plan_kv_cache(config, vllm_version="0.32.0", gpu=RTX).engine.mamba_cache_mode == "align"


def test_a_model_that_attends_both_ways_keeps_nothing() -> None:
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "torch_dtype": "float16",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 512,
    }
    plan = plan_kv_cache(config, gpu=RTX)
    assert plan.groups == ()
    assert plan.max_model_len_fit(0) == 512
