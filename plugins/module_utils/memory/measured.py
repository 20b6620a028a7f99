# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM said at an earlier start, kept on the host so that the next plan need not forecast.

One JSON file a deployment in ``/var/lib/vllm/measured``. Its schema (version 1)::

    {"schema": 1,
     "key": {"model": "nvidia/Kimi-K2.5-NVFP4", "commit": "<40 hex>", "release": "0.32.0", "gpu_name": "NVIDIA ...",
             "gpu_count": 8, "engine_args": {...the relevant ones, sorted...}, "kv_cache_dtype": "bfloat16",
             "checkpoint_state": "stripped"},
     "weights_bytes_per_gpu": 76439268692, "available_kv_cache_bytes": 12562779340, "num_gpu_blocks": 11173,
     "kv_cache_tokens": 178768, "max_concurrency": 1.36, "max_model_len": 131072, "load_seconds": 540.0,
     "measured_at": "2026-12-02T04:00:00Z"}

A key names everything that changes memory, so a record is either about the same deployment or about another one. Fields
beside ``schema`` and ``key`` may be null when the log did not say them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

SCHEMA = 1
MEASURED_FOLDER = "/var/lib/vllm/measured"

#: Engine arguments that change weights, overhead or cache of one GPU. Not ``max_model_len`` (the bytes left for the cache
#: do not depend on it) and not ``kv_cache_dtype`` (a field of its own).
RELEVANT_ENGINE_ARGS = (
    "attention_backend",
    "block_size",
    "compilation_config",
    "data_parallel_size",
    "decode_context_parallel_size",
    "disable_custom_all_reduce",
    "disable_hybrid_kv_cache_manager",
    "dtype",
    "enable_expert_parallel",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "language_model_only",
    "limit_mm_per_prompt",
    "max_cudagraph_capture_size",
    "max_num_batched_tokens",
    "max_num_seqs",
    "mm_encoder_tp_mode",
    "moe_backend",
    "pipeline_parallel_size",
    "quantization",
    "speculative_config",
    "tensor_parallel_size",
)


@dataclass(frozen=True)
class Measurement:
    """One record; bytes are bytes of one GPU (the smallest rank)."""

    key: Mapping[str, Any]
    available_kv_cache_bytes: Optional[int] = None
    weights_bytes_per_gpu: Optional[int] = None
    num_gpu_blocks: Optional[int] = None
    kv_cache_tokens: Optional[int] = None
    max_concurrency: Optional[float] = None
    max_model_len: Optional[int] = None
    load_seconds: Optional[float] = None
    measured_at: str = ""

    def as_record(self) -> dict[str, Any]:
        """The JSON document of this record."""
        return {"schema": SCHEMA, **asdict(self), "key": dict(self.key)}


def measurement_key(
    model: str,
    commit: str,
    release: str,
    gpu_name: str,
    gpu_count: int,
    engine_args: Mapping[str, Any],
    kv_cache_dtype: str,
    checkpoint_state: str,
) -> dict[str, Any]:
    """The identity of a deployment as far as memory is concerned.

    Args:
        model: repository id, or the path of a local checkpoint.
        commit: the resolved revision; empty for a local folder.
        release: version of vLLM, ``0.32.0``.
        gpu_name: product name, ``cpu`` without a GPU.
        gpu_count: GPUs of the instance.
        engine_args: all engine arguments; the relevant ones are picked and sorted here.
        kv_cache_dtype: what was set explicitly.
        checkpoint_state: ``original`` or ``stripped``.
    """
    relevant = {name: engine_args[name] for name in RELEVANT_ENGINE_ARGS if engine_args.get(name) is not None}
    return {
        "model": model,
        "commit": commit,
        "release": release,
        "gpu_name": gpu_name,
        "gpu_count": gpu_count,
        "engine_args": relevant,
        "kv_cache_dtype": kv_cache_dtype,
        "checkpoint_state": checkpoint_state,
    }


def measurement_path(key: Mapping[str, Any], folder: str = MEASURED_FOLDER) -> Path:
    """Where the record of a key is kept: a readable name and a hash of the whole key."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", str(key["model"])).strip("-")[-60:]
    return Path(folder) / f"{readable}-{digest}.json"


def write_measurement(measurement: Measurement, folder: str = MEASURED_FOLDER) -> Path:
    """Keep a record: one whole file or none, readable by all."""
    path = measurement_path(measurement.key, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(measurement.as_record(), stream, indent=2, sort_keys=True)
            stream.write("\n")
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise
    return path


def find_measurement(key: Mapping[str, Any], folder: str = MEASURED_FOLDER) -> Optional[Measurement]:
    """The record of exactly this key, or None: absent, of another schema, damaged, or about something else.

    An empty ``folder`` means that this is not the host where records are kept.
    """
    if not folder:
        return None
    path = measurement_path(key, folder)
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or record.get("key") != dict(key):
        return None
    known = {name: value for name, value in record.items() if name in Measurement.__dataclass_fields__}
    figures = [value for name, value in known.items() if name not in ("key", "measured_at") and value is not None]
    if any(
        isinstance(figure, bool) or not isinstance(figure, (int, float)) or not 0 <= figure < 1 << 62
        for figure in figures
    ):
        return None
    return Measurement(**known)
