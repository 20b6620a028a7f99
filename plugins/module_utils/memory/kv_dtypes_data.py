# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""KV-cache data types of vLLM 0.32.0 and how each packs one token of one head.

Sources: vllm/config/cache.py (names; of the releases named in releases_data), utils/torch_utils.py (element sizes, ModelOpt names), v1/attention/backends/
triton_attn.py and flashinfer.py (per-token scales, NVFP4), layers/quantization/turboquant/config.py (presets).
"""

from __future__ import annotations

from typing import Any

#: name -> bytes of an element (None: the model's own type), the way of packing and the first release (none: before 0.15).
KV_CACHE_DTYPES: dict[str, dict[str, Any]] = {
    "auto": {"element_bytes": None, "packing": "dense"},
    "float16": {"element_bytes": 2, "packing": "dense"},
    "bfloat16": {"element_bytes": 2, "packing": "dense"},
    "fp8": {"element_bytes": 1, "packing": "dense"},
    "fp8_e4m3": {"element_bytes": 1, "packing": "dense"},
    "fp8_e5m2": {"element_bytes": 1, "packing": "dense"},
    "fp8_inc": {"element_bytes": 1, "packing": "dense"},
    "int8_per_token_head": {"element_bytes": 1, "packing": "token_head_scales", "since": "0.20.0"},
    "fp8_per_token_head": {"element_bytes": 1, "packing": "token_head_scales", "since": "0.20.0"},
    "int4_per_token_head": {"element_bytes": 0.5, "packing": "token_head_scales", "since": "0.25.0"},
    "nvfp4": {"element_bytes": 0.5, "packing": "nvfp4", "since": "0.20.0"},
    "nvfp4_4over6": {"element_bytes": 0.5, "packing": "nvfp4", "since": "0.28.0"},
    "turboquant_k8v4": {"element_bytes": None, "packing": "turboquant", "since": "0.20.0"},
    "turboquant_4bit_nc": {"element_bytes": None, "packing": "turboquant", "since": "0.20.0"},
    "turboquant_k3v4_nc": {"element_bytes": None, "packing": "turboquant", "since": "0.20.0"},
    "turboquant_3bit_nc": {"element_bytes": None, "packing": "turboquant", "since": "0.20.0"},
    "fp8_ds_mla": {"element_bytes": 1, "packing": "ds_mla"},
    "nvfp4_ds_mla": {"element_bytes": 0.5, "packing": "ds_mla", "since": "0.30.0"},
}

#: Bytes of one token in the opaque sparse-MLA layouts (layers/attention/mla_attention.py).
DS_MLA_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}

#: Bits of a key and of a value element in TurboQuant's presets; 8-bit keys carry no norm.
TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}

#: Layers at either end of a dense model that TurboQuant leaves in the model's own type.
TURBOQUANT_BOUNDARY_LAYERS = 2

#: kv_cache_quant_algo of ModelOpt -> vLLM's name (utils/torch_utils.py).
MODELOPT_KV_CACHE_DTYPES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}

#: Bytes of an element of torch's types by the names that config.json uses.
TORCH_DTYPE_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
    "float64": 8,
}
