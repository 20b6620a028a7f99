# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes by an identity that survives the reuse of process ids, and how to end exactly one of them."""

from __future__ import annotations

import json
import os
import pwd
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from .systemd import processes_of, unit_of

# Cleared by a reboot, like the processes themselves.
RECORDS = Path("/run/vllm")
TERM_S = 10.0
KILL_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Process:
    """One process. ``started`` is its start in clock ticks after boot: a reused pid has another one."""

    pid: int
    started: int
    name: str
    user: str
    unit: Optional[str]

    def describe(self) -> str:
        return f"pid {self.pid} ({self.name}, user {self.user}{', unit ' + self.unit if self.unit else ''})"


def find_process(pid: int) -> Optional[Process]:
    """The process with that id now; None if there is none or if it is a zombie."""
    folder = Path(f"/proc/{pid}")
    try:
        # "pid (name) state ...": the name may hold spaces and parentheses, so what follows is read from the last one.
        head, parenthesis, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        uid = folder.stat().st_uid
    except OSError:
        return None
    fields = rest.split()
    if fields[0] in ("Z", "X"):
        return None
    return Process(pid, int(fields[19]), head.partition("(")[2], _user_name(uid), unit_of(pid))


def ancestors(pid: int) -> set[int]:
    """A process's own id and those of its parents."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def end(processes: Iterable[Process], term_s: float = TERM_S, kill_s: float = KILL_S) -> list[Process]:
    """SIGTERM, then SIGKILL after ``term_s``; returns those that still live ``kill_s`` later (stuck in the kernel)."""
    rest = list(processes)
    for number, patience_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
        for process in rest:
            _signal(process, number)
        rest = _wait_for_end(rest, patience_s)
    return rest


def _wait_for_end(processes: Sequence[Process], patience_s: float) -> list[Process]:
    deadline = time.monotonic() + patience_s
    rest = list(processes)
    while rest and time.monotonic() < deadline:
        rest = [process for process in rest if _lives(process)]
        time.sleep(_POLL_S if rest else 0)
    return rest


def _lives(process: Process) -> bool:
    now = find_process(process.pid)
    return now is not None and now.started == process.started


def _signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to this very process: the descriptor pins it, so that its id cannot pass to another one in between."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if _lives(process):
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def leftovers(unit: str, user: str, records: Path = RECORDS) -> list[Process]:
    """Live processes of an earlier start of ``unit``."""
    mine = ancestors(os.getpid())
    found = {pid: find_process(pid) for pid in processes_of(unit) if pid not in mine}
    for pid, started in _recorded(records / f"{unit}.json"):
        process = find_process(pid)
        if process and process.started == started and process.user == user and pid not in mine:
            found[pid] = process
    return [process for process in found.values() if process]


def record_processes(unit: str, records: Path = RECORDS) -> None:
    """Remember the processes of a healthy start, for :func:`leftovers` of the next one. Who asks, as ExecStartPost, is none of them."""
    found = [find_process(pid) for pid in processes_of(unit) if pid != os.getpid()]
    record = records / f"{unit}.json"
    records.mkdir(mode=0o755, parents=True, exist_ok=True)
    aside = record.with_suffix(".new")
    aside.write_text(json.dumps([[process.pid, process.started] for process in found if process]))
    aside.replace(record)


def _recorded(record: Path) -> Iterable[tuple[int, int]]:
    try:
        return [(int(pid), int(started)) for pid, started in json.loads(record.read_text())]
    except (OSError, ValueError):
        return []


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
