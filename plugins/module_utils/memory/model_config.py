# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""config.json (and hf_quant_config.json) to what the KV-cache arithmetic asks of a model.

A configuration says much by leaving keys out: those that its transformers class would fill in come from
config_defaults_data. What a top-level configuration must say itself (layers, heads, hidden size) is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..errors import VllmHostError
from .architectures_data import DROPPED_ARCHITECTURES, KNOWN_ARCHITECTURES, LAST_READ
from .config_defaults_data import CLASS_DEFAULTS, KEY_ALIASES, TEXT_CONFIGS
from .kv_dtypes_data import TORCH_DTYPE_BYTES
from .models_data import LAYER_COUNT_KEYS, MLA_MODEL_TYPES, SAME_CONFIG_CLASS

#: Keys under which multimodal configurations keep their language model, in the order of search.
_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config", "decoder")
#: Keys that have to be in config.json itself.
_REQUIRED = ("num_hidden_layers", "num_attention_heads", "hidden_size")
_KV_HEAD_KEYS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_UNSCALED_ROPE = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


@dataclass(frozen=True)
class ModelConfig:
    """A model as the KV-cache arithmetic sees it.

    Attributes:
        architecture: the first of ``architectures``.
        model_type, text_model_type: of the whole configuration and of its language model.
        text: the language model's keys, defaults filled in.
        top: the whole configuration as given.
        dtype: the type of the weights by torch's name; dtype_bytes its size.
        num_hidden_layers, num_attention_heads, num_key_value_heads, head_size, hidden_size: of the whole model.
        is_mla: vLLM keeps a latent instead of keys and values.
        quantization: ``quantization_config`` as vLLM sees it, None if the checkpoint has none.
        notes: what was assumed, in words.
    """

    architecture: str
    model_type: str
    text_model_type: str
    text: Mapping[str, Any]
    top: Mapping[str, Any]
    dtype: str
    dtype_bytes: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    hidden_size: int
    is_mla: bool
    quantization: Optional[Mapping[str, Any]]
    notes: tuple[str, ...]


def bad_config(message: str, key: str, **details: Any) -> VllmHostError:
    """The error for a configuration that cannot be used."""
    return VllmHostError("bad_config", f"config.json: {message}", file="config.json", key=key, **details)


_NAME = re.compile(r"[\w.:-]{1,200}")
#: No number of a configuration is larger; a larger one is a mistake or an attack on the memory of this process.
_LARGEST = 1 << 31
#: No model has more layers.
MOST_LAYERS = 4096


def config_int(config: Mapping[str, Any], key: str, minimum: int = 1, maximum: int = _LARGEST) -> int:
    """A whole number of a configuration.

    Raises:
        VllmHostError: ``bad_config`` when it is missing, no whole number or too small.
    """
    value = config.get(key)
    if value is None:
        raise bad_config(f"{key} is missing; give the model's complete config.json.", key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= maximum or value % 1:
        raise bad_config(
            f"{key} must be a whole number from {minimum} to {maximum}, not {str(value)[:100]!r}.",
            key,
            found=repr(value)[:100],
        )
    return int(value)


def config_size(config: Mapping[str, Any], *keys: str, default: int = 0) -> int:
    """The first of several keys that says something, as a whole number; of a list (one number a layer) the largest.

    Raises:
        VllmHostError: ``bad_config`` when it is no whole number.
    """
    for key in keys:
        value = config.get(key)
        if isinstance(value, (list, tuple)):
            if value:
                return max(config_int({key: part}, key, minimum=0) for part in value)
        elif value is not None and value is not False and value != 0:
            return config_int(config, key)
    return default


def config_number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number that is more than nothing.

    Raises:
        VllmHostError: ``bad_config`` when it is none, or no sensible one.
    """
    value = config.get(key)
    if value is None or value is False or value == 0:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
        raise bad_config(
            f"{key} must be a number up to {_LARGEST}, not {str(value)[:100]!r}.", key, found=repr(value)[:100]
        )
    return float(value)


def config_list(config: Mapping[str, Any], key: str) -> Sequence[Any]:
    """A list; empty when it is not there.

    Raises:
        VllmHostError: ``bad_config`` when it is something else.
    """
    value = config.get(key)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise bad_config(f"{key} must be a list, not {str(value)[:100]!r}.", key, found=repr(value)[:100])
    return value


def find_text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, bool]:
    """The language model's part of a configuration.

    Returns:
        The part, its model_type, and whether it is nested in the whole.
    """
    model_type = str(config.get("model_type") or "")
    part, nested = config, False
    for _depth in range(2):  # qwen3_omni: thinker_config.text_config
        key = next((key for key in _TEXT_KEYS if isinstance(part.get(key), Mapping)), None)
        if key is None or (key == "decoder" and "num_attention_heads" in part):
            break
        known = TEXT_CONFIGS.get(model_type)
        part, nested = part[key], True
        model_type = str(part.get("model_type") or (known[1] if known and known[0] == key else ""))
    return part, model_type, nested


def _with_defaults(part: Mapping[str, Any], model_type: str, nested: bool) -> tuple[dict[str, Any], list[str]]:
    """The keys of a language model under their common names, with what its class fills in."""
    text = dict(part)
    config_class = SAME_CONFIG_CLASS.get(model_type, model_type)
    for common, own in KEY_ALIASES.get(config_class, {}).items():
        if own in text:
            text.setdefault(common, text[own])
    defaults = CLASS_DEFAULTS.get(config_class, {})
    assumed = []
    for key, value in defaults.items():
        if key in text or (key in _REQUIRED and not nested):
            continue
        text[key] = value
        if key in _REQUIRED:
            assumed.append(f"{key}={value}")
    notes = [f"config.json leaves {', '.join(assumed)} to the class of {model_type}."] if assumed else []
    return text, notes


def _dtype_of(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    parts = [config, text, config.get("vision_config"), config.get("encoder_config")]
    for part in parts:
        if isinstance(part, Mapping):
            found = part.get("dtype") or part.get("torch_dtype")
            if isinstance(found, str):
                return found.replace("torch.", "")
    return "bfloat16"


def normalized_quantization(
    config: Mapping[str, Any], hf_quant_config: Optional[Mapping[str, Any]]
) -> Optional[dict[str, Any]]:
    """``quantization_config`` as vLLM reads it: config.json first, else hf_quant_config.json; ModelOpt's method filled in."""
    found = config.get("quantization_config")
    if found is None:
        found = hf_quant_config
    if found is None:
        found = config.get("compression_config")
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise bad_config("quantization_config must be a mapping.", "quantization_config", found=repr(found)[:200])
    quantization = dict(found)
    producer = quantization.get("producer")
    inner = quantization.get("quantization")
    if isinstance(producer, Mapping) and producer.get("name") == "modelopt" and isinstance(inner, Mapping):
        algorithm = str(inner.get("quant_algo") or "").upper()
        if algorithm:
            quantization["quant_method"] = "modelopt_fp4" if algorithm == "NVFP4" else "modelopt"
    return quantization


def _head_size(text: Mapping[str, Any], model_type: str, is_mla: bool, heads: int, hidden: int) -> int:
    if is_mla:
        return config_int(text, "kv_lora_rank") + config_int(text, "qk_rope_head_dim", minimum=0)
    if model_type == "zamba2" and text.get("attention_head_dim"):
        return config_int(text, "attention_head_dim")
    for key in ("head_dim", "hidden_size_per_head"):
        if text.get(key):
            return config_int(text, key)
    if hidden < heads:
        raise bad_config(
            f"hidden_size {hidden} leaves nothing for each of {heads} attention heads.", "hidden_size", found=hidden
        )
    return hidden // heads


def _total_kv_heads(text: Mapping[str, Any], model_type: str, heads: int) -> int:
    is_falcon = model_type in ("falcon", "RefinedWeb", "RefinedWebModel")
    if is_falcon and text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    attention = text.get("attn_config")
    if model_type == "dbrx" and isinstance(attention, Mapping):
        return config_int(attention, "kv_n_heads") if attention.get("kv_n_heads") else heads
    for key in _KV_HEAD_KEYS:
        if text.get(key) is not None:
            return config_int(text, key)
    return heads


def parse_model_config(
    config: Mapping[str, Any],
    hf_quant_config: Optional[Mapping[str, Any]] = None,
    dtype: str = "auto",
    mla_disabled: bool = False,
) -> ModelConfig:
    """Read a configuration.

    Args:
        config: config.json as a dict.
        hf_quant_config: hf_quant_config.json as a dict, if there is one.
        dtype: vLLM's --dtype; ``auto`` follows the checkpoint.
        mla_disabled: VLLM_MLA_DISABLE is set.

    Raises:
        VllmHostError: ``bad_config`` when something needed is missing or no number, ``bad_engine_args`` for an unknown dtype.
    """
    if not isinstance(config, Mapping) or not config:
        raise bad_config("must be a mapping with the model's configuration.", "config", found=type(config).__name__)
    part, text_model_type, nested = find_text_config(config)
    text, notes = _with_defaults(part, text_model_type, nested)
    heads = config_int(text, "num_attention_heads") if _has_attention(text_model_type) else 1
    hidden = config_int(text, "hidden_size")
    layers = config_int(text, LAYER_COUNT_KEYS.get(text_model_type, "num_hidden_layers"), maximum=MOST_LAYERS)
    is_mla = (
        not mla_disabled
        and text_model_type in MLA_MODEL_TYPES
        and text.get("kv_lora_rank") is not None
        and text.get("is_causal", True)
    )
    architectures = config.get("architectures") or part.get("architectures") or []
    listed = isinstance(architectures, (list, tuple))
    if not listed or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in architectures):
        raise bad_config("architectures must be a list of names.", "architectures", found=repr(architectures)[:200])
    model_dtype = (
        _dtype_of(config, text) if dtype == "auto" else {"half": "float16", "float": "float32"}.get(dtype, dtype)
    )
    if dtype == "auto" and model_dtype == "float32":
        model_dtype = "bfloat16"  # vLLM serves float32 checkpoints in 16 bit
    if model_dtype not in TORCH_DTYPE_BYTES:
        raise VllmHostError(
            "bad_engine_args" if dtype != "auto" else "bad_config",
            f"{'vllm_engine_args.dtype' if dtype != 'auto' else 'config.json: dtype'} {model_dtype[:100]!r} is unknown; use auto, bfloat16,"
            " float16 or float32.",
            key="dtype",
            found=model_dtype,
        )
    return ModelConfig(
        architecture=architectures[0] if architectures else "",
        model_type=str(config.get("model_type") or ""),
        text_model_type=text_model_type,
        text=text,
        top=config,
        dtype=model_dtype,
        dtype_bytes=TORCH_DTYPE_BYTES[model_dtype],
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=_total_kv_heads(text, text_model_type, heads),
        head_size=_head_size(text, text_model_type, bool(is_mla), heads, hidden),
        hidden_size=hidden,
        is_mla=bool(is_mla),
        quantization=normalized_quantization(config, hf_quant_config),
        notes=(*notes, *_architecture_notes(architectures)),
    )


def _architecture_notes(architectures: Sequence[str]) -> list[str]:
    """What must be said about an architecture that vLLM does not (or no longer) know."""
    if not architectures:
        return ["config.json names no architecture: every layer without a declared type was counted as full attention."]
    name = architectures[0]
    if name in DROPPED_ARCHITECTURES:
        return [f"vLLM has dropped {name} after {DROPPED_ARCHITECTURES[name]}."]
    if name not in KNOWN_ARCHITECTURES:
        return [
            f"{name} is no architecture that vLLM {LAST_READ} knows: its layers were counted by their declared types, the others"
            " as full attention, which can only be more than needed."
        ]
    return []


def _has_attention(model_type: str) -> bool:
    return model_type not in ("mamba", "mamba2", "falcon_mamba")


def iter_rope_parameters(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rope settings of a language model, one a layer type if they differ (old and new spelling)."""
    found = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(found, Mapping):
        return []
    nested = [value for value in found.values() if isinstance(value, Mapping)]
    if nested and len(nested) == len(found):
        return nested
    return [found]


def derive_max_model_len(model: ModelConfig) -> Optional[int]:
    """The length that vLLM takes for the model's own: the smallest of the known keys, stretched by linear or dynamic rope.

    YaRN, Llama 3 and LongRoPE configurations state the stretched length already; Gemma 3 too. None when nothing limits it.
    """
    text = model.text
    lengths = []
    for key in _LENGTH_KEYS:
        value = text.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise bad_config(f"{key} must be a number, not {str(value)[:100]!r}.", key, found=repr(value)[:100])
        if value is not None and 0 < value <= _LARGEST:
            lengths.append(value)
    if not lengths:
        return None
    length = min(lengths)
    if text.get("model_max_length"):
        length = text["model_max_length"]
    rope = iter_rope_parameters(text)
    if rope and "gemma3" not in model.model_type:
        factor = 1.0
        for parameters in rope:
            kind = parameters.get("rope_type") or parameters.get("type") or "default"
            if kind not in _UNSCALED_ROPE:
                factor = config_number(parameters, "factor", factor)
        length = length * factor
    if any((parameters.get("rope_type") or parameters.get("type")) == "longrope" for parameters in rope):
        length = config_size(text, "original_max_position_embeddings", default=int(length))
    if not 1 <= length <= _LARGEST:
        raise bad_config("the model's length (rope scaling included) is no sensible number.", "max_position_embeddings")
    return int(length)
