# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold for any model and any memory: monotony, and a fit that is the true boundary."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_cache import KvPlan, plan_kv_cache
from hypothesis import given, settings
from hypothesis import strategies as st

VERSIONS = ("0.15.1", "0.17.1", "0.19.1", "0.20.2", "0.24.0", "0.28.0", "0.29.0", "0.32.0", "0.33.0")
GIB = 1024**3


@st.composite
def attention_config(draw: st.DrawFn) -> dict[str, Any]:
    """A dense model, perhaps with windows, chunks or MLA."""
    kind = draw(st.sampled_from(("full", "windows", "chunks", "mla")))
    layers = draw(st.integers(1, 48))
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": draw(st.sampled_from((1, 2, 4, 8, 32))),
        "head_dim": draw(st.sampled_from((64, 96, 128, 256))),
        "max_position_embeddings": draw(st.integers(512, 1 << 20)),
    }
    if kind == "windows":
        period = draw(st.integers(2, 6))
        config["layer_types"] = [
            "full_attention" if index % period == 0 else "sliding_attention" for index in range(layers)
        ]
        config["sliding_window"] = draw(st.integers(16, 8192))
    if kind == "chunks":
        config.update(
            model_type="llama4_text",
            architectures=["Llama4ForCausalLM"],
            attention_chunk_size=draw(st.sampled_from((1024, 8192))),
            no_rope_layers=[int((index + 1) % 4 != 0) for index in range(layers)],
        )
    if kind == "mla":
        config.update(
            model_type="deepseek_v3",
            architectures=["DeepseekV3ForCausalLM"],
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            qk_nope_head_dim=128,
            v_head_dim=128,
        )
    return config


def hybrid_config(layers: int = 24, period: int = 4) -> dict[str, Any]:
    """A model that mixes attention and a gated delta net."""
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "torch_dtype": "bfloat16",
        "hidden_size": 2048,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": period,
        "max_position_embeddings": 262144,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }


models = st.one_of(
    attention_config(), st.builds(hybrid_config, st.sampled_from((8, 12, 24, 48)), st.sampled_from((2, 4)))
)
memories = st.integers(0, 200 * GIB)


def make_plan(config: dict[str, Any], version: str = "0.32.0", **engine_args: Any) -> KvPlan:
    return plan_kv_cache(config, engine_args=engine_args, vllm_version=version, gpu=Gpu(96 * GIB, (12, 0)))


@settings(max_examples=150, deadline=None)
@given(config=models, version=st.sampled_from(VERSIONS), low=memories, more=memories)
def test_more_memory_never_gives_fewer_tokens(config: dict[str, Any], version: str, low: int, more: int) -> None:
    plan = make_plan(config, version)
    before, after = plan.capacity(low), plan.capacity(low + more)
    assert after.num_gpu_blocks >= before.num_gpu_blocks
    assert after.kv_cache_tokens >= before.kv_cache_tokens
    assert after.max_concurrency >= before.max_concurrency
    assert plan.max_model_len_fit(low + more) >= plan.max_model_len_fit(low)
    assert plan.max_model_len_fit_uncapped(low + more) >= plan.max_model_len_fit_uncapped(low)


@settings(max_examples=150, deadline=None)
@given(config=models, version=st.sampled_from(VERSIONS), available=memories)
def test_the_fit_is_the_boundary(config: dict[str, Any], version: str, available: int) -> None:
    plan = make_plan(config, version)
    fit = plan.max_model_len_fit_uncapped(available)
    assert fit == 0 or plan.fits(available, fit)
    if 0 < fit < 1 << 30 or fit == 0:
        assert not plan.fits(available, fit + 1)
    own = plan.engine.max_model_len
    assert plan.max_model_len_fit(available) == min(fit, own)
    assert plan.capacity(available).fits is (fit >= own)


@settings(max_examples=100, deadline=None)
@given(config=models, smaller=st.sampled_from((1, 2, 4)))
def test_more_tensor_parallelism_never_takes_more_bytes(config: dict[str, Any], smaller: int) -> None:
    one = make_plan(config, tensor_parallel_size=smaller)
    two = make_plan(config, tensor_parallel_size=2 * smaller)
    # Whole blocks are counted, and a hybrid's blocks differ with TP: that rounding is far below one per mille.
    assert two.kv_bytes_per_token[0] <= one.kv_bytes_per_token[0] * 1.0005


@settings(max_examples=100, deadline=None)
@given(config=attention_config(), ranks=st.integers(1, 4), available=memories)
def test_pipeline_ranks_hold_all_layers_and_the_smallest_counts(
    config: dict[str, Any], ranks: int, available: int
) -> None:
    ranks = min(ranks, config["num_hidden_layers"])
    plan = make_plan(config, pipeline_parallel_size=ranks)
    layers = sum(group.layers for group in plan.groups)
    assert layers == config["num_hidden_layers"]
    assert all(sum(group.layers_per_rank) == group.layers for group in plan.groups)
    blocks = [available // size for size in plan.bytes_per_block]
    assert plan.num_gpu_blocks(available) == min(blocks)


@settings(max_examples=60, deadline=None)
@given(config=models, length=st.integers(1, 1 << 20))
def test_a_longer_request_never_needs_less(config: dict[str, Any], length: int) -> None:
    plan = make_plan(config)
    assert plan.blocks_needed(length) <= plan.blocks_needed(length + 1)


def test_context_parallelism_divides_the_bytes_of_a_token() -> None:
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "torch_dtype": "bfloat16",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    one = make_plan(config, tensor_parallel_size=8)
    eight = make_plan(config, tensor_parallel_size=8, decode_context_parallel_size=8)
    assert one.kv_bytes_per_token == (70272.0,)
    assert eight.kv_bytes_per_token == (8784.0,)
