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
from typing import Any, Callable, Optional

from .quant_formats import QuantScheme, quant_scheme
from .safetensors_headers import TensorGroup
from .tensor_families import FAMILIES
from .tensor_list import TensorList

_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def tensors_from_config(
    config: Mapping[str, Any], hf_quant_config: Optional[Mapping[str, Any]] = None
) -> Optional[tuple[TensorGroup, ...]]:
    """The tensor list of a known family.

    Args:
        config: config.json.
        hf_quant_config: hf_quant_config.json, if there is one.

    Returns:
        The list, or None for a family or a quantization method that is not known here.

    Raises:
        KeyError: a key that the family needs is absent (the caller has validated the configuration before).
    """
    text = config.get("text_config")
    model: dict[str, Any] = {**config, **text} if isinstance(text, Mapping) else dict(config)
    architectures = config.get("architectures") or model.get("architectures") or [""]
    family: Optional[Callable[[TensorList, Mapping[str, Any], Mapping[str, Any]], None]] = FAMILIES.get(
        architectures[0]
    )
    declared = config.get("quantization_config") or model.get("quantization_config") or config.get("compression_config")
    scheme: Optional[QuantScheme] = quant_scheme(declared, hf_quant_config)
    if family is None or scheme is None:
        return None
    dtype = str(model.get("dtype") or model.get("torch_dtype") or config.get("torch_dtype") or "bfloat16")
    tensors = TensorList(_DTYPES.get(dtype.replace("torch.", ""), "BF16"), scheme)
    family(tensors, model, config)
    return tensors.groups()
