"""Checkpoint folders as people have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.manifest import (
    Manifest,
    ManifestFile,
    utc_now,
    write_manifest,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "quantization_config": {
        "ignore": ["lm_head"],
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "quant_algo": "NVFP4",
        "quant_method": "modelopt",
    },
}
HF_QUANT_CONFIG = {
    "producer": {"name": "modelopt", "version": "0.41.0"},
    "quantization": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head"],
    },
}


def write_checkpoint(folder: Path, config: Any = CONFIG, hf_quant_config: Any = HF_QUANT_CONFIG) -> Path:
    """A checkpoint of two shards in a subfolder-free layout, as the Hub has them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if hf_quant_config is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(hf_quant_config, indent=4))
    shards = {f"model-{i:05d}-of-00002.safetensors": bytes([i]) * 5000 for i in (1, 2)}
    for name, content in shards.items():
        (folder / name).write_bytes(content)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "vocab.txt").write_text("a\nb\n")
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    return folder


def add_manifest(folder: Path, *, complete: bool = True) -> None:
    """The manifest that checkpoint_fetch would have written."""
    files = {
        str(path.relative_to(folder)): ManifestFile(
            str(path.relative_to(folder)), path.stat().st_size, "0" * 64, None, utc_now()
        )
        for path in folder.rglob("*")
        if path.is_file()
    }
    write_manifest(folder, Manifest("org/model", "main", COMMIT, complete, files))
