"""The transfer as a process of its own: started, watched, killed, stopped, taken up. No systemd here: a session of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils import checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint import job
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.fetch import FetchRequest, fetch
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.progress import read_progress, write_progress
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.store import Store
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError

from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import REPO, SHARD_BYTES, contents, cut_every_shard

pytestmark = pytest.mark.slow

SLOW: dict[str, Any] = {"where": "cdn", "bytes_per_second": 600_000, "times": None}


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code as the tools environment has it: package ``gpuhost_vllm``."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "gpuhost_vllm").symlink_to(Path(checkpoint.__path__[0]).parent)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.setattr(job, "_has_systemd", lambda: False)


@pytest.fixture
def started(request_for: Callable[..., FetchRequest], store: Path) -> Iterator[Callable[..., tuple[Store, str]]]:
    pids: list[int] = []

    def start(**fields: Any) -> tuple[Store, str]:
        where = Store(store, REPO)
        name = job.start(request_for(**fields), where)
        state = job.running(where)
        assert state is not None
        pids.append(state["pid"])
        return where, name

    yield start
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def wait_for_bytes(where: Store, least: int) -> int:
    """Pid of the transfer, once so much has arrived."""
    for _ in range(200):
        state = job.running(where) or {}
        if (state.get("progress") or {}).get("bytes_done", 0) >= least:
            return int(state["pid"])
        time.sleep(0.05)
    raise AssertionError(f"the transfer did not get to {least} bytes")


def end_of(where: Store, name: str) -> dict[str, Any]:
    for _ in range(400):
        result = job.outcome(where, name)
        if result is not None:
            return result
        time.sleep(0.05)
    raise AssertionError("the transfer did not end")


def reap(pid: int) -> None:
    os.waitpid(pid, 0)


def test_runs_to_its_end_and_tells_its_result_once_it_has(started: Any, files: dict[str, bytes]) -> None:
    where, name = started()
    result = end_of(where, name)
    assert contents(result["path"]) == files
    assert result["changed"] and result["bytes_downloaded"] == sum(map(len, files.values()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_goes_on_at_the_byte(started: Any, hub: Hub, files: dict[str, bytes], request_for: Any, number: int) -> None:
    hub.faults.add(**SLOW)
    where, name = started()
    pid = wait_for_bytes(where, 2_000_000)
    os.kill(pid, number)
    reap(pid)
    with pytest.raises(VllmHostError) as raised:
        end_of(where, name)
    assert raised.value.code == ("transfer_died" if number == signal.SIGKILL else "transfer_stopped")
    assert not any(where.snapshots.glob("*/*.safetensors"))
    held = sum(part.stat().st_size for part in where.partial.iterdir())
    if number == signal.SIGTERM:
        assert held >= 2_000_000 - 4 * 4096, "what was in memory was written"

    hub.faults.clear()
    hub.seen.clear()
    result = fetch(request_for())
    assert contents(result.path) == files
    assert result.bytes_resumed == held
    assert result.bytes_downloaded == 4 * SHARD_BYTES - held, "no byte came twice"
    assert all(seen.range for seen in hub.seen if seen.origin == "cdn")
    assert list(where.partial.iterdir()) == []


def test_a_part_that_a_power_loss_damaged_is_fetched_again(
    run: Any, hub: Hub, files: dict[str, bytes], store: Path
) -> None:
    cut_every_shard(hub, 2_000_000)
    with pytest.raises(VllmHostError, match="What was received is kept"):
        run()
    parts = sorted((store / "acme--model" / "partial").iterdir())
    assert len(parts) == 4
    with parts[0].open("r+b") as stream:
        stream.write(bytes(4096))  # a block that was announced and never reached the disk
    hub.faults.clear()
    result = run()
    assert contents(result.path) == files
    held = 2_000_000 // 4096 * 4096
    assert result.bytes_downloaded == 4 * (SHARD_BYTES - held) + SHARD_BYTES, "one shard came twice, the others went on"


def test_after_a_reboot_the_next_run_takes_it_up(
    started: Any, hub: Hub, files: dict[str, bytes], request_for: Any, tmp_path: Path
) -> None:
    hub.faults.add(**SLOW)
    where, name = started()
    pid = wait_for_bytes(where, 2_000_000)
    os.kill(pid, signal.SIGKILL)
    reap(pid)
    # The dead one's number now belongs to a transfer into another store.
    other = Store(tmp_path / "other", REPO)
    job.start(request_for(store=str(tmp_path / "other")), other)
    running = job.running(other)
    assert running is not None
    try:
        state = {**read_progress(where.progress_file), "pid": running["pid"]}
        write_progress(where.progress_file, state)
        assert state["state"] == "running" and job.running(where) is None
        with pytest.raises(VllmHostError, match="was killed"):
            job.outcome(where, name)
    finally:
        os.kill(running["pid"], signal.SIGKILL)
        reap(running["pid"])
    hub.faults.clear()
    where, name = started()
    result = end_of(where, name)
    assert contents(result["path"]) == files and result["bytes_resumed"] > 0


def test_a_failure_is_told_with_its_code(started: Any, hub: Hub) -> None:
    hub.faults.add(where="cdn", flip_at=7, times=None)
    where, name = started()
    with pytest.raises(VllmHostError) as raised:
        end_of(where, name)
    assert raised.value.code == "content_mismatch" and "expected" in raised.value.details


def test_the_token_is_in_no_argument_environment_or_file(started: Any, hub: Hub, store: Path) -> None:
    hub.tokens = {"hf_very_secret": "ann"}
    hub.faults.add(**SLOW)
    where, name = started(token="hf_very_secret")
    pid = wait_for_bytes(where, 1_000_000)
    for place in ("cmdline", "environ"):
        assert b"hf_very_secret" not in Path(f"/proc/{pid}/{place}").read_bytes()
    for path in store.rglob("*"):
        assert not path.is_file() or b"hf_very_secret" not in path.read_bytes()
    order = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3].decode()
    assert not Path(order).exists()


def test_proxies_reach_the_process_without_its_environment(
    started: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", hub.endpoint.replace("://", "://user:secret@"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    where, name = started(endpoint="http://hub.invalid")
    assert end_of(where, name)["changed"]
    assert any(seen.path.startswith("http://hub.invalid/") for seen in hub.seen), "a whole URL, as a proxy gets it"


def test_a_process_that_cannot_start_is_reported(
    request_for: Any, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "START_TIMEOUT_S", 0.5)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VllmHostError) as raised:
        job.start(request_for(), Store(store, REPO))
    assert raised.value.code == "job_not_started"
