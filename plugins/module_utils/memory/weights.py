# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights on each GPU, from the tensors of a checkpoint and the way vLLM spreads them.

The figure is that of the model as vLLM builds it: parameters and the table of the rotary embedding. Copies that vLLM makes
after loading (the absorbed matrices of MLA) are part of the overhead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from . import weights_data as data
from .engine_args import EngineArgs
from .layers import uses_mtp
from .model_config import ModelConfig, config_int, config_number, config_size, iter_rope_parameters
from .safetensors_headers import TensorGroup

_RULES = tuple((re.compile(expression), kind) for expression, kind, _source in data.RULES)
_VISION = re.compile(data.VISION + r"|(?:^|\.)(?:mm_projector|multi_modal_projector)\.")
_PREDICTION = re.compile(data.PREDICTION_LAYERS)
#: Bytes of an element of a weight that is not quantized.
_PLAIN_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_LAST_RANK = re.compile(r"(?:^|\.)(?:lm_head|norm|norm_f|final_layernorm|ln_f)\.[a-z_]+$")


@dataclass(frozen=True)
class Parallelism:
    """How one instance is spread.

    Attributes:
        tensor, data: ranks.
        experts: experts are spread whole (``enable_expert_parallel``).
        layers_per_rank: layers of each pipeline rank, in order.
    """

    tensor: int = 1
    data: int = 1
    experts: bool = False
    layers_per_rank: tuple[int, ...] = ()


@dataclass(frozen=True)
class WeightsForecast:
    """Weights of one GPU of each pipeline rank, in bytes.

    Attributes:
        per_rank: expected.
        low, high: of the largest rank; equal to the expectation when every tensor is known.
        parts: of the largest rank: ``experts``, ``vocabulary``, ``vision``, ``rotary_table``, ``other``.
        source: ``headers``, ``config`` (a list made from config.json), ``size`` (only the checkpoint's size) or ``given``.
        notes: what a reader must know.
    """

    per_rank: tuple[int, ...]
    low: int
    high: int
    parts: Mapping[str, int]
    source: str
    notes: tuple[str, ...] = ()


def weights_per_gpu(
    tensors: Sequence[TensorGroup],
    model: ModelConfig,
    parallel: Parallelism,
    engine_args: Optional[Mapping[str, Any]] = None,
    source: str = "headers",
) -> WeightsForecast:
    """Spread every tensor.

    Args:
        tensors: groups from headers (or from ``config_tensors``).
        model: the parsed configuration.
        parallel: the ranks.
        engine_args: vLLM's options; ``speculative_config``, ``language_model_only`` and ``mm_encoder_tp_mode`` matter.
        source: where ``tensors`` come from.
    """
    options = EngineArgs(engine_args)
    language_only = options.flag("language_model_only")
    layers = model.num_hidden_layers
    partition = parallel.layers_per_rank or (layers,)
    spread = _Spread(model, parallel, options)
    # Only the model's own prediction layers (methods mtp, deepseek_mtp, ...) are read from this checkpoint.
    prediction = uses_mtp((options.mapping("speculative_config") or {}).get("method"))
    # A checkpoint without a head of its own shares the table, whatever its configuration leaves unsaid.
    stated = model.top.get("tie_word_embeddings", model.text.get("tie_word_embeddings", False))
    tied = bool(stated) or not any("lm_head." in group.name for group in tensors)
    rank_of_layer = [rank for rank, count in enumerate(partition) for _layer in range(count)]
    ranks = len(partition)
    totals = [
        dict.fromkeys(("experts", "vocabulary", "vision", "rotary_table", "other"), 0.0) for _rank in range(ranks)
    ]
    for group in tensors:
        template, layer = _split_layer(group.name)
        place = _place(template)
        predicts = place.predicts or (layer is not None and not place.vision and layer >= layers)
        if place.vision and language_only or predicts and not prediction:
            continue
        if tied and template.endswith("lm_head.weight"):
            continue
        if place.vision:
            where: Sequence[int] = range(ranks)
        elif predicts or (layer is None and place.last_rank):
            where = (ranks - 1,)
        elif layer is not None:
            where = (rank_of_layer[layer],)
        else:
            where = (0,)
        if place.kind == "vocabulary" and not predicts:
            if model.architecture in data.ENDS_ON_EVERY_RANK:
                where = range(ranks)
            elif tied:
                where = sorted({0, ranks - 1})
        size = spread.bytes_on_gpu(group, place.kind)
        for rank in where:
            totals[rank][place.part] += size
    for total in totals:
        total["rotary_table"] += rotary_table_bytes(model)
    per_rank = tuple(int(sum(total.values())) for total in totals)
    largest = max(range(ranks), key=per_rank.__getitem__)
    parts = {name: int(size) for name, size in totals[largest].items() if size}
    return WeightsForecast(per_rank, per_rank[largest], per_rank[largest], parts, source, _notes(source))


def weights_from_size(checkpoint_bytes: int, parallel: Parallelism) -> WeightsForecast:
    """The wide answer when no tensor is known.

    Args:
        checkpoint_bytes: bytes of all weight files.
        parallel: the ranks.
    """
    partition = parallel.layers_per_rank or (1,)
    low, expected, high = (factor * checkpoint_bytes / parallel.tensor for factor in data.UNKNOWN_TENSORS_FACTORS)
    shares = [count / sum(partition) for count in partition]
    note = "only the checkpoint's size is known, not its tensors: the weights are a range"
    return WeightsForecast(
        tuple(int(expected * share) for share in shares),
        int(low * max(shares)),
        int(high * max(shares)),
        {"other": int(expected * max(shares))},
        "size",
        (note,),
    )


@dataclass(frozen=True)
class _Place:
    """What a tensor's name says: the row of the table, the part of the sum, and where in the pipeline it lives."""

    kind: str
    part: str
    vision: bool
    predicts: bool
    last_rank: bool


@lru_cache(maxsize=4096)
def _place(template: str) -> _Place:
    kind = next((kind for expression, kind in _RULES if expression.search(template)), "divided")
    vision = _VISION.search(template) is not None
    part = "vision" if vision else kind if kind in ("experts", "vocabulary") else "other"
    return _Place(kind, part, vision, _PREDICTION.search(template) is not None, _LAST_RANK.search(template) is not None)


def _split_layer(name: str) -> tuple[str, Optional[int]]:
    """``model.layers.17.mlp.up_proj.weight`` to its name without the number, and the number."""
    for marker in (".layers.", ".blocks.", ".h."):
        head, found, rest = name.partition(marker)
        if found:
            number, dot, tail = rest.partition(".")
            if number.isdecimal() and len(number) < 10:
                return f"{head}{marker}*.{tail}", int(number)
    return name, None


def rotary_table_bytes(model: ModelConfig) -> int:
    """Bytes of the cosine and sine tables that vLLM keeps on every GPU: positions x rotary width x 2 bytes each.

    Linear scaling stretches the table by its factor, YaRN makes one of original length x factor; gpt-oss keeps 32 bits.
    """
    text = model.text
    if text.get("position_embedding_type") == "nope" or model.text_model_type in ("nemotron_h", "mamba2"):
        return 0
    head = config_size(text, "head_dim", default=model.hidden_size // model.num_attention_heads)
    width = config_size(text, "qk_rope_head_dim") or int(head * config_number(text, "partial_rotary_factor", 1.0))
    positions = config_size(text, "max_position_embeddings")
    rope = iter_rope_parameters(text)
    scaling = rope[-1] if rope else {}
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor = config_number(scaling, "factor", 1.0)
    stretched = positions
    if kind == "linear":
        stretched = int(positions * factor)
    elif kind == "yarn" and scaling.get("original_max_position_embeddings"):
        stretched = int(config_size(scaling, "original_max_position_embeddings") * factor)
    element = 4 if model.text_model_type == "gpt_oss" else 2
    # The indexer of sparse MLA has a table of its own unless it turns its pairs as the latent does.
    indexer = model.is_mla and text.get("index_topk") and not text.get("indexer_rope_interleave")
    tables = stretched * (2 if indexer else 1) + (positions if text.get("rope_local_base_freq") else 0)
    return tables * width * element


class _Spread:
    """Bytes of a tensor on one GPU of its pipeline rank."""

    def __init__(self, model: ModelConfig, parallel: Parallelism, options: EngineArgs) -> None:
        self._tensor = parallel.tensor
        self._expert_ranks = parallel.tensor * parallel.data
        self._whole_experts = parallel.experts and self._expert_ranks > 1
        self._vision_whole = options.text("mm_encoder_tp_mode", "") == "data"
        backend = options.text("all2all_backend", data.SEQUENCE_PARALLEL_BACKENDS[0])
        self._shared_whole = parallel.experts and parallel.data > 1 and backend in data.SEQUENCE_PARALLEL_BACKENDS
        self._kv_ranks = min(parallel.tensor, model.num_key_value_heads)
        heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
        self._qkv_growth = (heads + 2 * max(kv_heads, parallel.tensor)) / (heads + 2 * kv_heads)
        self._text = model.text
        self._dtype_bytes = model.dtype_bytes

    def _conversion(self, group: TensorGroup) -> float:
        """vLLM keeps plain weights in the type it computes in, whatever type they are stored in; scales and states stay."""
        if group.dtype == "F8_E4M3" and group.name.endswith(data.DEQUANTIZED_LAYERS):
            return self._dtype_bytes
        if group.dtype not in _PLAIN_BYTES or group.tensor_bytes < data.CONVERTED_FROM_BYTES or "scale" in group.name:
            return 1.0
        return self._dtype_bytes / _PLAIN_BYTES[group.dtype]

    def bytes_on_gpu(self, group: TensorGroup, kind: str) -> float:
        total = group.total_bytes * self._conversion(group)
        if kind == "absent":
            return 0
        if kind == "experts":
            return self._experts(group)
        if kind == "replicated" or len(group.shape) == 0 or group.shape == (1,):
            return total
        if kind == "vision":
            return total if self._vision_whole else total / self._tensor
        if kind == "vocabulary":
            rows = group.shape[0]
            padded = -(-rows // data.VOCABULARY_PADDING) * data.VOCABULARY_PADDING
            return total / max(rows, 1) * padded / self._tensor
        if kind == "shared":
            return total if self._shared_whole else total / self._tensor
        if kind == "mamba":
            return total / self._tensor * self._mamba_growth(group)
        if kind == "fused_qkv":
            return total / self._tensor * self._qkv_growth
        if kind == "kv_heads":
            return total / self._kv_ranks
        return total / self._tensor

    def _experts(self, group: TensorGroup) -> float:
        """Whole experts, the larger share where they do not divide; or a slice of each. Scalars belong to whole experts."""
        fused = group.count == 1 and len(group.shape) > 1
        count = group.shape[0] if fused else group.count
        total = group.total_bytes * self._conversion(group) * self._mxfp4_padding(group.name)
        if self._whole_experts:
            return total / max(count, 1) * -(-count // self._expert_ranks)
        if len(group.shape) == 0 or group.shape == (1,):
            return total
        return total / self._expert_ranks

    def _mamba_growth(self, group: TensorGroup) -> float:
        """By how much repeated groups lengthen a Mamba2 projection or convolution."""
        groups = config_size(self._text, "n_groups", "mamba_n_groups")
        state = config_size(self._text, "ssm_state_size", "mamba_d_state")
        if not groups or groups % self._tensor == 0:
            return 1.0
        rows = group.shape[0]
        return (rows + 2 * (self._tensor - groups) * state) / rows

    def _mxfp4_padding(self, name: str) -> float:
        """By how much padding makes the experts of gpt-oss larger (names ``..._blocks``, ``..._scales``, ``..._bias``)."""
        if not name.endswith(("_proj_blocks", "_proj_scales")):
            return 1.0
        ranks = 1 if self._whole_experts else self._expert_ranks
        inner = -(-config_int(self._text, "intermediate_size") // ranks)
        hidden = config_int(self._text, "hidden_size")
        padding = data.MXFP4_PADDING
        padded_inner = -(-inner // padding["intermediate"]) * padding["intermediate"]
        padded_hidden = -(-hidden // padding["hidden"]) * padding["hidden"]
        return padded_inner * padded_hidden / (inner * hidden)


def _notes(source: str) -> tuple[str, ...]:
    return ("the list of tensors is made from config.json, not read from headers",) if source == "config" else ()
