# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts that the layers of many model families share: attention, gated MLP, norms, both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .tensor_list import TensorList

Config = Mapping[str, Any]


def head_dim(model: Config) -> int:
    return int(model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"])


def ends(tensors: TensorList, model: Config, root: str = "model", head: str = "lm_head", norm: str = "norm") -> None:
    """Embeddings, final norm and, unless it is tied, the head."""
    tensors.plain(f"{root}.embed_tokens.weight", model["vocab_size"], model["hidden_size"])
    tensors.plain(f"{root}.{norm}.weight", model["hidden_size"])
    if not model.get("tie_word_embeddings", False):
        tensors.linear(head, model["vocab_size"], model["hidden_size"])


def attention(
    tensors: TensorList,
    at: str,
    model: Config,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: int = 0,
    gated: bool = False,
) -> None:
    """GQA. ``qk_norm``: width of the two norms (0: none). ``gated``: the query carries an output gate."""
    hidden, head = model["hidden_size"], head_dim(model)
    heads, kv_heads = model["num_attention_heads"], model.get("num_key_value_heads") or model["num_attention_heads"]
    tensors.linear(f"{at}.q_proj", heads * head * (2 if gated else 1), hidden, qkv_bias)
    tensors.linear(f"{at}.k_proj", kv_heads * head, hidden, qkv_bias)
    tensors.linear(f"{at}.v_proj", kv_heads * head, hidden, qkv_bias)
    tensors.linear(f"{at}.o_proj", hidden, heads * head, out_bias)
    if qk_norm:
        tensors.plain(f"{at}.q_norm.weight", qk_norm)
        tensors.plain(f"{at}.k_norm.weight", qk_norm)


def gated_mlp(tensors: TensorList, at: str, hidden: int, inner: int, bias: bool = False, count: int = 1) -> None:
    """The gated MLP of nearly everybody."""
    tensors.linear(f"{at}.gate_proj", inner, hidden, bias, count)
    tensors.linear(f"{at}.up_proj", inner, hidden, bias, count)
    tensors.linear(f"{at}.down_proj", hidden, inner, bias, count)


def norms(tensors: TensorList, at: str, hidden: int, *names: str) -> None:
    for name in names or ("input_layernorm", "post_attention_layernorm"):
        tensors.plain(f"{at}.{name}.weight", hidden)
