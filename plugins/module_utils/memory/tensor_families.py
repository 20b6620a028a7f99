# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tensor names and shapes of the model families, as their published checkpoints have them.

Each function takes the list to fill, the text model's configuration and the whole configuration (for vision parts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from .tensor_list import TensorList

Config = Mapping[str, Any]
Family = Callable[[TensorList, Config, Config], None]


def _head_dim(model: Config) -> int:
    return int(model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"])


def _ends(tensors: TensorList, model: Config, root: str = "model", head: str = "lm_head", norm: str = "norm") -> None:
    """Embeddings, final norm and, unless it is tied, the head."""
    tensors.plain(f"{root}.embed_tokens.weight", model["vocab_size"], model["hidden_size"])
    tensors.plain(f"{root}.{norm}.weight", model["hidden_size"])
    if not model.get("tie_word_embeddings", False):
        tensors.linear(head, model["vocab_size"], model["hidden_size"])


def _attention(
    tensors: TensorList,
    at: str,
    model: Config,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: int = 0,
    gated: bool = False,
) -> None:
    """GQA. ``qk_norm``: width of the two norms (0: none). ``gated``: the query carries an output gate."""
    hidden, head = model["hidden_size"], _head_dim(model)
    heads, kv_heads = model["num_attention_heads"], model.get("num_key_value_heads") or model["num_attention_heads"]
    tensors.linear(f"{at}.q_proj", heads * head * (2 if gated else 1), hidden, qkv_bias)
    tensors.linear(f"{at}.k_proj", kv_heads * head, hidden, qkv_bias)
    tensors.linear(f"{at}.v_proj", kv_heads * head, hidden, qkv_bias)
    tensors.linear(f"{at}.o_proj", hidden, heads * head, out_bias)
    if qk_norm:
        tensors.plain(f"{at}.q_norm.weight", qk_norm)
        tensors.plain(f"{at}.k_norm.weight", qk_norm)


def _mlp(tensors: TensorList, at: str, hidden: int, inner: int, bias: bool = False, count: int = 1) -> None:
    """The gated MLP of nearly everybody."""
    tensors.linear(f"{at}.gate_proj", inner, hidden, bias, count)
    tensors.linear(f"{at}.up_proj", inner, hidden, bias, count)
    tensors.linear(f"{at}.down_proj", hidden, inner, bias, count)


def _norms(tensors: TensorList, at: str, hidden: int, *names: str) -> None:
    for name in names or ("input_layernorm", "post_attention_layernorm"):
        tensors.plain(f"{at}.{name}.weight", hidden)


def dense(tensors: TensorList, model: Config, config: Config, root: str = "model", head: str = "lm_head") -> None:
    """LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Gemma3ForCausalLM."""
    hidden, kind = model["hidden_size"], str(model.get("model_type", ""))
    qkv_bias = bool(model.get("attention_bias", kind.startswith("qwen2")))
    qk_norm = _head_dim(model) if kind.startswith(("qwen3", "gemma3")) else 0
    norms = ["input_layernorm", "post_attention_layernorm"]
    if kind.startswith("gemma"):
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for layer in range(model["num_hidden_layers"]):
        at = f"{root}.layers.{layer}"
        _attention(tensors, f"{at}.self_attn", model, qkv_bias, qkv_bias and kind == "llama", qk_norm)
        _mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"], bool(model.get("mlp_bias", False)))
        _norms(tensors, at, hidden, *norms)
    tied = {**model, "tie_word_embeddings": model.get("tie_word_embeddings", kind.startswith("gemma"))}
    _ends(tensors, tied, root, head)


def qwen3_moe(tensors: TensorList, model: Config, config: Config) -> None:
    """Qwen3MoeForCausalLM."""
    hidden, experts = model["hidden_size"], model["num_experts"]
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        _attention(tensors, f"{at}.self_attn", model, bool(model.get("attention_bias")), qk_norm=_head_dim(model))
        sparse = (
            layer not in (model.get("mlp_only_layers") or [])
            and (layer + 1) % (model.get("decoder_sparse_step") or 1) == 0
        )
        if sparse:
            _mlp(tensors, f"{at}.mlp.experts.*", hidden, model["moe_intermediate_size"], count=experts)
            tensors.linear(f"{at}.mlp.gate", experts, hidden)
        else:
            _mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"])
        _norms(tensors, at, hidden)
    _ends(tensors, model)


def glm4_moe(tensors: TensorList, model: Config, config: Config) -> None:
    """Glm4MoeForCausalLM (GLM-4.5, 4.6, 4.7), with its prediction layers."""
    hidden, inner = model["hidden_size"], model["moe_intermediate_size"]
    layers = model["num_hidden_layers"]
    for layer in range(layers + (model.get("num_nextn_predict_layers") or 0)):
        at = f"model.layers.{layer}"
        _attention(
            tensors,
            f"{at}.self_attn",
            model,
            bool(model.get("attention_bias")),
            qk_norm=_head_dim(model) if model.get("use_qk_norm") else 0,
        )
        if layer < model.get("first_k_dense_replace", 0):
            _mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"])
        else:
            _routed(tensors, f"{at}.mlp", model, inner)
        _norms(tensors, at, hidden)
        if layer >= layers:
            _prediction_ends(tensors, at, model)
    _ends(tensors, model)


def _routed(tensors: TensorList, at: str, model: Config, inner: int) -> None:
    """DeepSeek's experts: routed, shared, router with its correction."""
    hidden, experts = model["hidden_size"], model["n_routed_experts"]
    _mlp(tensors, f"{at}.experts.*", hidden, inner, count=experts)
    tensors.linear(f"{at}.gate", experts, hidden)
    if model.get("topk_method", "noaux_tc") == "noaux_tc":
        tensors.plain(f"{at}.gate.e_score_correction_bias", experts, dtype="F32")
    if model.get("n_shared_experts"):
        _mlp(tensors, f"{at}.shared_experts", hidden, inner * model["n_shared_experts"])


def _prediction_ends(tensors: TensorList, at: str, model: Config) -> None:
    """What a multi-token-prediction layer has beside a decoder layer."""
    hidden = model["hidden_size"]
    tensors.plain(f"{at}.eh_proj.weight", hidden, 2 * hidden)
    _norms(tensors, at, hidden, "enorm", "hnorm", "shared_head.norm")
    tensors.plain(f"{at}.embed_tokens.weight", model["vocab_size"], hidden)
    tensors.plain(f"{at}.shared_head.head.weight", model["vocab_size"], hidden)


def deepseek(tensors: TensorList, model: Config, config: Config, root: str = "model", head: str = "lm_head") -> None:
    """DeepseekV2ForCausalLM, DeepseekV3ForCausalLM, DeepseekV32ForCausalLM, GlmMoeDsaForCausalLM, Kimi-K2."""
    hidden, layers = model["hidden_size"], model["num_hidden_layers"]
    sparse_from, every = model.get("first_k_dense_replace", 0), model.get("moe_layer_freq", 1)
    for layer in range(layers + (model.get("num_nextn_predict_layers") or 0)):
        at = f"{root}.layers.{layer}"
        _mla(tensors, f"{at}.self_attn", model)
        if model.get("n_routed_experts") and layer >= sparse_from and layer % every == 0:
            _routed(tensors, f"{at}.mlp", model, model["moe_intermediate_size"])
        else:
            _mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"])
        _norms(tensors, at, hidden)
        if layer >= layers:
            _prediction_ends(tensors, at, model)
    _ends(tensors, model, root, head)


def _mla(tensors: TensorList, at: str, model: Config) -> None:
    hidden, heads, lora = model["hidden_size"], model["num_attention_heads"], model["kv_lora_rank"]
    nope, rope, value = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    query = model.get("q_lora_rank")
    if query:
        tensors.linear(f"{at}.q_a_proj", query, hidden)
        tensors.plain(f"{at}.q_a_layernorm.weight", query)
        tensors.linear(f"{at}.q_b_proj", heads * (nope + rope), query)
    else:
        tensors.linear(f"{at}.q_proj", heads * (nope + rope), hidden)
    tensors.linear(f"{at}.kv_a_proj_with_mqa", lora + rope, hidden)
    tensors.plain(f"{at}.kv_a_layernorm.weight", lora)
    tensors.linear(f"{at}.kv_b_proj", heads * (nope + value), lora)
    tensors.linear(f"{at}.o_proj", hidden, heads * value)
    if model.get("index_topk"):
        index_heads, index_dim = model["index_n_heads"], model["index_head_dim"]
        tensors.linear(f"{at}.indexer.wq_b", index_heads * index_dim, query or hidden)
        tensors.linear(f"{at}.indexer.wk", index_dim, hidden)
        tensors.plain(f"{at}.indexer.k_norm.weight", index_dim)
        tensors.plain(f"{at}.indexer.k_norm.bias", index_dim)
        tensors.plain(f"{at}.indexer.weights_proj.weight", index_heads, hidden)


def kimi_k25(tensors: TensorList, model: Config, config: Config) -> None:
    """KimiK25ForConditionalGeneration: DeepSeek-V3 under ``language_model``, a MoonViT tower and a projector."""
    vision = config.get("vision_config") or {}
    width, inner = vision.get("vt_hidden_size", 1152), vision.get("vt_intermediate_size", 4304)
    patch, grid = vision.get("patch_size", 14), vision.get("init_pos_emb_height", 64)
    tensors.plain("vision_tower.patch_embed.proj.weight", width, 3, patch, patch)
    tensors.plain("vision_tower.patch_embed.proj.bias", width)
    tensors.plain("vision_tower.patch_embed.pos_emb.weight", grid, vision.get("init_pos_emb_width", grid), width)
    for block in range(vision.get("vt_num_hidden_layers", 27)):
        at = f"vision_tower.encoder.blocks.{block}"
        for norm in ("norm0", "norm1"):
            tensors.plain(f"{at}.{norm}.weight", width)
            tensors.plain(f"{at}.{norm}.bias", width)
        tensors.linear(f"{at}.wqkv", 3 * width, width, bias=True)
        tensors.linear(f"{at}.wo", width, width, bias=True)
        tensors.linear(f"{at}.mlp.fc0", inner, width, bias=True)
        tensors.linear(f"{at}.mlp.fc1", width, inner, bias=True)
    tensors.plain("vision_tower.encoder.final_layernorm.weight", width)
    tensors.plain("vision_tower.encoder.final_layernorm.bias", width)
    rows, columns = vision.get("merge_kernel_size", (2, 2))
    merged, text_width = width * rows * columns, int(vision.get("text_hidden_size") or model["hidden_size"])
    tensors.plain("mm_projector.pre_norm.weight", width)
    tensors.plain("mm_projector.pre_norm.bias", width)
    tensors.linear("mm_projector.proj.0", merged, merged, bias=True)
    tensors.linear("mm_projector.proj.2", text_width, merged, bias=True)
    deepseek(tensors, model, config, "language_model.model", "language_model.lm_head")


def gpt_oss(tensors: TensorList, model: Config, config: Config) -> None:
    """GptOssForCausalLM: experts in one block of MXFP4 a layer."""
    hidden, inner, experts = model["hidden_size"], model["intermediate_size"], model["num_local_experts"]
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        _attention(tensors, f"{at}.self_attn", {**model}, qkv_bias=True, out_bias=True)
        tensors.plain(f"{at}.self_attn.sinks", model["num_attention_heads"])
        for name, out, into in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            if tensors.scheme.name == "mxfp4":
                tensors.plain(f"{at}.mlp.experts.{name}_blocks", experts, out, into // 32, 16, dtype="U8")
                tensors.plain(f"{at}.mlp.experts.{name}_scales", experts, out, into // 32, dtype="U8")
            else:
                tensors.plain(f"{at}.mlp.experts.{name}", experts, into, out)
            tensors.plain(f"{at}.mlp.experts.{name}_bias", experts, out)
        tensors.plain(f"{at}.mlp.router.weight", experts, hidden)
        tensors.plain(f"{at}.mlp.router.bias", experts)
        _norms(tensors, at, hidden)
    _ends(tensors, model)


def llama4(tensors: TensorList, model: Config, config: Config) -> None:
    """Llama4ForCausalLM: the text model of Scout and Maverick."""
    hidden, inner, experts = model["hidden_size"], model["intermediate_size"], model["num_local_experts"]
    step = model.get("interleave_moe_layer_step", 1)
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        _attention(tensors, f"{at}.self_attn", model)
        if (layer + 1) % step == 0:
            tensors.plain(f"{at}.feed_forward.experts.gate_up_proj", experts, hidden, 2 * inner)
            tensors.plain(f"{at}.feed_forward.experts.down_proj", experts, inner, hidden)
            tensors.linear(f"{at}.feed_forward.router", experts, hidden)
            _mlp(tensors, f"{at}.feed_forward.shared_expert", hidden, inner)
        else:
            _mlp(tensors, f"{at}.feed_forward", hidden, model.get("intermediate_size_mlp", inner))
        _norms(tensors, at, hidden)
    _ends(tensors, model)


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
            _attention(tensors, f"{at}.self_attn", model, qk_norm=_head_dim(model), gated=True)
        else:
            heads = model["linear_num_value_heads"]
            tensors.linear(f"{at}.linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden)
            tensors.linear(f"{at}.linear_attn.in_proj_ba", 2 * heads, hidden)
            tensors.plain(f"{at}.linear_attn.conv1d.weight", 2 * keys + values, 1, model["linear_conv_kernel_dim"])
            tensors.plain(f"{at}.linear_attn.A_log", heads)
            tensors.plain(f"{at}.linear_attn.dt_bias", heads)
            tensors.plain(f"{at}.linear_attn.norm.weight", model["linear_value_head_dim"])
            tensors.linear(f"{at}.linear_attn.out_proj", hidden, values)
        _mlp(tensors, f"{at}.mlp.experts.*", hidden, model["moe_intermediate_size"], count=experts)
        tensors.linear(f"{at}.mlp.gate", experts, hidden)
        _mlp(tensors, f"{at}.mlp.shared_expert", hidden, model["shared_expert_intermediate_size"])
        tensors.linear(f"{at}.mlp.shared_expert_gate", 1, hidden)
        _norms(tensors, at, hidden)
    _ends(tensors, model)


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
            _attention(tensors, at, model)
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
            _attention(tensors, f"{at}.self_attn", model)
        if experts:
            tensors.plain(f"{at}.block_sparse_moe.input_linear.weight", experts, 2 * inner, hidden)
            tensors.plain(f"{at}.block_sparse_moe.output_linear.weight", experts, hidden, inner)
            tensors.plain(f"{at}.block_sparse_moe.router.layer.weight", experts, hidden)
        tensors.linear(f"{at}.shared_mlp.input_linear", 2 * shared, hidden)
        tensors.linear(f"{at}.shared_mlp.output_linear", hidden, shared)
        _norms(tensors, at, hidden)
    _ends(tensors, model)


def mixtral(tensors: TensorList, model: Config, config: Config) -> None:
    """MixtralForCausalLM, MiniMaxM2ForCausalLM (norms over all heads, a routing correction)."""
    hidden, inner, experts = model["hidden_size"], model["intermediate_size"], model["num_local_experts"]
    minimax = str(model.get("model_type", "")).startswith("minimax")
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        _attention(tensors, f"{at}.self_attn", model)
        if minimax and model.get("use_qk_norm", True):
            head, kv_heads = _head_dim(model), model["num_key_value_heads"]
            tensors.plain(f"{at}.self_attn.q_norm.weight", model["num_attention_heads"] * head)
            tensors.plain(f"{at}.self_attn.k_norm.weight", kv_heads * head)
        for name, out, into in (("w1", inner, hidden), ("w2", hidden, inner), ("w3", inner, hidden)):
            tensors.linear(f"{at}.block_sparse_moe.experts.*.{name}", out, into, count=experts)
        tensors.linear(f"{at}.block_sparse_moe.gate", experts, hidden)
        if minimax:
            tensors.plain(f"{at}.block_sparse_moe.e_score_correction_bias", experts, dtype="F32")
        _norms(tensors, at, hidden)
    _ends(tensors, model)


#: Architecture to family.
FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": dense,
    "MistralForCausalLM": dense,
    "Qwen2ForCausalLM": dense,
    "Qwen3ForCausalLM": dense,
    "Gemma3ForCausalLM": dense,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "MixtralForCausalLM": mixtral,
    "MiniMaxM2ForCausalLM": mixtral,
    "Glm4MoeForCausalLM": glm4_moe,
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
    "DeepseekV32ForCausalLM": deepseek,
    "GlmMoeDsaForCausalLM": deepseek,
    "KimiK25ForConditionalGeneration": kimi_k25,
    "GptOssForCausalLM": gpt_oss,
    "Llama4ForCausalLM": llama4,
    "Qwen3NextForCausalLM": qwen3_next,
    "NemotronHForCausalLM": nemotron_h,
    "GraniteMoeHybridForCausalLM": granite_hybrid,
}
