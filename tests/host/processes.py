"""Processes by number and start time, so that a number that the kernel gave away again is never mistaken."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def start_time(pid: int) -> str:
    """The kernel's start time of a process in clock ticks since boot; empty if there is no such process (or a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(pid: int, started: str) -> bool:
    """Whether the process that had this number at that start time still runs."""
    return bool(started) and start_time(pid) == started


def children(pid: int) -> list[int]:
    """The process numbers of a process's children, oldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def started_with(program: str, word: bytes) -> dict[int, str]:
    """Processes (number: start time) of this program that have this word among their arguments."""
    found = {}
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(command.parent.name)
        if Path(os.fsdecode(words[0])).name == program and word in words and (started := start_time(pid)):
            found[pid] = started
    return found


def kill_and_wait(pid: int, started: str, timeout_s: float = 15) -> bool:
    """SIGKILL that very process and wait until it is gone; whether it is."""
    deadline = time.monotonic() + timeout_s
    while is_alive(pid, started) and time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        _reap(pid)
        time.sleep(0.02)
    return not is_alive(pid, started)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # not a child of this process
