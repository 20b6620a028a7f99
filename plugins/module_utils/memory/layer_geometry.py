# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heads and widths of single attention layers, for the models in which they differ from the configuration's common ones.

Sources: vllm 0.32.0 model_executor/models/ (the file named at each function) and transformers 5.19 configuration_*.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from .layer_types import FULL, SLIDING
from .model_config import ModelConfig, bad_config, config_int


@dataclass(frozen=True)
class Geometry:
    """What one attention layer keeps for a token.

    Attributes:
        num_kv_heads: of the whole model.
        head_size, head_size_v: width of a key and of a value.
        window: tokens of its sliding window, None for the model's own.
    """

    num_kv_heads: int
    head_size: int
    head_size_v: int
    window: Optional[int] = None


def _common(model: ModelConfig) -> Geometry:
    return Geometry(model.num_key_value_heads, model.head_size, model.head_size)


def _gemma4(model: ModelConfig, _index: int, word: str) -> Optional[Geometry]:
    """gemma4.py: layers with full attention are wider, and may have fewer KV heads when keys serve as values."""
    if word != FULL:
        return _common(model)
    text = model.text
    width = config_int(text, "global_head_dim") if text.get("global_head_dim") else 512
    heads = model.num_key_value_heads
    if text.get("attention_k_eq_v", False) and text.get("num_global_key_value_heads"):
        heads = config_int(text, "num_global_key_value_heads")
    return Geometry(heads, width, width)


def _mimo_v2(model: ModelConfig, _index: int, word: str) -> Optional[Geometry]:
    """mimo_v2.py: sliding layers have heads and widths of their own, values are narrower than keys."""
    prefix = "swa_" if word == SLIDING else ""
    text = model.text
    width = config_int(text, f"{prefix}head_dim")
    value = config_int(text, f"{prefix}v_head_dim") if text.get(f"{prefix}v_head_dim") else width
    window = config_int(text, "sliding_window_size") if text.get("sliding_window_size") else None
    return Geometry(config_int(text, f"{prefix}num_key_value_heads"), width, value, window)


def _step3p5(model: ModelConfig, _index: int, word: str) -> Optional[Geometry]:
    """step3p5.py: one kind of layer has other heads."""
    other = model.text.get("attention_other_setting")
    if not isinstance(other, Mapping) or other.get("attention_type") != word:
        return _common(model)
    width = config_int(other, "head_dim")
    return Geometry(config_int(other, "num_attention_groups"), width, width)


def _nemotron_nas(model: ModelConfig, index: int, _word: str) -> Optional[Geometry]:
    """nemotron_nas.py: each block says how many query heads share a KV head, or has no attention."""
    blocks = model.text.get("block_configs")
    if not isinstance(blocks, (list, tuple)) or index >= len(blocks) or not isinstance(blocks[index], Mapping):
        raise bad_config("block_configs must have an entry for each layer.", "block_configs")
    attention = blocks[index].get("attention")
    if not isinstance(attention, Mapping):
        raise bad_config("block_configs must say what each block's attention is.", "block_configs")
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return None
    return Geometry(
        model.num_attention_heads // config_int(attention, "n_heads_in_group"), model.head_size, model.head_size
    )


def _expanded_mla(model: ModelConfig, _index: int, _word: str) -> Optional[Geometry]:
    """minicpm3.py, and deepseek_v2.py without MLA: latents are expanded, values padded to the width of keys."""
    text = model.text
    width = config_int(text, "qk_nope_head_dim") + config_int(text, "qk_rope_head_dim")
    return Geometry(model.num_attention_heads, width, width)


def _window_list(key: str) -> Callable[[ModelConfig, int, str], Optional[Geometry]]:
    """exaone_moe.py, plamo3.py, openpangu.py: a window for each layer."""

    def geometry(model: ModelConfig, index: int, _word: str) -> Optional[Geometry]:
        windows = model.text.get(key)
        window = None
        if isinstance(windows, (list, tuple)) and windows and windows[index % len(windows)]:
            window = config_int({key: windows[index % len(windows)]}, key)
        return Geometry(model.num_key_value_heads, model.head_size, model.head_size, window)

    return geometry


_BY_MODEL_TYPE: dict[str, Callable[[ModelConfig, int, str], Optional[Geometry]]] = {
    "exaone_moe": _window_list("sliding_windows"),
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4,
    "mimo_v2": _mimo_v2,
    "mimo_v2_flash": _mimo_v2,
    "minicpm3": _expanded_mla,
    "nemotron-nas": _nemotron_nas,
    "plamo3": _window_list("sliding_window"),
    "step3p5": _step3p5,
}


def attention_geometry(model: ModelConfig, index: int, word: str) -> Optional[Geometry]:
    """Heads and widths of one layer; None when it keeps no keys and values.

    Args:
        index: the decoder layer; word: what it attends to (layer_types).

    Raises:
        VllmHostError: ``bad_config`` when the configuration lacks what the layer needs.
    """
    special = _BY_MODEL_TYPE.get(model.text_model_type)
    if special is None and model.text.get("kv_lora_rank") and model.text.get("qk_nope_head_dim") and not model.is_mla:
        special = _expanded_mla
    return special(model, index, word) if special else _common(model)
