"""How NVIDIA ModelOpt declares a quantized checkpoint whose KV cache is FP8, as nvidia/Kimi-K2.5-NVFP4 does.

The weights themselves stay in bf16 (``ignore: ["*"]``), so that a CPU can serve them; the metadata alone makes vLLM keep its
KV cache in FP8. That is what checkpoint_patch strips.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PRODUCER = {"name": "modelopt", "version": "0.41.0"}


def declare_fp8_kv_cache(folder: Path) -> None:
    """Write the two declarations: config.json's quantization_config and hf_quant_config.json."""
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["quantization_config"] = {
        "ignore": ["*"],
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "producer": PRODUCER,
        "quant_algo": "FP8",
        "quant_method": "modelopt",
    }
    write_json(config_path, config, indent=2)
    write_json(
        folder / "hf_quant_config.json",
        {
            "producer": PRODUCER,
            "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["*"]},
        },
        indent=4,
    )


def write_json(path: Path, value: Any, indent: int) -> None:
    path.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")
