# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer that outlives whoever started it: as a transient systemd unit, watched through the store.

The module starts it and asks how far it is; the process itself is ``python -m gpuhost_vllm.checkpoint.job REQUEST_FILE``. The request holds the
token, so it travels in a file that only root can read and that the process removes first; never in arguments, environment or unit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import VllmHostError
from .fetch import FetchRequest, fetch
from .progress import Progress, progress_line, read_progress, write_progress
from .retry import Gate, RetryPolicy
from .store import Store
from .transfer import Stopped

START_TIMEOUT_S = 30.0
JOURNAL_INTERVAL_S = 30.0
# What the HTTP client reads from the environment; proxies may carry passwords, so it goes the same way as the token.
PASSED_ENVIRONMENT = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HF_HUB_OFFLINE"),
)


def run_watched(request: FetchRequest, job: str, gate: Gate) -> dict[str, Any]:
    """Fetch, and keep the progress file up to date: what pollers see, and at last the result or the failure.

    Raises:
        VllmHostError, Stopped: as ``fetch``.
    """
    store = Store(Path(request.store), request.repo_id)
    state: dict[str, Any] = {
        "job": job,
        "state": "running",
        "pid": os.getpid(),
        "request": request_key(request),
        "progress": None,
    }
    said = time.monotonic()

    def tell(**changes: Any) -> None:
        state.update(changes)
        if store.folder.is_dir():
            write_progress(store.progress_file, state)

    def watch(progress: Progress) -> None:
        nonlocal said
        tell(progress=progress.as_json())
        if time.monotonic() - said >= JOURNAL_INTERVAL_S:
            said = time.monotonic()
            _say(progress_line(state["progress"], request.repo_id))

    tell()
    try:
        result = dataclasses.asdict(fetch(request, gate=gate, watch=watch))
    except VllmHostError as error:
        tell(state="failed", failure=error.as_result())
        raise
    except Stopped:
        tell(state="stopped")
        raise
    except BaseException as error:
        tell(state="failed", failure=unexpected(error).as_result())
        raise
    tell(state="finished", result=result)
    return result


def request_key(request: FetchRequest) -> str:
    """Equal for requests that lead to the same snapshot, so that the second can join the first."""
    essence = [request.repo_id, request.revision, request.allow_patterns, request.ignore_patterns, request.verify]
    return hashlib.sha256(json.dumps(essence).encode()).hexdigest()


def unexpected(error: BaseException) -> VllmHostError:
    """The kind of an unforeseen error, without its text: that might hold a URL with a signature."""
    number = f" {os.strerror(error.errno)}" if isinstance(error, OSError) and error.errno else ""
    return VllmHostError(
        "transfer_broke", f"the transfer ended with {type(error).__name__}{number}. What was received is kept."
    )


def start(request: FetchRequest, store: Store) -> str:
    """Start the process and wait until it reports; returns the job's id.

    Raises:
        VllmHostError: ``job_not_started``.
    """
    job = secrets.token_hex(8)
    store.folder.mkdir(parents=True, exist_ok=True)
    environment = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
    order = {"job": job, "request": dataclasses.asdict(request), "environment": environment}
    folder = "/run" if os.access("/run", os.W_OK) else None
    descriptor, name = tempfile.mkstemp(prefix=f"vllm-fetch-{job}-", suffix=".json", dir=folder)  # mode 0600
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(order, stream)
    command = [sys.executable, "-m", "gpuhost_vllm.checkpoint.job", name]
    try:
        _start_unit(store, command) if _has_systemd() else _start_session(command)
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if read_progress(store.progress_file).get("job") == job:
                return job
            time.sleep(0.1)
    finally:
        Path(name).unlink(missing_ok=True)
    raise VllmHostError(
        "job_not_started",
        f"the transfer did not start within {START_TIMEOUT_S:.0f} s. Look at journalctl -u {unit_name(store.repo_id)}.",
    )


def _has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir() and os.geteuid() == 0


def unit_name(repo_id: str) -> str:
    return f"vllm-fetch-{repo_id.replace('/', '--')}.service"


def _start_unit(store: Store, command: list[str]) -> None:
    unit = unit_name(store.repo_id)
    done = subprocess.run(
        [
            *("systemd-run", "--quiet", "--collect", f"--unit={unit}", "--description=Checkpoint transfer for vLLM"),
            *("--property=KillMode=mixed", "--property=TimeoutStopSec=90", "--property=UMask=0022", "--"),
            *command,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise VllmHostError("job_not_started", f"systemd-run could not start {unit}: {done.stderr.strip()}", unit=unit)


def _start_session(command: list[str]) -> None:
    """Without systemd: a session of its own, which the end of the SSH connection does not touch."""
    subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )


def running(store: Store) -> dict[str, Any] | None:
    """The state of the running job of this repository; None if there is none."""
    state = read_progress(store.progress_file)
    return state if state.get("state") == "running" and _is_job(state.get("pid"), state.get("job")) else None


def _is_job(pid: Any, job: Any) -> bool:
    """Whether that process is this job: after a reboot its number may be another's, even another transfer's."""
    try:
        return f"vllm-fetch-{job}-" in Path(f"/proc/{int(pid)}/cmdline").read_text(errors="replace")
    except (OSError, ValueError, TypeError):
        return False


def outcome(store: Store, job: str) -> dict[str, Any] | None:
    """Result of a job that has ended; None while it runs.

    Raises:
        VllmHostError: the job's own failure; ``transfer_stopped``, ``transfer_died``, ``job_unknown``.
    """
    alive = running(store)
    if alive and alive["job"] == job:
        return None
    state = read_progress(store.progress_file)
    if state.get("job") != job:
        raise VllmHostError(
            "job_unknown", f"{store.folder} knows no transfer {job}; another one has run since. Run again."
        )
    if state["state"] == "finished":
        return dict(state["result"])
    if state["state"] == "failed":
        failure = state["failure"]
        raise VllmHostError(failure["failure"]["code"], failure["msg"], **failure["failure"]["details"])
    code, what = ("transfer_stopped", "was stopped") if state["state"] == "stopped" else ("transfer_died", "was killed")
    raise VllmHostError(
        code,
        f"the transfer of {store.repo_id} {what} (process {state['pid']}); what was received is kept: run again. "
        f"Why: journalctl -u {unit_name(store.repo_id)}.",
    )


def _say(text: str) -> None:
    """To the journal, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    order_file = Path(sys.argv[1])
    order = json.loads(order_file.read_text(encoding="utf-8"))
    order_file.unlink()
    os.environ.update(order["environment"])
    fields = order["request"]
    request = FetchRequest(**{**fields, "policy": RetryPolicy(**fields["policy"])})
    gate = Gate()

    def stop(number: int, frame: FrameType | None) -> None:
        gate.stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        result = run_watched(request, order["job"], gate)
    except Stopped:
        _say("stopped; what was received is kept")
        return 0
    except VllmHostError as error:
        _say(error.message)
        return 1
    except Exception as error:
        _say(unexpected(error).message)
        return 1
    _say(f"complete: {result['path']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
