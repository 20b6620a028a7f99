#!/usr/bin/env python3
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processor time of the KV-cache arithmetic alone: plan, fit and capacity of every case (aim: under 5 ms each).

Run: PYTHONPATH=.collections .venv/bin/python tests/benchmark/bench_kv_arithmetic.py [repeats]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_cache import plan_kv_cache

DATA = Path(__file__).parents[1] / "unit" / "memory" / "data"


def answer(case: dict[str, Any]) -> None:
    gpu = case["gpu"]
    plan = plan_kv_cache(
        case["config"],
        hf_quant_config=case.get("hf_quant_config"),
        engine_args=case["engine_args"],
        gpu=Gpu(gpu["total_bytes"], tuple(gpu["compute_capability"]), name=gpu["name"]),
        env=case.get("env"),
        packages=case.get("stub_modules") or (),
    )
    plan.max_model_len_fit(case["available_memory"])
    plan.capacity(case["available_memory"])


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rows = []
    for name in ("kv_cases.json", "extra_cases.json"):
        path = DATA / name
        for case in json.loads(path.read_text())["cases"] if path.exists() else []:
            times = []
            for _ in range(repeats):
                start = time.process_time()
                answer(case)
                times.append((time.process_time() - start) * 1000)
            rows.append((statistics.median(times), max(times), case["id"]))
    rows.sort(reverse=True)
    print(f"{'case':40} {'median ms':>10} {'worst ms':>10}")
    for median, worst, name in rows[:5]:
        print(f"{name:40} {median:10.2f} {worst:10.2f}")
    print(f"{len(rows)} cases, median of all {statistics.median(row[0] for row in rows):.2f} ms")


if __name__ == "__main__":
    main()
