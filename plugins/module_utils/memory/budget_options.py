# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that the modules about memory share, and how they become a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from ..errors import VllmHostError
from .budget import BudgetRequest
from .checkpoint_metadata import CheckpointMetadata, given_configuration, read_local_checkpoint
from .compute_capability import parse_capability
from .engine import Gpu
from .engine_args import with_underscores
from .engine_options import judge_options
from .measured import Measurement
from .releases import release_text

#: Of these exactly one.
BUDGET_SOURCES = ("path", "repo_id", "config")

SOURCE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "path": {"type": "path"},
    "repo_id": {"type": "str"},
    "revision": {"type": "str", "default": "main"},
    "endpoint": {"type": "str", "default": ""},
    "token": {"type": "str", "default": "", "no_log": True},
    "config": {"type": "dict"},
    "hf_quant_config": {"type": "dict"},
}

BUDGET_ARGUMENTS: dict[str, dict[str, Any]] = {
    **SOURCE_ARGUMENTS,
    "engine_args": {"type": "dict", "default": {}},
    "vllm_version": {"type": "raw", "default": "0.32.0"},
    "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
    "gpu_name": {"type": "str", "default": ""},
    "gpu_total_bytes": {"type": "int"},
    "gpu_reserved_bytes": {"type": "int"},
    "compute_capability": {"type": "str"},
    "env": {"type": "dict", "default": {}},
    "available_kv_cache_bytes": {"type": "list", "elements": "int"},
    "weights_bytes_per_gpu": {"type": "list", "elements": "int"},
    "overhead_bytes_per_gpu": {"type": "int"},
    "packages": {"type": "list", "elements": "str", "default": []},
}


def budget_request(params: Mapping[str, Any], measurement: Optional[Measurement] = None) -> BudgetRequest:
    """The request that module parameters mean; reads the checkpoint's metadata.

    Raises:
        VllmHostError: of the metadata readers; ``bad_value`` for a compute capability that is none.
    """
    checkpoint = read_checkpoint(params)
    unknown = judge_options(with_underscores(params["engine_args"]), "engine_args", force=True)
    return BudgetRequest(
        checkpoint=replace(checkpoint, notes=(*checkpoint.notes, *unknown)),
        engine_args=params["engine_args"],
        vllm_version=release_text(params["vllm_version"]),
        gpu=gpu_of(params),
        gpu_reserved_bytes=params["gpu_reserved_bytes"],
        env={name: str(value) for name, value in params["env"].items()},
        available_kv_cache_bytes=params["available_kv_cache_bytes"] or (),
        weights_bytes_per_gpu=params["weights_bytes_per_gpu"] or (),
        overhead_bytes_per_gpu=params["overhead_bytes_per_gpu"],
        measurement=measurement,
        packages=params["packages"],
    )


def gpu_of(params: Mapping[str, Any]) -> Gpu:
    """The device; an unknown compute capability stays at the arithmetic's default."""
    known = {"total_bytes": params["gpu_total_bytes"] or 0, "device": params["device"], "name": params["gpu_name"]}
    text = params["compute_capability"]
    if not text:
        return Gpu(**known)
    capability = parse_capability(text)
    if capability is None:
        raise VllmHostError(
            "bad_value",
            f"compute_capability must look like 12.0, not {text!r}.",
            key="compute_capability",
            found=str(text),
        )
    return Gpu(**known, compute_capability=capability)


def read_checkpoint(params: Mapping[str, Any]) -> CheckpointMetadata:
    """Metadata from the source that was given."""
    if params["config"] is not None:
        return given_configuration(params["config"], params["hf_quant_config"])
    if params["path"]:
        return read_local_checkpoint(params["path"])
    # Not at the top: huggingface_hub takes its time, and only a Hub needs it.
    from .hub_metadata import read_hub_checkpoint

    return read_hub_checkpoint(params["repo_id"], params["revision"], params["endpoint"], params["token"])


def checkpoint_result(checkpoint: CheckpointMetadata) -> dict[str, Any]:
    """What a module returns about the checkpoint."""
    return {
        "origin": checkpoint.origin,
        "commit": checkpoint.commit,
        "bytes_total": checkpoint.bytes_total,
        "weight_bytes": checkpoint.weight_bytes or 0,
        "bytes_read": checkpoint.bytes_read,
    }
