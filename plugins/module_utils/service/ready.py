# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until a service answers its health check, or say why it never will.

Runs inside the unit as ``ExecStartPost=… -m gpuhost_vllm.service.ready``, which makes ``active`` mean ready, and behind the module
``vllm_ready``. A process that ends is noticed at the next look, not at the time-out.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import urlunsplit

from ..errors import VllmHostError
from . import systemd
from .log_triage import triage
from .ports import listeners
from .processes import record_processes
from .systemd import UnitState
from .urls import server_port, server_url

POLL_S = 0.5
HEALTH_TIMEOUT_S = 5
LAST_LINES = 15


@dataclass(frozen=True)
class Ready:
    """``seconds`` waited; ``log`` of the start that became healthy (empty without a unit)."""

    seconds: float
    log: Sequence[str] = ()


def health_url(url: str) -> str:
    """``http://host:8000`` and ``http://host:8000/health`` both as the latter."""
    parts = server_url(url)
    path = parts.path if parts.path.rstrip("/") else "/health"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def is_healthy(url: str) -> bool:
    """Whether a GET answers 200. Proxies of the environment are not used."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=HEALTH_TIMEOUT_S) as response:
            return bool(response.status == 200)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def is_strangers(url: str, unit: str) -> bool:
    """Whether whoever listens where ``url`` points belongs to something else than ``unit``; False where that cannot be seen."""
    parts = server_url(url)
    owners = [listener.process for listener in listeners(parts.hostname or "", server_port(parts))]
    return bool(owners) and all(process is not None and process.unit not in (None, unit) for process in owners)


def wait_until_ready(
    url: str,
    unit: Optional[str],
    timeout_s: float,
    healthy: Callable[[str], bool] = is_healthy,
    strangers: Callable[[str, str], bool] = is_strangers,
    look: Callable[[str], UnitState] = systemd.unit_state,
    read_log: Callable[..., list[str]] = systemd.journal,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ready:
    """Wait for 200 from ``url``; with ``unit``, also for that unit to be the one that lives and answers.

    Raises ``service_not_ready`` as soon as the unit failed, ended, or was restarted, or when ``timeout_s`` is over, with the cause from the
    log in ``details.cause`` and its last lines in ``details.log``.
    """
    address = health_url(url)
    begun = clock()
    first = look(unit) if unit else None
    while True:
        # A stranger on the port answers while the unit's own server is about to find it taken.
        answers = healthy(address) and not (unit and strangers(address, unit))
        state = look(unit) if unit else None
        elapsed = clock() - begun
        if state is not None and first is not None and unit is not None:
            ended = why_ended(first, state)
            if ended:
                raise failure(unit, ended, elapsed, read_log(unit, invocation=first.invocation))
        if answers:
            return Ready(round(elapsed, 1), read_log(unit, invocation=first.invocation) if unit and first else ())
        if elapsed >= timeout_s:
            log = read_log(unit, invocation=first.invocation) if unit and first else []
            raise failure(unit or address, f"did not answer {address} within {timeout_s:.0f} s", elapsed, log)
        sleep(POLL_S)


def why_ended(first: UnitState, now: UnitState) -> Optional[str]:
    """What happened to the start that was seen first; None while it goes on."""
    if now.load == "not-found":
        return "does not exist"
    if now.active == "failed":
        return f"failed ({now.result})"
    if now.between_restarts:
        return f"ended ({now.result}) and will be restarted"
    if now.active in ("inactive", "deactivating"):
        return "is not running"
    if now.invocation != first.invocation or now.restarts > first.restarts:
        return "ended and was restarted"
    if now.main_pid == 0 and now.sub in ("start-post", "running"):
        return "ended while it was starting"
    return None


def failure(subject: str, what: str, seconds: float, log: Sequence[str]) -> VllmHostError:
    """The error of a start that came to nothing."""
    cause = cause_of(log)
    last = list(log[-LAST_LINES:])
    return VllmHostError(
        "service_not_ready",
        f"{subject} {what} after {seconds:.0f} s. {_told(subject, cause, last)}",
        unit=subject,
        seconds=round(seconds, 1),
        cause=cause,
        log=last,
    )


def _told(subject: str, cause: Optional[dict[str, Any]], last: Sequence[str]) -> str:
    if cause:
        # The last line of a traceback says what was raised; a known message is one line anyway.
        return f"Cause: {cause['meaning']} ({cause['example'].splitlines()[-1]}) {cause['remedy']}"
    if last:
        # systemd's own lines tell that it ended, which is known.
        own = [line for line in last if not line.startswith(f"{subject}: ")] or last
        return f"Its log does not tell the cause and ends with: {own[-1]}"
    return f"Its log is empty; see journalctl -u {subject}."


def cause_of(log: Sequence[str]) -> Optional[dict[str, Any]]:
    """The first cause of a failure that the log holds, as a finding of ``log_triage``; None if it holds none."""
    found = triage(log)
    cause = found.cause or found.previous_cause
    return cause.as_result() if cause else None


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """For ExecStartPost: 0 when ready, 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="gpuhost_vllm.service.ready", description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--unit", required=True)
    parser.add_argument("--timeout", type=float, required=True, metavar="SECONDS")
    options = parser.parse_args(arguments)
    try:
        ready = wait_until_ready(options.url, options.unit, options.timeout)
    except VllmHostError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    # The next start can then tell its own leftovers from strangers.
    record_processes(options.unit)
    sys.stdout.write(f"healthy after {ready.seconds:.1f} s\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
