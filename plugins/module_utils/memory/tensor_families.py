# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tensor names and shapes of the model families, as their published checkpoints have them.

Each function takes the list to fill, the text model's configuration and the whole configuration (for vision parts).
"""

from __future__ import annotations

from typing import Callable

from .tensor_families_recurrent import granite_hybrid, nemotron_h, qwen3_next
from .tensor_list import TensorList
from .tensor_parts import Config, attention, ends, gated_mlp, head_dim, norms

Family = Callable[[TensorList, Config, Config], None]


#: Norms of a layer where they are not the usual two.
_LAYER_NORMS = {
    "gemma": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    "cohere": ("input_layernorm",),
    "exaone4": ("post_attention_layernorm", "post_feedforward_layernorm"),
}


def phi3(tensors: TensorList, model: Config, config: Config) -> None:
    """Phi3ForCausalLM: queries, keys and values in one layer, gate and up in another."""
    hidden, head = model["hidden_size"], head_dim(model)
    heads, kv_heads = model["num_attention_heads"], model.get("num_key_value_heads") or model["num_attention_heads"]
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        tensors.linear(f"{at}.self_attn.qkv_proj", (heads + 2 * kv_heads) * head, hidden)
        tensors.linear(f"{at}.self_attn.o_proj", hidden, heads * head)
        tensors.linear(f"{at}.mlp.gate_up_proj", 2 * model["intermediate_size"], hidden)
        tensors.linear(f"{at}.mlp.down_proj", hidden, model["intermediate_size"])
        norms(tensors, at, hidden)
    ends(tensors, model)


def dense(tensors: TensorList, model: Config, config: Config, root: str = "model", head: str = "lm_head") -> None:
    """LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM,
    CohereForCausalLM, Cohere2ForCausalLM, Exaone4ForCausalLM."""
    hidden, kind = model["hidden_size"], str(model.get("model_type", ""))
    qkv_bias = bool(model.get("attention_bias", kind.startswith("qwen2")))
    qk_norm = head_dim(model) if kind.startswith(("qwen3", "gemma3", "exaone4")) else 0
    layer_norms = _LAYER_NORMS.get(kind.partition("_")[0].rstrip("23"), ("input_layernorm", "post_attention_layernorm"))
    for layer in range(model["num_hidden_layers"]):
        at = f"{root}.layers.{layer}"
        attention(tensors, f"{at}.self_attn", model, qkv_bias, qkv_bias and kind == "llama", qk_norm)
        gated_mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"], bool(model.get("mlp_bias", False)))
        norms(tensors, at, hidden, *layer_norms)
    tied = {**model, "tie_word_embeddings": model.get("tie_word_embeddings", kind.startswith(("gemma", "cohere")))}
    ends(tensors, tied, root, head)


def qwen3_moe(tensors: TensorList, model: Config, config: Config) -> None:
    """Qwen3MoeForCausalLM."""
    hidden, experts = model["hidden_size"], model["num_experts"]
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        attention(tensors, f"{at}.self_attn", model, bool(model.get("attention_bias")), qk_norm=head_dim(model))
        sparse = (
            layer not in (model.get("mlp_only_layers") or [])
            and (layer + 1) % (model.get("decoder_sparse_step") or 1) == 0
        )
        if sparse:
            gated_mlp(tensors, f"{at}.mlp.experts.*", hidden, model["moe_intermediate_size"], count=experts)
            tensors.linear(f"{at}.mlp.gate", experts, hidden)
        else:
            gated_mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"])
        norms(tensors, at, hidden)
    ends(tensors, model)


def glm4_moe(tensors: TensorList, model: Config, config: Config) -> None:
    """Glm4MoeForCausalLM (GLM-4.5, 4.6, 4.7), with its prediction layers."""
    hidden, inner = model["hidden_size"], model["moe_intermediate_size"]
    layers = model["num_hidden_layers"]
    for layer in range(layers + (model.get("num_nextn_predict_layers") or 0)):
        at = f"model.layers.{layer}"
        attention(
            tensors,
            f"{at}.self_attn",
            model,
            bool(model.get("attention_bias")),
            qk_norm=head_dim(model) if model.get("use_qk_norm") else 0,
        )
        if layer < model.get("first_k_dense_replace", 0):
            gated_mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"])
        else:
            _routed(tensors, f"{at}.mlp", model, inner)
        norms(tensors, at, hidden)
        if layer >= layers:
            _prediction_ends(tensors, at, model)
    ends(tensors, model)


def _routed(tensors: TensorList, at: str, model: Config, inner: int) -> None:
    """DeepSeek's experts: routed, shared, router with its correction."""
    hidden, experts = model["hidden_size"], model["n_routed_experts"]
    gated_mlp(tensors, f"{at}.experts.*", hidden, inner, count=experts)
    tensors.linear(f"{at}.gate", experts, hidden)
    if model.get("topk_method", "noaux_tc") == "noaux_tc":
        tensors.plain(f"{at}.gate.e_score_correction_bias", experts, dtype="F32")
    if model.get("n_shared_experts"):
        gated_mlp(tensors, f"{at}.shared_experts", hidden, inner * model["n_shared_experts"])


def _prediction_ends(tensors: TensorList, at: str, model: Config) -> None:
    """What a multi-token-prediction layer has beside a decoder layer."""
    hidden = model["hidden_size"]
    tensors.plain(f"{at}.eh_proj.weight", hidden, 2 * hidden)
    norms(tensors, at, hidden, "enorm", "hnorm", "shared_head.norm")
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
            gated_mlp(tensors, f"{at}.mlp", hidden, model["intermediate_size"])
        norms(tensors, at, hidden)
        if layer >= layers:
            _prediction_ends(tensors, at, model)
    ends(tensors, model, root, head)


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
        attention(tensors, f"{at}.self_attn", {**model}, qkv_bias=True, out_bias=True)
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
        norms(tensors, at, hidden)
    ends(tensors, model)


def llama4(tensors: TensorList, model: Config, config: Config) -> None:
    """Llama4ForCausalLM: the text model of Scout and Maverick."""
    hidden, inner, experts = model["hidden_size"], model["intermediate_size"], model["num_local_experts"]
    step = model.get("interleave_moe_layer_step", 1)
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        attention(tensors, f"{at}.self_attn", model)
        if (layer + 1) % step == 0:
            tensors.plain(f"{at}.feed_forward.experts.gate_up_proj", experts, hidden, 2 * inner)
            tensors.plain(f"{at}.feed_forward.experts.down_proj", experts, inner, hidden)
            tensors.linear(f"{at}.feed_forward.router", experts, hidden)
            gated_mlp(tensors, f"{at}.feed_forward.shared_expert", hidden, inner)
        else:
            gated_mlp(tensors, f"{at}.feed_forward", hidden, model.get("intermediate_size_mlp", inner))
        norms(tensors, at, hidden)
    ends(tensors, model)


def mixtral(tensors: TensorList, model: Config, config: Config) -> None:
    """MixtralForCausalLM, MiniMaxM2ForCausalLM (norms over all heads, a routing correction)."""
    hidden, inner, experts = model["hidden_size"], model["intermediate_size"], model["num_local_experts"]
    minimax = str(model.get("model_type", "")).startswith("minimax")
    for layer in range(model["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        attention(tensors, f"{at}.self_attn", model)
        if minimax and model.get("use_qk_norm", True):
            head, kv_heads = head_dim(model), model["num_key_value_heads"]
            tensors.plain(f"{at}.self_attn.q_norm.weight", model["num_attention_heads"] * head)
            tensors.plain(f"{at}.self_attn.k_norm.weight", kv_heads * head)
        for name, out, into in (("w1", inner, hidden), ("w2", hidden, inner), ("w3", inner, hidden)):
            tensors.linear(f"{at}.block_sparse_moe.experts.*.{name}", out, into, count=experts)
        tensors.linear(f"{at}.block_sparse_moe.gate", experts, hidden)
        if minimax:
            tensors.plain(f"{at}.block_sparse_moe.e_score_correction_bias", experts, dtype="F32")
        norms(tensors, at, hidden)
    ends(tensors, model)


#: Architecture to family.
FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": dense,
    "MistralForCausalLM": dense,
    "Qwen2ForCausalLM": dense,
    "Qwen3ForCausalLM": dense,
    "Gemma2ForCausalLM": dense,
    "Gemma3ForCausalLM": dense,
    "CohereForCausalLM": dense,
    "Cohere2ForCausalLM": dense,
    "Exaone4ForCausalLM": dense,
    "Phi3ForCausalLM": phi3,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "MixtralForCausalLM": mixtral,
    "MiniMaxM2ForCausalLM": mixtral,
    "Glm4MoeForCausalLM": glm4_moe,
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
    "DeepseekV32ForCausalLM": deepseek,
    "GlmMoeDsaForCausalLM": deepseek,
    "Glm4MoeLiteForCausalLM": deepseek,
    "KimiK25ForConditionalGeneration": kimi_k25,
    "GptOssForCausalLM": gpt_oss,
    "Llama4ForCausalLM": llama4,
    "Qwen3NextForCausalLM": qwen3_next,
    "NemotronHForCausalLM": nemotron_h,
    "GraniteMoeHybridForCausalLM": granite_hybrid,
}
