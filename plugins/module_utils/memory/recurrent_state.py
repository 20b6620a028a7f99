# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shapes and bytes of the states that Mamba, linear attention and short convolutions keep instead of keys and values.

Source: vllm 0.32.0 model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator, MambaStateDtypeCalculator) and
get_mamba_state_shape_from_config of each model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ..errors import VllmHostError
from .kv_dtypes_data import TORCH_DTYPE_BYTES
from .model_config import ModelConfig, bad_config, config_int, config_number, config_size


@dataclass(frozen=True)
class RecurrentState:
    """The state of one layer for one request on one GPU.

    Attributes:
        kind: ``mamba1``, ``mamba2``, ``gdn``, ``kda``, ``linear`` or ``short_conv``.
        shapes: of its tensors.
        bytes: of all of them.
        checkpoint_blocks: blocks that a prefill may hold besides (one with Mamba 2 and prefix caching).
    """

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    bytes: int
    checkpoint_blocks: int = 0


@dataclass(frozen=True)
class StateOptions:
    """What the engine adds to a model's states.

    Attributes:
        tensor_parallel_size: over which heads and channels are divided.
        num_speculative_tokens: lengthens the convolution's window.
        conv_dtype_bytes, ssm_dtype_bytes: of the two parts of the state.
    """

    tensor_parallel_size: int
    num_speculative_tokens: int
    conv_dtype_bytes: int
    ssm_dtype_bytes: int


def _divide(value: int, by: int, what: str) -> int:
    if value % by:
        raise VllmHostError(
            "unsupported",
            f"vllm_engine_args.tensor_parallel_size {by} does not divide the model's {value} {what}; choose a divisor.",
            key="tensor_parallel_size",
            found=by,
            expected=f"a divisor of {value}",
        )
    return value // by


def _mamba2_groups(groups: int, tensor_parallel_size: int) -> int:
    """Groups are repeated until each rank has its own."""
    return groups if groups % tensor_parallel_size == 0 else tensor_parallel_size


def _first(text: Mapping[str, Any], *keys: str) -> int:
    key = next((key for key in keys if text.get(key) is not None), keys[0])
    return config_int(text, key)


def _mamba2_shapes(model: ModelConfig, options: StateOptions) -> tuple[tuple[int, ...], ...]:
    text, tp = model.text, options.tensor_parallel_size
    kind = model.text_model_type
    if kind in ("nemotron_h", "nemotron_h_puzzle") or "mamba_num_heads" in text:
        heads, head_dim = config_int(text, "mamba_num_heads"), config_int(text, "mamba_head_dim")
        groups, state, conv = (
            _first(text, "n_groups"),
            config_int(text, "ssm_state_size"),
            config_int(text, "conv_kernel"),
        )
        inner = heads * head_dim
    elif kind == "mamba2":
        heads, head_dim = config_int(text, "num_heads"), config_int(text, "head_dim")
        groups, state, conv = (
            config_int(text, "n_groups"),
            config_int(text, "state_size"),
            config_int(text, "conv_kernel"),
        )
        inner = config_int(text, "expand") * model.hidden_size
    elif kind == "zamba2":
        heads, head_dim = config_int(text, "n_mamba_heads"), config_int(text, "mamba_headdim")
        groups, state, conv = (
            config_int(text, "mamba_ngroups"),
            config_int(text, "mamba_d_state"),
            config_int(text, "mamba_d_conv"),
        )
        inner = config_int(text, "mamba_expand") * model.hidden_size
    else:
        heads, head_dim = config_int(text, "mamba_n_heads"), config_int(text, "mamba_d_head")
        groups, state, conv = (
            config_int(text, "mamba_n_groups"),
            config_int(text, "mamba_d_state"),
            config_int(text, "mamba_d_conv"),
        )
        inner = config_size(text, "mamba_d_ssm")
        inner = inner or int(config_number(text, "mamba_expand", 0.0) * model.hidden_size)
        if not inner:
            raise bad_config("mamba_expand is missing; give the model's complete config.json.", "mamba_expand")
    channels = _divide(inner + 2 * _mamba2_groups(groups, tp) * state, tp, "Mamba channels")
    window = conv - 1 + options.num_speculative_tokens
    return (window, channels), (_divide(heads, tp, "Mamba heads"), head_dim, state)


def _mamba1_shapes(model: ModelConfig, options: StateOptions) -> tuple[tuple[int, ...], ...]:
    text, tp = model.text, options.tensor_parallel_size
    if "mamba_d_state" in text:
        inner = config_int(text, "mamba_expand") * model.hidden_size
        state, conv = config_int(text, "mamba_d_state"), config_int(text, "mamba_d_conv")
    else:
        inner = config_int(text, "intermediate_size") if text.get("intermediate_size") else 2 * model.hidden_size
        state, conv = config_int(text, "state_size"), config_int(text, "conv_kernel")
    channels = _divide(inner, tp, "Mamba channels")
    return (conv - 1, channels), (channels, state)


def _gdn_shapes(model: ModelConfig, options: StateOptions) -> tuple[tuple[int, ...], ...]:
    text, tp = model.text, options.tensor_parallel_size
    key_heads, value_heads = config_int(text, "linear_num_key_heads"), config_int(text, "linear_num_value_heads")
    key_dim, value_dim = config_int(text, "linear_key_head_dim"), config_int(text, "linear_value_head_dim")
    channels = _divide(2 * key_heads * key_dim + value_heads * value_dim, tp, "linear-attention channels")
    window = config_int(text, "linear_conv_kernel_dim") - 1 + options.num_speculative_tokens
    return (window, channels), (_divide(value_heads, tp, "linear-attention heads"), value_dim, key_dim)


def _kda_shapes(model: ModelConfig, options: StateOptions) -> tuple[tuple[int, ...], ...]:
    linear = model.text.get("linear_attn_config")
    if not isinstance(linear, Mapping):
        raise bad_config("linear_attn_config is missing.", "linear_attn_config")
    heads, head_dim = config_int(linear, "num_heads"), config_int(linear, "head_dim")
    channels = _divide(3 * heads * head_dim, options.tensor_parallel_size, "linear-attention channels")
    window = config_int(linear, "short_conv_kernel_size") - 1 + options.num_speculative_tokens
    return (window, channels), (
        _divide(heads, options.tensor_parallel_size, "linear-attention heads"),
        head_dim,
        head_dim,
    )


def _linear_shapes(model: ModelConfig, options: StateOptions) -> tuple[tuple[int, ...], ...]:
    heads = _divide(model.num_attention_heads, options.tensor_parallel_size, "attention heads")
    head_dim = config_size(model.text, "head_dim", default=model.head_size)
    return ((heads, head_dim, head_dim),)


def _short_conv_shapes(model: ModelConfig, options: StateOptions) -> tuple[tuple[int, ...], ...]:
    channels = _divide(
        config_size(model.text, "conv_dim", default=model.hidden_size), options.tensor_parallel_size, "channels"
    )
    return ((config_int(model.text, "conv_L_cache") - 1 + options.num_speculative_tokens, channels),)


_SHAPES = {
    "mamba1": _mamba1_shapes,
    "mamba2": _mamba2_shapes,
    "gdn": _gdn_shapes,
    "kda": _kda_shapes,
    "linear": _linear_shapes,
    "short_conv": _short_conv_shapes,
}


def state_dtype_bytes(model: ModelConfig, kind: str, cache_dtype: str, ssm_dtype: str) -> tuple[int, int]:
    """Bytes of an element of the convolution's and of the recurrent part.

    Args:
        cache_dtype, ssm_dtype: --mamba-cache-dtype and --mamba-ssm-cache-dtype.
    """
    conv = model.dtype_bytes if cache_dtype == "auto" else TORCH_DTYPE_BYTES[cache_dtype]
    if ssm_dtype == "auto":
        declared = None
        if model.text_model_type.startswith("nemotron_h"):
            declared = model.text.get("mamba_ssm_cache_dtype", "float32")
        elif model.text_model_type.startswith("qwen3_5"):
            declared = model.text.get("mamba_ssm_dtype")
        elif kind == "kda":
            declared = "float32"
        return conv, TORCH_DTYPE_BYTES.get(str(declared), conv) if declared else conv
    return conv, TORCH_DTYPE_BYTES[ssm_dtype]


def keeps_every_block(kind: str) -> bool:
    """Whether vLLM can keep this state for every block (mode ``all``, releases before 0.28)."""
    return kind in ("mamba1", "mamba2")


def chunk_size(model: ModelConfig) -> int:
    """Tokens that a Mamba 2 kernel works on at once; 2,048 stands for the models without (config/model.py)."""
    for key in ("mamba_chunk_size", "chunk_size"):
        if model.text.get(key):
            return config_int(model.text, key)
    return 2048


def recurrent_state(model: ModelConfig, kind: str, options: StateOptions) -> RecurrentState:
    """The state of one layer.

    Raises:
        VllmHostError: ``bad_config`` for missing keys, ``unsupported`` when TP does not divide what it must.
    """
    shapes = _SHAPES[kind](model, options)
    sizes = [options.conv_dtype_bytes] + [options.ssm_dtype_bytes] * (len(shapes) - 1)
    total = sum(prod(shape) * size for shape, size in zip(shapes, sizes))
    return RecurrentState(kind=kind, shapes=shapes, bytes=total, checkpoint_blocks=1 if kind == "mamba2" else 0)
