"""A process that outlives the command that started it and is ended by the id it was recorded with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.host import paths
from tests.host.processes import is_alive, start_time

START_SECONDS = 20.0
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Background:
    """One process of this machine, by a name that is unique in the cache folder."""

    name: str

    @property
    def _record(self) -> Path:
        return paths.CACHE / "run" / f"{self.name}.pid"

    @property
    def log(self) -> Path:
        return paths.CACHE / "run" / f"{self.name}.log"

    def pid(self) -> int | None:
        """The process id while that very process lives."""
        with contextlib.suppress(OSError, ValueError):
            pid, start = self._record.read_text().split()
            if is_alive(int(pid), start):
                return int(pid)
        return None

    def ensure(self, command: Sequence[str], ready: str) -> None:
        """Start ``command`` unless it runs; returns once its log shows the text ``ready``.

        Raises RuntimeError with the log when it ends or says nothing within START_SECONDS.
        """
        if self.pid():
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=paths.CHECKOUT, start_new_session=True
            )
        self._record.write_text(f"{process.pid} {start_time(process.pid)}")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if ready in self.log.read_text():
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()}")

    def stop(self) -> None:
        """TERM, then KILL after STOP_SECONDS; nothing when it does not run."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self.pid()
            if pid is None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + STOP_SECONDS
            while self.pid() and time.monotonic() < deadline:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.05)
        self._record.unlink(missing_ok=True)
