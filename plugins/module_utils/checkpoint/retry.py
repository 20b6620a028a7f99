# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often to try again and how long to wait."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

# What a server may ask us to wait for; beyond it the run fails and says so.
LONGEST_WAIT_S = 3600.0
_FOREVER_S = 1e9  # JSON has no infinity
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# RateLimit: "api";r=0;t=55 (draft-ietf-httpapi-ratelimit-headers): nothing remains, new quota in 55 s.
RATE_LIMIT = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")


@dataclass(frozen=True)
class RetryPolicy:
    """``attempts`` in a row without any progress, with pauses that double from ``base_s`` to ``cap_s``."""

    attempts: int = 8
    base_s: float = 1.0
    cap_s: float = 30.0

    def pause_s(self, failures: int) -> float:
        """After so many failures in a row; up to a quarter shorter, so that several hosts do not return at once."""
        return min(self.cap_s, self.base_s * 2 ** max(failures - 1, 0)) * random.uniform(0.75, 1.0)


def wait_as_told(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks us to wait: Retry-After (seconds or a date), else a rate limit that is used up."""
    told = headers.get("Retry-After", "").strip()
    if told.isdecimal():
        return min(float(told), _FOREVER_S)
    if told:
        try:
            return max(0.0, (parsedate_to_datetime(told) - datetime.now(timezone.utc)).total_seconds())
        except (TypeError, ValueError):
            pass
    used_up = RATE_LIMIT.search(headers.get("RateLimit", ""))
    return min(float(used_up[1]), _FOREVER_S) if used_up else None


class Gate:
    """One server's "wait" holds for all workers. Also how a run is told to stop."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._open_at = 0.0

    def close_for(self, seconds: float) -> None:
        self._open_at = max(self._open_at, time.monotonic() + seconds)

    def wait(self, seconds: float = 0.0) -> bool:
        """Sleep for so long and until the gate is open; False if the run is to stop."""
        until = time.monotonic() + seconds
        while not self.stopped.is_set():
            left = max(until, self._open_at) - time.monotonic()
            if left <= 0:
                return True
            self.stopped.wait(min(left, 1.0))
        return False
