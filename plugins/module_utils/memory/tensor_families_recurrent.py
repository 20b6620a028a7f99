# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tensor names and shapes of the families whose layers keep a recurrent state (Mamba2, gated delta net)."""

from __future__ import annotations

from .tensor_list import TensorList
from .tensor_parts import Config, attention, ends, gated_mlp, head_dim, norms


def qwen3_next(tensors: TensorList, model: Config, config: Config) -> None:
    """Qwen3NextForCausalLM: gated delta net, every fourth layer gated attention; without its prediction layer."""
    hidden, experts = model["hidden_size"], model["num_experts"]
    keys = model["linear_num_key_heads"] * model["linear_key_head_dim"]
    values = model["linear_num_value_heads"] * model["linear_value_head_dim"]
    interval = model.get("full_attention_interval", 4)
    kinds = model.get("layer_types") or [
        "full_attention" if (layer + 1) % interval == 0 else "linear_attention"
        for layer in range(model["num_hidden_layers"])
    ]
    for layer, kind in enumerate(kinds):
        at = f"model.layers.{layer}"
        if kind == "full_attention":
            attention(tensors, f"{at}.self_attn", model, qk_norm=head_dim(model), gated=True)
        else:
            heads = model["linear_num_value_heads"]
            tensors.linear(f"{at}.linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden)
            tensors.linear(f"{at}.linear_attn.in_proj_ba", 2 * heads, hidden)
            tensors.plain(f"{at}.linear_attn.conv1d.weight", 2 * keys + values, 1, model["linear_conv_kernel_dim"])
            tensors.plain(f"{at}.linear_attn.A_log", heads)
            tensors.plain(f"{at}.linear_attn.dt_bias", heads)
            tensors.plain(f"{at}.linear_attn.norm.weight", model["linear_value_head_dim"])
            tensors.linear(f"{at}.linear_attn.out_proj", hidden, values)
        gated_mlp(tensors, f"{at}.mlp.experts.*", hidden, model["moe_intermediate_size"], count=experts)
        tensors.linear(f"{at}.mlp.gate", experts, hidden)
        gated_mlp(tensors, f"{at}.mlp.shared_expert", hidden, model["shared_expert_intermediate_size"])
        tensors.linear(f"{at}.mlp.shared_expert_gate", 1, hidden)
        norms(tensors, at, hidden)
    ends(tensors, model)


def _mamba2(
    tensors: TensorList, at: str, hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int
) -> None:
    """A Mamba2 mixer."""
    inner, conv = heads * head_dim, heads * head_dim + 2 * groups * state
    tensors.linear(f"{at}.in_proj", inner + conv + heads, hidden)
    tensors.plain(f"{at}.conv1d.weight", conv, 1, kernel)
    tensors.plain(f"{at}.conv1d.bias", conv)
    for name in ("A_log", "D", "dt_bias"):
        tensors.plain(f"{at}.{name}", heads)
    tensors.plain(f"{at}.norm.weight", inner)
    tensors.linear(f"{at}.out_proj", hidden, inner)


def nemotron_h(tensors: TensorList, model: Config, config: Config) -> None:
    """NemotronHForCausalLM: one mixer a layer, told by the letters of ``hybrid_override_pattern``."""
    hidden = model["hidden_size"]
    for layer, kind in enumerate(model["hybrid_override_pattern"]):
        at = f"backbone.layers.{layer}.mixer"
        if kind == "M":
            _mamba2(
                tensors,
                at,
                hidden,
                model["mamba_num_heads"],
                model["mamba_head_dim"],
                model["n_groups"],
                model["ssm_state_size"],
                model["conv_kernel"],
            )
        elif kind == "*":
            attention(tensors, at, model)
        elif kind == "E":
            experts = model["n_routed_experts"]
            _two_layer_mlp(tensors, f"{at}.experts.*", hidden, model["moe_intermediate_size"], experts)
            _two_layer_mlp(tensors, f"{at}.shared_experts", hidden, model["moe_shared_expert_intermediate_size"])
            tensors.plain(f"{at}.gate.weight", experts, hidden, dtype="F32")
            tensors.plain(f"{at}.gate.e_score_correction_bias", experts, dtype="F32")
        else:
            _two_layer_mlp(tensors, at, hidden, model["intermediate_size"])
        tensors.plain(f"backbone.layers.{layer}.norm.weight", hidden)
    tensors.plain("backbone.embeddings.weight", model["vocab_size"], hidden)
    tensors.plain("backbone.norm_f.weight", hidden)
    if not model.get("tie_word_embeddings", False):
        tensors.linear("lm_head", model["vocab_size"], hidden)


def _two_layer_mlp(tensors: TensorList, at: str, hidden: int, inner: int, count: int = 1) -> None:
    tensors.linear(f"{at}.up_proj", inner, hidden, count=count)
    tensors.linear(f"{at}.down_proj", hidden, inner, count=count)


def granite_hybrid(tensors: TensorList, model: Config, config: Config) -> None:
    """GraniteMoeHybridForCausalLM: experts in one tensor a layer."""
    hidden, inner, experts = model["hidden_size"], model["intermediate_size"], model.get("num_local_experts") or 0
    shared = model.get("shared_intermediate_size") or 0
    for layer, kind in enumerate(model["layer_types"]):
        at = f"model.layers.{layer}"
        if kind == "mamba":
            _mamba2(
                tensors,
                f"{at}.mamba",
                hidden,
                model["mamba_n_heads"],
                model["mamba_d_head"],
                model["mamba_n_groups"],
                model["mamba_d_state"],
                model["mamba_d_conv"],
            )
        else:
            attention(tensors, f"{at}.self_attn", model)
        if experts:
            tensors.plain(f"{at}.block_sparse_moe.input_linear.weight", experts, 2 * inner, hidden)
            tensors.plain(f"{at}.block_sparse_moe.output_linear.weight", experts, hidden, inner)
            tensors.plain(f"{at}.block_sparse_moe.router.layer.weight", experts, hidden)
        tensors.linear(f"{at}.shared_mlp.input_linear", 2 * shared, hidden)
        tensors.linear(f"{at}.shared_mlp.output_linear", hidden, shared)
        norms(tensors, at, hidden)
    ends(tensors, model)
