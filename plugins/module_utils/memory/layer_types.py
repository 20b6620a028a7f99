# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layer of a model attends to everything, to a window, to a chunk, or keeps a recurrent state.

The answer is a list of words, one a decoder layer, in the language of transformers' ``layer_types``. Most configurations
carry it; older ones leave it to a rule of their class, repeated here (sources: transformers 5.19 configuration_*.py and
vllm 0.32.0 model_executor/models/*.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from .model_config import ModelConfig, bad_config, config_int, config_list

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
#: A layer without attention and without a state (an MLP or a mixture of experts of its own).
NONE = "none"
#: Attention and a recurrent state side by side in one layer (Falcon-H1, Zamba2).
BOTH = "hybrid"

_WORDS = {
    "full_attention": FULL,
    "attention": FULL,
    "indexed_attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": LINEAR,
    "mamba": LINEAR,
    "conv": LINEAR,
    "hybrid": BOTH,
    "mlp": NONE,
    "moe": NONE,
}
#: Letters of Nemotron-H's hybrid_override_pattern.
_NEMOTRON_LETTERS = {"M": LINEAR, "*": FULL, "-": NONE, "E": NONE}

#: model_type -> (layers of one period, which of them attends to everything (from 1), the other word, a key for the period).
_PERIODS: dict[str, tuple[int, int, str, Optional[str]]] = {
    "afmoe": (4, 4, SLIDING, "global_attn_every_n_layers"),
    "cohere2": (4, 4, SLIDING, "sliding_window_pattern"),
    "cohere2_moe": (4, 4, SLIDING, "sliding_window_pattern"),
    "cwm": (4, 1, SLIDING, None),
    "exaone4": (4, 4, SLIDING, "sliding_window_pattern"),
    "exaone_moe": (4, 4, SLIDING, "sliding_window_pattern"),
    "gemma2": (2, 2, SLIDING, None),
    "gemma3_text": (6, 6, SLIDING, "sliding_window_pattern"),
    "gemma3n_text": (5, 5, SLIDING, None),
    "gemma4_text": (6, 6, SLIDING, None),
    "gemma4_unified_text": (6, 6, SLIDING, None),
    "gpt_oss": (2, 2, SLIDING, None),
    "granite_swa": (4, 1, SLIDING, None),
    "granitemoe_swa": (4, 1, SLIDING, None),
    "muse_glimmer_text": (4, 4, SLIDING, None),
    "olmo3": (4, 4, SLIDING, None),
    "olmo_hybrid": (4, 4, LINEAR, None),
    "qwen3_next": (4, 4, LINEAR, "full_attention_interval"),
    "qwen3_5_text": (4, 4, LINEAR, "full_attention_interval"),
    "qwen3_5_moe_text": (4, 4, LINEAR, "full_attention_interval"),
    "vaultgemma": (2, 2, SLIDING, None),
}


def _require_for_each(found: Sequence[Any], layers: int, key: str) -> None:
    if len(found) < layers:
        raise bad_config(f"{key} has {len(found)} entries for {layers} layers.", key, found=len(found), expected=layers)


def _from_words(words: Sequence[Any], layers: int, key: str) -> list[str]:
    _require_for_each(words, layers, key)
    unknown = sorted({str(word) for word in words if not isinstance(word, str) or word not in _WORDS})
    if unknown:
        raise bad_config(
            f"{key} names {', '.join(unknown)}, whose cache is not known here; give max_model_len and the memory by hand.",
            key,
            found=unknown,
        )
    return [_WORDS[word] for word in words[:layers]]


def _periodic(layers: int, period: int, full_at: int, other: str) -> list[str]:
    return [FULL if (index + 1) % period == full_at % period else other for index in range(layers)]


def _by_model_type(model: ModelConfig) -> Optional[list[str]]:
    """The rule of the configuration's class, None when it has none."""
    text, layers = model.text, model.num_hidden_layers
    kind = model.text_model_type
    if kind in _PERIODS:
        period, full_at, other, key = _PERIODS[kind]
        if key and isinstance(text.get(key), str) and text[key]:
            letters = text[key]
            return [FULL if letters[index % len(letters)] == "G" else other for index in range(layers)]
        if key and text.get(key) is not None:
            period = full_at = config_int(text, key)
        found = _periodic(layers, period, full_at, other)
        if kind.startswith("gemma4"):
            found[-1] = FULL
        return found
    if kind == "llama4_text":
        no_rope = config_list(text, "no_rope_layers") or [int((index + 1) % 4 != 0) for index in range(layers)]
        return [CHUNKED if index < len(no_rope) and no_rope[index] else FULL for index in range(layers)]
    if kind == "jamba":
        period, offset = config_int(text, "attn_layer_period"), config_int(text, "attn_layer_offset", minimum=0)
        return [FULL if index % period == offset else LINEAR for index in range(layers)]
    if kind == "bamba":
        attention = config_list(text, "attn_layer_indices")
        return [FULL if index in attention else LINEAR for index in range(layers)]
    if kind in ("lfm2", "lfm2_moe") and text.get("full_attn_idxs") is not None:
        attention = config_list(text, "full_attn_idxs")
        return [FULL if index in attention else LINEAR for index in range(layers)]
    if kind == "bailing_hybrid":
        group = config_int(text, "layer_group_size", minimum=0) if text.get("layer_group_size") is not None else 1
        return [LINEAR if group and (index + 1) % group else FULL for index in range(layers)]
    if kind == "falcon_h1":
        return [BOTH] * layers
    if kind == "zamba2" and text.get("hybrid_layer_ids") is not None:
        both = config_list(text, "hybrid_layer_ids")
        return [BOTH if index in both else LINEAR for index in range(layers)]
    if kind == "step3p5":
        return [SLIDING if index % 2 == 0 else FULL for index in range(layers)]
    if kind == "plamo3" and isinstance(text.get("sliding_window"), (list, tuple)):
        windows = text["sliding_window"]
        _require_for_each(windows, layers, "sliding_window")
        return [SLIDING if window else FULL for window in windows[:layers]]
    if kind in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe") and text.get("use_sliding_window"):
        first = config_int(text, "max_window_layers", minimum=0)
        return [SLIDING if index >= first else FULL for index in range(layers)]
    if kind in ("mamba", "mamba2", "falcon_mamba"):
        return [LINEAR] * layers
    return None


def layer_types(model: ModelConfig) -> list[str]:
    """One word a decoder layer.

    Raises:
        VllmHostError: ``bad_config`` when a list of the configuration does not fit its number of layers or names a kind of
            layer whose cache is not known.
    """
    text, layers = model.text, model.num_hidden_layers
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        unknown = sorted(set(pattern) - set(_NEMOTRON_LETTERS))
        if unknown:
            raise bad_config(f"hybrid_override_pattern has unknown letters {unknown}.", "hybrid_override_pattern")
        _require_for_each(pattern, layers, "hybrid_override_pattern")
        return [_NEMOTRON_LETTERS[letter] for letter in pattern[:layers]]
    linear = text.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), (list, tuple)):
        return [FULL if index + 1 in linear["full_attn_layers"] else LINEAR for index in range(layers)]
    swa = text.get("hybrid_layer_pattern")
    if isinstance(swa, (list, tuple)):  # MiMo-V2: 1 slides
        return [SLIDING if index < len(swa) and swa[index] else FULL for index in range(layers)]
    if isinstance(text.get("attn_type_list"), (list, tuple)):
        kinds = text["attn_type_list"]
        return [FULL if index < len(kinds) and kinds[index] == 1 else LINEAR for index in range(layers)]
    for key in ("layer_types", "layers_block_type"):
        words = text.get(key)
        if isinstance(words, (list, tuple)) and words:
            return _from_words(words, layers, key)
    return _by_model_type(model) or [FULL] * layers
