# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a log as a record for the next plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Optional

from ..memory.measured import Measurement

GIB = 1 << 30


def measurement_of(key: Mapping[str, Any], measured: Mapping[str, Any], now: datetime) -> Measurement:
    """A record from ``log_measured``'s figures: GiB, as vLLM rounds them to two digits, become bytes."""
    return Measurement(
        key=key,
        available_kv_cache_bytes=_bytes(measured.get("available_kv_gib")),
        weights_bytes_per_gpu=_bytes(measured.get("weights_gib")),
        kv_cache_tokens=measured.get("kv_cache_tokens"),
        max_concurrency=measured.get("max_concurrency"),
        max_model_len=measured.get("max_model_len"),
        # A CPU build tells only how long it read.
        load_seconds=measured.get("load_seconds") or measured.get("weights_read_seconds"),
        measured_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def same_memory(old: Optional[Measurement], new: Measurement) -> bool:
    """Whether two records say the same but for the times."""
    return old is not None and replace(old, load_seconds=None, measured_at="") == replace(
        new, load_seconds=None, measured_at=""
    )


def _bytes(gib: Optional[float]) -> Optional[int]:
    return None if gib is None else round(gib * GIB)
