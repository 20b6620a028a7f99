# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speed of a running server: time to first token and tokens per second, alone and with several requests at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .openai_client import Answer, ApiError, Client
from .probe_data import SPEED_PROMPT


@dataclass(frozen=True)
class SpeedPoint:
    """One number of simultaneous requests.

    Args:
        time_to_first_token_s: median over the requests. tokens_per_second: median of one request while it decodes.
        total_tokens_per_second: output tokens of all requests by the time that they took together.
        error: why there are no figures; empty otherwise.
    """

    concurrency: int
    time_to_first_token_s: float = 0.0
    tokens_per_second: float = 0.0
    total_tokens_per_second: float = 0.0
    error: str = ""


def measure_speed(client: Client, model: str, levels: Sequence[int], tokens: int, ends: float) -> list[SpeedPoint]:
    """Measure each level once, in order, after one request that warms up.

    Args:
        tokens: length of each answer; the end-of-text token is ignored so that all have it.
        ends: `time.monotonic()` after which no further level begins.
    """
    points: list[SpeedPoint] = []
    for index, level in enumerate(sorted(set(levels))):
        if time.monotonic() >= ends:
            points.append(SpeedPoint(level, error="not begun: the deadline has passed"))
            continue
        try:
            if index == 0:
                _request(client, model, 0, min(tokens, 8))
            points.append(_measure(client, model, level, tokens))
        except ApiError as error:
            points.append(SpeedPoint(level, error=error.message))
    return points


def _request(client: Client, model: str, number: int, tokens: int) -> Answer:
    # The number comes first, so that no request finds the prompt of another one in the prefix cache.
    prompt = f"Story number {number}. {SPEED_PROMPT}"
    return client.stream(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
    )


def _measure(client: Client, model: str, level: int, tokens: int) -> SpeedPoint:
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=level) as pool:
        answers = list(pool.map(lambda number: _request(client, model, level * 1000 + number, tokens), range(level)))
    elapsed = time.monotonic() - started
    first = [a.first_token_seconds for a in answers if a.first_token_seconds is not None]
    if len(first) < level:
        raise ApiError("shape", f"{level - len(first)} of {level} streams held no text")
    single = [speed for speed in (_decode_speed(answer) for answer in answers) if speed]
    total = sum(_completion_tokens(answer) for answer in answers)
    return SpeedPoint(
        concurrency=level,
        time_to_first_token_s=round(statistics.median(first), 4),
        tokens_per_second=round(statistics.median(single), 2) if single else 0.0,
        total_tokens_per_second=round(total / elapsed, 2),
    )


def _completion_tokens(answer: Answer) -> int:
    return int(answer.usage.get("completion_tokens") or 0)


def _decode_speed(answer: Answer) -> float:
    """Tokens after the first by the time after the first; 0 if the answer came in one piece."""
    span = (answer.last_token_seconds or 0.0) - (answer.first_token_seconds or 0.0)
    return (_completion_tokens(answer) - 1) / span if span > 0 else 0.0
