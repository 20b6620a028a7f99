# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tensors that a checkpoint has, told from its config.json alone: for when there are no headers to read.

A model family is a function that names its layers' tensors as the published checkpoints do. The names and shapes are those
that transformers' model classes save (class named at each family). A family that is not here has no list: then the caller
says so instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from .model_config import MOST_LAYERS, ModelConfig, bad_config, config_int, config_list
from .quant_formats import quant_scheme
from .safetensors_headers import TensorGroup
from .tensor_families import FAMILIES
from .tensor_list import TensorList

#: What the families read from a configuration, by what it has to be.
LAYER_COUNTS = frozenset({"num_hidden_layers", "num_nextn_predict_layers", "vt_num_hidden_layers"})
PERIODS = frozenset(
    {
        *("decoder_sparse_step", "full_attention_interval", "interleave_moe_layer_step", "moe_layer_freq"),
        *("hidden_size", "num_attention_heads", "vocab_size"),
    }
)
LISTS = frozenset({"layer_types", "mlp_only_layers"})
WHOLE_NUMBERS = frozenset(
    {
        *("num_key_value_heads", "head_dim", "intermediate_size", "intermediate_size_mlp", "moe_intermediate_size"),
        *("shared_intermediate_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
        *("num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts", "first_k_dense_replace"),
        *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        *("index_topk", "index_n_heads", "index_head_dim"),
        *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
        *("linear_conv_kernel_dim", "conv_kernel", "n_groups", "ssm_state_size", "mamba_num_heads", "mamba_head_dim"),
        *("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"),
        *("vt_hidden_size", "vt_intermediate_size", "patch_size", "init_pos_emb_height", "init_pos_emb_width"),
        "text_hidden_size",
    }
)
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def tensors_from_config(model: ModelConfig) -> Optional[tuple[TensorGroup, ...]]:
    """The tensor list of a known family.

    Args:
        model: the parsed configuration.

    Returns:
        The list, or None for a family or a quantization method that is not known here.

    Raises:
        VllmHostError: ``bad_config`` when a key is absent that the family needs.
    """
    family = FAMILIES.get(model.architecture)
    scheme = quant_scheme(model.quantization)
    if family is None or scheme is None:
        return None
    tensors = TensorList(_DTYPES.get(model.dtype, "BF16"), scheme)
    text, whole = _checked({**model.top, **model.text}), dict(model.top)
    if isinstance(whole.get("vision_config"), Mapping):
        whole["vision_config"] = _checked(whole["vision_config"])
    elif whole.get("vision_config") is not None:
        raise bad_config("vision_config must be a mapping.", "vision_config")
    try:
        family(tensors, text, whole)
    except KeyError as error:
        key = str(error.args[0])
        raise bad_config(f"{key} is missing; give the model's complete config.json.", key) from error
    return tensors.groups()


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that say something, numbers and lists being what they should be."""
    found = {key: value for key, value in config.items() if value is not None}
    for key in WHOLE_NUMBERS & found.keys():
        found[key] = config_int(found, key, minimum=0)
    for key in PERIODS & found.keys():
        found[key] = config_int(found, key)
    for key in LAYER_COUNTS & found.keys():
        found[key] = config_int(found, key, minimum=0, maximum=MOST_LAYERS)
    for key in LISTS & found.keys():
        found[key] = config_list(found, key)
    pattern = found.get("hybrid_override_pattern", "")
    if not isinstance(pattern, str):
        raise bad_config(
            "hybrid_override_pattern must be a text with a letter for each layer.", "hybrid_override_pattern"
        )
    if "merge_kernel_size" in found:
        sides = config_list(found, "merge_kernel_size")
        if len(sides) != 2:
            raise bad_config("merge_kernel_size must be two numbers.", "merge_kernel_size", found=repr(sides)[:100])
        found["merge_kernel_size"] = [config_int({"merge_kernel_size": side}, "merge_kernel_size") for side in sides]
    return found
