# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of well-known models for a Hub on this machine: real configurations and tensor headers over files that are holes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.config_tensors import tensors_from_config
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.model_config import parse_model_config

from tests.host.hub.repositories import HashCache
from tests.unit.memory.memory_cases import DATA, write_checkpoint

_FILES = ("kv_cases.json", "extra_cases.json")
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for name in _FILES for case in json.loads((DATA / name).read_text())["cases"]
}


def add_model(root: Path, repo_id: str, case: str, shards: int = 4, **changes: Any) -> Path:
    """Write the model of ``case`` below ``root``, the folder of a Hub, as ``repo_id``; ``changes`` are keys of config.json."""
    config, quantization = {**CASES[case]["config"], **changes}, CASES[case].get("hf_quant_config")
    tensors = tensors_from_config(parse_model_config(config, quantization))
    assert tensors is not None, f"{case}: the tensors of this family are not known"
    folder = root / repo_id
    write_checkpoint(folder, config, tensors, shards, quantization)
    hashes = HashCache(root / ".hashes")
    for shard in folder.glob(
        "*.safetensors"
    ):  # nobody reads the holes, and hashing hundreds of gigabytes of them takes minutes
        hashes.preset(shard, hashlib.sha256(shard.name.encode()).hexdigest())
    return folder
