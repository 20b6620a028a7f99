# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's own benchmark, `vllm bench serve` of the installed release, against the running server: figures that compare with published ones."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import VllmHostError

_OUTPUT_LINES = 15


@dataclass(frozen=True)
class BenchRequest:
    """What is measured.

    Args:
        executable: `vllm` of the release. url: base URL of the server. model: its name at the API. tokenizer: folder of the checkpoint.
        levels: numbers of simultaneous requests. prompts_per_level: requests for each of them, times the level.
        input_tokens, output_tokens: length of the random prompts, and of the answers.
        timeout: seconds for one level.
    """

    executable: str
    url: str
    model: str
    tokenizer: str
    levels: Sequence[int]
    prompts_per_level: int = 4
    input_tokens: int = 512
    output_tokens: int = 128
    timeout: float = 600.0


@dataclass(frozen=True)
class BenchPoint:
    """Figures of one number of simultaneous requests, as vLLM prints them."""

    concurrency: int
    completed: int
    failed: int
    output_tokens_per_second: float
    total_tokens_per_second: float
    median_ttft_ms: float
    p99_ttft_ms: float
    median_tpot_ms: float


def bench_serve(request: BenchRequest, api_key: str = "") -> list[BenchPoint]:
    """Measure each level; the key travels in the environment. Raises ``bench_failed`` with the benchmark's last words."""
    return [_level(request, level, api_key) for level in request.levels]


def _level(request: BenchRequest, level: int, api_key: str) -> BenchPoint:
    with tempfile.TemporaryDirectory(prefix="vllm-bench-") as folder:
        result = Path(folder) / "bench.json"
        command = [
            request.executable,
            "bench",
            "serve",
            "--backend=openai-chat",
            f"--base-url={request.url.rstrip('/')}",
            "--endpoint=/v1/chat/completions",
            f"--model={request.model}",
            f"--tokenizer={request.tokenizer}",
            "--dataset-name=random",
            f"--random-input-len={request.input_tokens}",
            f"--random-output-len={request.output_tokens}",
            f"--num-prompts={request.prompts_per_level * level}",
            f"--max-concurrency={level}",
            "--ignore-eos",
            "--disable-tqdm",
            "--save-result",
            f"--result-dir={folder}",
            f"--result-filename={result.name}",
        ]
        # Its caches go with the folder; the GPUs belong to the server.
        environment = {
            **os.environ,
            "HOME": folder,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OPENAI_API_KEY": api_key or "none",
        }
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=request.timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(level, str(error)) from error
        if not result.is_file():
            raise _failed(level, "\n".join(done.stdout.splitlines()[-_OUTPUT_LINES:]))
        return parse_result(level, result.read_text())


def _failed(level: int, reason: str) -> VllmHostError:
    return VllmHostError(
        "bench_failed",
        f"vllm bench serve with {level} simultaneous requests gave no result: {reason}",
        concurrency=level,
    )


def _rounded(found: Any, digits: int) -> float:
    """A figure; ValueError for none: a benchmark in which nothing completed says NaN."""
    figure = float(found)
    if not math.isfinite(figure):
        raise ValueError(f"{found} is no figure")
    return round(figure, digits)


def parse_result(level: int, text: str) -> BenchPoint:
    """The JSON file of `vllm bench serve --save-result` (0.15 to 0.33); raises ``bench_failed`` if it is another format."""
    try:
        document = json.loads(text)
        return BenchPoint(
            concurrency=level,
            completed=int(document["completed"]),
            failed=int(document.get("failed") or 0),
            output_tokens_per_second=_rounded(document["output_throughput"], 2),
            total_tokens_per_second=_rounded(document["total_token_throughput"], 2),
            median_ttft_ms=_rounded(document["median_ttft_ms"], 1),
            p99_ttft_ms=_rounded(document["p99_ttft_ms"], 1),
            median_tpot_ms=_rounded(document["median_tpot_ms"], 2),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise VllmHostError(
            "bench_failed", f"The result of vllm bench serve is not understood: {error!r}", concurrency=level
        ) from error
