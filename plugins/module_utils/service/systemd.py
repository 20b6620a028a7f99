# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The little of systemd that the service needs: the state of a unit, its journal, its processes, and changes of state."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..errors import VllmHostError

PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "NRestarts",
    "InvocationID",
    "UnitFileState",
    "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)


@dataclass(frozen=True)
class UnitState:
    """Some of ``systemctl show``; empty strings and zeros for a unit that does not exist. start_seconds: from the start until active."""

    load: str
    active: str
    sub: str
    result: str
    main_pid: int
    restarts: int
    invocation: str
    enabled: str
    start_seconds: Optional[float] = None

    @property
    def starting(self) -> bool:
        return self.active in ("activating", "reloading") and self.sub != "auto-restart"

    @property
    def running(self) -> bool:
        return self.active == "active" and self.main_pid > 0

    @property
    def between_restarts(self) -> bool:
        """The process ended and systemd waits for RestartSec (``auto-restart-queued`` since systemd 254)."""
        return self.sub.startswith("auto-restart")


def parse_show(text: str) -> UnitState:
    """The output of ``systemctl show --property=…``."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return UnitState(
        load=values.get("LoadState", ""),
        active=values.get("ActiveState", ""),
        sub=values.get("SubState", ""),
        result=values.get("Result", ""),
        main_pid=int(values.get("MainPID") or 0),
        restarts=int(values.get("NRestarts") or 0),
        invocation=values.get("InvocationID", ""),
        enabled=values.get("UnitFileState", ""),
        start_seconds=_start_seconds(values),
    )


def _start_seconds(values: Mapping[str, str]) -> Optional[float]:
    """None while it starts, and for a unit that never was active."""
    left, entered = (int(values.get(f"{name}TimestampMonotonic") or 0) for name in ("InactiveExit", "ActiveEnter"))
    return (entered - left) / 1e6 if 0 < left <= entered else None


def unit_state(unit: str) -> UnitState:
    return parse_show(_output(["systemctl", "show", f"--property={','.join(PROPERTIES)}", "--", unit]))


def systemctl(*arguments: str) -> Optional[str]:
    """Run one command; None when it worked, else what systemctl said."""
    done = _run(["systemctl", *arguments])
    return None if done.returncode == 0 else (done.stderr.strip() or f"systemctl {' '.join(arguments)} failed")


def journal(unit: str, invocation: str = "", since: str = "", lines: int = 4000) -> list[str]:
    """The lines of the unit and what systemd says about it, oldest first.

    Args:
        invocation: only those of one start (systemd's InvocationID).
        since: a time that ``journalctl --since`` understands, such as ``@1764646800``.
        lines: at most that many, the newest.
    """
    command = ["journalctl", "--quiet", "--no-pager", "--output=cat", f"--lines={lines}"]
    if since:
        command.append(f"--since={since}")
    # With the second match come systemd's own lines, which tell of the OOM killer and of exit codes.
    of_start = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    command += of_start if invocation else [f"--unit={unit}"]
    return _output(command).splitlines()


def processes_of(unit: str) -> list[int]:
    """Process ids in a unit's control group and those below it, whatever the version of the control groups."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return sorted(pid for pid in pids if unit_of(pid) == unit)


def unit_of(pid: int) -> Optional[str]:
    """The system unit that a process belongs to; None outside any, or if the process is gone."""
    found = re.findall(r"/([^/\n]+\.(?:service|scope))", _read(Path(f"/proc/{pid}/cgroup")))
    return found[-1] if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise VllmHostError(
            "systemd_missing", f"{command[0]} cannot be run: {error}. The host needs systemd."
        ) from error


def _output(command: Sequence[str]) -> str:
    return _run(command).stdout
