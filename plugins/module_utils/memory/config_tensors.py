# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tensors that a checkpoint has, told from its config.json alone: for when there are no headers to read.

A model family is a function that names its layers' tensors as the published checkpoints do. The names and shapes are those
that transformers' model classes save (class named at each family). A family that is not here has no list: then the caller
says so instead of guessing.
"""

from __future__ import annotations

from typing import Optional

from .model_config import ModelConfig, bad_config
from .quant_formats import quant_scheme
from .safetensors_headers import TensorGroup
from .tensor_families import FAMILIES
from .tensor_list import TensorList

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
    try:
        family(tensors, {**model.top, **model.text}, model.top)
    except KeyError as error:
        key = str(error.args[0])
        raise bad_config(f"{key} is missing; give the model's complete config.json.", key) from error
    return tensors.groups()
