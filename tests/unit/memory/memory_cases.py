# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases with vLLM's own answers, and checkpoints written to disk as safetensors files without data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.budget import BudgetRequest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import given_configuration
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import TensorGroup

DATA = Path(__file__).parent / "data"
KV_CASES = {case["id"]: case for case in json.loads((DATA / "kv_cases.json").read_text())["cases"]}
GPU_CASES = {case["id"]: case for case in json.loads((DATA / "gpu_memory_cases.json").read_text())["cases"]}
WEIGHTS_CASES = json.loads((DATA / "weights_cases.json").read_text())["cases"]

RTX_PRO_6000 = Gpu(97_887 * 2**20, (12, 0), name="NVIDIA RTX PRO 6000 Blackwell Server Edition")


def kv_case_request(case: dict[str, Any], **changes: Any) -> BudgetRequest:
    """The request of a case, its memory for the cache given."""
    gpu = case["gpu"]
    available = case["available_memory"]
    fields: dict[str, Any] = {
        "checkpoint": given_configuration(case["config"], case.get("hf_quant_config")),
        "engine_args": case["engine_args"],
        "vllm_version": case["expected"]["vllm"],
        "gpu": Gpu(gpu["total_bytes"], tuple(gpu["compute_capability"]), name=gpu["name"]),
        "available_kv_cache_bytes": available if isinstance(available, list) else [available],
        "packages": tuple(case.get("stub_modules") or ()),
    }
    return BudgetRequest(**{**fields, **changes})


def shard_bytes(tensors: Sequence[tuple[str, str, Sequence[int], int]], metadata: bool = True) -> tuple[bytes, int]:
    """Prefix and header of a file with these tensors (name, dtype, shape, bytes), and the size of its data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}} if metadata else {}
    offset = 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offset


def write_shard(path: Path, tensors: Sequence[tuple[str, str, Sequence[int], int]]) -> None:
    """A safetensors file whose data is a hole."""
    head, data = shard_bytes(tensors)
    with path.open("wb") as stream:
        stream.write(head)
        stream.truncate(len(head) + data)


def write_checkpoint(
    folder: Path, config: dict[str, Any], groups: Sequence[TensorGroup], shards: int, hf_quant_config: Any = None
) -> int:
    """A whole checkpoint without data: every tensor of every group, spread over shards. Returns the number of tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    if hf_quant_config is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(hf_quant_config, indent=2))
    tensors = [
        (group.name.replace(".experts.*.", f".experts.{number}."), group.dtype, group.shape, group.tensor_bytes)
        for group in groups
        for number in range(group.count)
    ]
    for shard in range(shards):
        part = tensors[shard * len(tensors) // shards : (shard + 1) * len(tensors) // shards]
        write_shard(folder / f"model-{shard + 1:05d}-of-{shards:05d}.safetensors", part)
    return len(tensors)
