# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a transfer is: counted by the workers, written to the store for whoever watches, put into one line."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from .transfer import Tally

RATE_WINDOW_S = 30.0


class Progress(Tally):
    """Bytes and files, counted from several threads.

    Attributes:
        bytes_total, files_total: of the whole selection, also of what is there already.
        bytes_done: verified in their place, or received.
    """

    def __init__(self, bytes_total: int, bytes_done: int, files_total: int, files_done: int) -> None:
        self.bytes_total = bytes_total
        self.bytes_done = bytes_done
        self.files_total = files_total
        self.files_done = files_done
        self.bytes_downloaded = 0
        self.bytes_resumed = 0
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def received(self, count: int) -> None:
        with self._lock:
            self.bytes_done += count
            self.bytes_downloaded += count

    def resumed(self, count: int) -> None:
        with self._lock:
            self.bytes_done += count
            self.bytes_resumed += count

    def forget(self, count: int) -> None:
        with self._lock:
            self.bytes_done -= count

    def found(self, count: int) -> None:
        """The content was in the store already, under another name."""
        with self._lock:
            self.bytes_done += count

    def file_done(self) -> None:
        with self._lock:
            self.files_done += 1

    def as_json(self) -> dict[str, Any]:
        """One look, with the rate over the last half minute in bytes a second."""
        with self._lock:
            now = time.monotonic()
            self._samples.append((now, self.bytes_downloaded))
            while len(self._samples) > 2 and now - self._samples[0][0] > RATE_WINDOW_S:
                self._samples.popleft()
            since, then = self._samples[0]
            rate = (self.bytes_downloaded - then) / (now - since) if now > since else 0.0
            left = self.bytes_total - self.bytes_done
            return {
                "bytes_done": self.bytes_done,
                "bytes_total": self.bytes_total,
                "files_done": self.files_done,
                "files_total": self.files_total,
                "bytes_downloaded": self.bytes_downloaded,
                "bytes_resumed": self.bytes_resumed,
                "bytes_per_second": round(rate),
                "seconds_left": round(left / rate) if rate > 0 else None,
            }


def progress_line(progress: dict[str, Any], name: str = "") -> str:
    """``kimi: 212.4 of 540.1 GB (39 %), 47 of 119 files, 812 MB/s, 6 min 43 s left``; at most 80 columns."""
    done, total = progress["bytes_done"], progress["bytes_total"]
    unit, divisor = ("GB", 1e9) if total >= 1e9 else ("MB", 1e6)
    parts = [
        f"{done / divisor:.1f} of {total / divisor:.1f} {unit} ({100 * done // total if total else 100} %)",
        f"{progress['files_done']}/{progress['files_total']} files",
        f"{progress['bytes_per_second'] / 1e6:.0f} MB/s",
    ]
    if progress.get("seconds_left") is not None:
        parts.append(f"{duration(progress['seconds_left'])} left")
    line = ", ".join(parts)
    room = 80 - len(line) - 2
    if name and room > 3:
        line = f"{name if len(name) <= room else name[: room - 1] + '…'}: {line}"
    return line[:80]


def duration(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def write_progress(path: Path, state: dict[str, Any]) -> None:
    """Replace the progress file in one step; of no importance after a power loss."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    aside.write_text(json.dumps(state), encoding="utf-8")
    aside.replace(path)


def read_progress(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
