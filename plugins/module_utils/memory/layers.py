# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's layers as the KV cache sees them: what each of them keeps, and on which pipeline rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

from ..errors import VllmHostError
from .layer_geometry import attention_geometry
from .layer_types import BOTH, CHUNKED, FULL, LINEAR, NONE, SLIDING, layer_types
from .model_config import MOST_LAYERS, ModelConfig, bad_config, config_int
from .models_data import (
    ATTENTION_CREATED_FIRST,
    ENCODER_DECODER_MODEL_TYPES,
    ENCODER_ONLY_MODEL_TYPES,
    IGNORES_LAYER_TYPES,
    MLA_CACHES_PER_LAYER,
    RECURRENT_BY_ARCHITECTURE,
    RECURRENT_BY_MODEL_TYPE,
    REFUSES_MIXED_WINDOWS,
    UNMODELLED,
    WINDOW_PLUS_ONE,
)


@dataclass(frozen=True)
class Layer:
    """One cache of one decoder layer.

    Attributes:
        index: the decoder layer, which decides about the pipeline rank; -1 for a speculative layer (last rank).
        kind: ``full``, ``sliding``, ``chunked``, ``mla``, ``indexer``, ``recurrent`` or ``cross``.
        num_kv_heads: of the whole model.
        head_size, head_size_v: width of a key and of a value; of the latent for MLA.
        window: tokens of a sliding window or of a chunk.
        recurrent: the kind of state.
    """

    index: int
    kind: str
    num_kv_heads: int = 0
    head_size: int = 0
    head_size_v: int = 0
    window: Optional[int] = None
    recurrent: Optional[str] = None

    @property
    def content(self) -> tuple[object, ...]:
        """All but the index: layers of equal content have equal caches."""
        return (self.kind, self.num_kv_heads, self.head_size, self.head_size_v, self.window, self.recurrent)


def recurrent_kind(model: ModelConfig) -> Optional[str]:
    """Which recurrent state the model's linear layers keep."""
    return RECURRENT_BY_ARCHITECTURE.get(model.architecture) or RECURRENT_BY_MODEL_TYPE.get(model.text_model_type)


def is_encoder_only(model: ModelConfig) -> bool:
    """Whether every layer attends both ways, so that nothing is kept from one step to the next."""
    return model.text_model_type in ENCODER_ONLY_MODEL_TYPES or model.text.get("is_causal") is False


def _sliding_window(model: ModelConfig) -> Optional[int]:
    text = model.text
    # A list has a window for each layer (layer_geometry).
    if text.get("use_sliding_window") is False or isinstance(text.get("sliding_window"), (type(None), list, tuple)):
        return None
    return config_int(text, "sliding_window") + (1 if model.text_model_type in WINDOW_PLUS_ONE else 0)


def _attention_layer(model: ModelConfig, index: int, word: str, window: Optional[int]) -> Optional[Layer]:
    """The keys and values of one layer, None if it keeps none."""
    geometry = attention_geometry(model, index, word)
    if geometry is None:
        return None
    layer = Layer(
        index=index,
        kind="full",
        num_kv_heads=geometry.num_kv_heads,
        head_size=geometry.head_size,
        head_size_v=geometry.head_size_v,
    )
    if word == SLIDING:
        window = geometry.window or window
        if window is None:
            raise bad_config("sliding_window is missing though layers slide.", "sliding_window")
        return replace(layer, kind="sliding", window=window)
    if word == CHUNKED and model.text.get("attention_chunk_size"):
        return replace(layer, kind="chunked", window=config_int(model.text, "attention_chunk_size"))
    return layer


def _mla_layers(model: ModelConfig, index: int) -> list[Layer]:
    latent = Layer(index=index, kind="mla", num_kv_heads=1, head_size=model.head_size)
    if model.text.get("index_topk") is None:
        return [latent]
    # FP8 values and one float32 scale for each 128 of them, whatever the type of the latent.
    width = config_int(model.text, "index_head_dim")
    indexer = Layer(index=index, kind="indexer", num_kv_heads=1, head_size=width + 4 * (width // 128))
    return [latent, indexer]


def _cache_words(model: ModelConfig, window: Optional[int]) -> list[str]:
    """layer_types as vLLM's implementation of the model heeds them."""
    words = layer_types(model)
    declared = model.text.get("layer_types")
    if not declared and window is not None and all(word == FULL for word in words):
        # Without layer_types a window of the configuration is that of every layer (engine/arg_utils.py).
        return [SLIDING] * len(words)
    if model.text_model_type in REFUSES_MIXED_WINDOWS and len(set(words)) > 1:
        raise VllmHostError(
            "unsupported",
            "config.json: only some layers of this model slide (max_window_layers), which vLLM refuses for this architecture;"
            " set use_sliding_window to false with vllm_engine_args.hf_overrides.",
            file="config.json",
            key="max_window_layers",
        )
    if model.text_model_type in IGNORES_LAYER_TYPES and not all(word == SLIDING for word in words):
        return [FULL if word == SLIDING else word for word in words]
    return words


def decoder_layers(model: ModelConfig) -> tuple[Layer, ...]:
    """Every cache of the model's own layers (no speculative ones), in the order in which vLLM creates them.

    Raises:
        VllmHostError: ``bad_config`` when the configuration lacks what its layers need, ``unsupported`` for caches with rules
            that are not known here, or that vLLM refuses.
    """
    if model.text_model_type in UNMODELLED:
        raise VllmHostError(
            "unsupported",
            f"The KV cache of {model.architecture or model.text_model_type} follows rules of its own"
            f" ({UNMODELLED[model.text_model_type]}) that are not known here; give the server max_model_len by hand and read what"
            " vLLM prints at its first start.",
            key="architectures",
            found=model.architecture,
        )
    if is_encoder_only(model):
        return ()
    window = _sliding_window(model)
    words = _cache_words(model, window)
    state = recurrent_kind(model)
    shared = config_int(model.text, "num_kv_shared_layers", minimum=0) if model.text.get("num_kv_shared_layers") else 0
    shared_from = len(words) - shared
    found: list[Layer] = []
    for index, word in enumerate(words):
        if word == NONE or index >= shared_from:
            continue
        if word in (LINEAR, BOTH):
            if state is None:
                raise bad_config(
                    f"{model.architecture or model.text_model_type} has layers with a recurrent state of a kind not known"
                    " here.",
                    "layer_types",
                )
            recurrent = Layer(index=index, kind="recurrent", recurrent=state)
        if word == LINEAR:
            found.append(recurrent)
        elif model.is_mla:
            found.extend(_mla_layers(model, index) * MLA_CACHES_PER_LAYER.get(model.text_model_type, 1))
        else:
            attention = _attention_layer(model, index, word, window)
            found.extend([attention] if attention else [])
            if word == BOTH:
                found.append(recurrent)
            if model.text_model_type in ENCODER_DECODER_MODEL_TYPES and attention:
                found.append(replace(attention, kind="cross"))
    if model.text_model_type in ATTENTION_CREATED_FIRST:
        found.sort(key=lambda layer: layer.kind == "recurrent")
    return tuple(found)


def uses_mtp(method: object) -> bool:
    """Whether a method of speculation is the checkpoint's own (vLLM also takes older names such as deepseek_mtp)."""
    return isinstance(method, str) and method.endswith("mtp")


def mtp_layers(model: ModelConfig) -> int:
    """Multi-token-prediction layers of the checkpoint."""
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
        if model.text.get(key):
            return config_int(model.text, key, maximum=MOST_LAYERS)
    return 0


def speculative_layers(model: ModelConfig, speculative: Optional[Mapping[str, Any]]) -> tuple[Layer, ...]:
    """The caches of the draft layers that the checkpoint itself brings (MTP).

    A draft model of its own is another checkpoint: its layers are not known here.
    """
    if not speculative or not uses_mtp(speculative.get("method")):
        return ()
    count = mtp_layers(model)
    if count == 0:
        raise VllmHostError(
            "unsupported",
            "vllm_engine_args.speculative_config asks for MTP, but the checkpoint has no such layers (num_nextn_predict_layers is 0): leave"
            " it out.",
            key="speculative_config",
        )
    if model.is_mla:
        return tuple(_mla_layers(model, -1) * count)
    layer = _attention_layer(model, -1, FULL, None)
    return (layer,) * count if layer else ()


def pipeline_split(num_layers: int, ranks: int, partition: Optional[tuple[int, ...]] = None) -> tuple[int, ...]:
    """Decoder layers of each pipeline rank.

    vLLM divides evenly and gives what is left over to the ranks before the last one (distributed/utils.py).

    Raises:
        VllmHostError: ``bad_engine_args`` when a given partition does not fit.
    """
    if partition is not None:
        if len(partition) != ranks or sum(partition) != num_layers or min(partition) < 0:
            raise VllmHostError(
                "bad_engine_args",
                f"vllm_env.VLLM_PP_LAYER_PARTITION {list(partition)} must have {ranks} parts that add up to {num_layers} layers.",
                key="VLLM_PP_LAYER_PARTITION",
                found=list(partition),
            )
        return partition
    if ranks > num_layers:
        raise VllmHostError(
            "unsupported",
            f"vllm_engine_args.pipeline_parallel_size {ranks} is more than the model's {num_layers} layers; lower it.",
            key="pipeline_parallel_size",
        )
    parts = [num_layers // ranks] * ranks
    for offset in range(num_layers % ranks):
        parts[-2 - offset] += 1
    return tuple(parts)
