"""GPU memory before a start, with the fake NVML under the real client and real processes of the host."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SetGpus = Callable[[dict[int, dict[str, Any]]], None]
UNIT = "vllm-a.service"
HELD_MIB = 60000


@pytest.fixture(autouse=True)
def stopped(host: Any) -> Iterator[None]:
    host.check_output(f"systemctl stop {UNIT}; systemctl reset-failed")
    yield
    host.run("systemctl stop holder")
    host.check_output(f"systemctl reset-failed; systemctl start {UNIT}")


@pytest.fixture
def start(host: Any) -> Callable[[], tuple[bool, str, float]]:
    """Start the unit; whether it became healthy, what it said, and the seconds it took."""

    def run() -> tuple[bool, str, float]:
        since = host.check_output("date +@%s.%N")
        begun = time.monotonic()
        done = host.run(f"systemctl start {UNIT}")
        seconds = time.monotonic() - begun
        log = host.check_output(f"journalctl --quiet --no-pager --output=cat --since={since} --unit={UNIT}")
        host.run(f"test {done.rc} = 0 || systemctl stop {UNIT}")
        return done.rc == 0, log, seconds

    return run


def hold(host: Any, user: str) -> int:
    """A process that the fake NVML takes for one with GPU memory, in a unit of its own; its pid."""
    command = f"systemd-run --quiet --unit=holder --uid={user} bash -c 'exec -a memory-holder sleep 600'"
    host.check_output(command)
    time.sleep(0.5)
    return int(host.check_output("systemctl show --value --property=MainPID holder"))


def record(host: Any, pid: int) -> None:
    """As if the last healthy start of the unit had had this process."""
    started = host.check_output(f"cat /proc/{pid}/stat").rpartition(")")[2].split()[19]
    host.check_output(
        "mkdir -p /run/vllm && echo %s > /run/vllm/vllm-a.service.json", json.dumps([[pid, int(started)]])
    )


HOLDER = {"processes": [{"command": "memory-holder", "used_mib": HELD_MIB}]}


def test_a_start_with_free_gpus(start: Callable[..., Any], set_gpus: SetGpus) -> None:
    set_gpus({})
    healthy, log, seconds = start()
    assert healthy and "waiting" not in log and seconds < 20


def test_own_leftovers_are_ended(host: Any, start: Callable[..., Any], set_gpus: SetGpus) -> None:
    set_gpus({0: HOLDER})
    pid = hold(host, "vllm")
    record(host, pid)
    healthy, log, _seconds = start()
    assert healthy and f"ending what an earlier start left: pid {pid}" in log
    assert not host.file(f"/proc/{pid}").exists


def test_a_stranger_is_named_and_left_alone(host: Any, start: Callable[..., Any], set_gpus: SetGpus) -> None:
    set_gpus({1: HOLDER})
    pid = hold(host, "nobody")
    record(host, pid)
    healthy, log, seconds = start()
    assert not healthy and 18 < seconds < 60
    assert (
        f"GPU 1 has 36.4 GiB free of 87.4 GiB needed, held by pid {pid} (sleep, user nobody, unit holder.service): 58.6 GiB"
        in log
    )
    assert host.file(f"/proc/{pid}").exists


def test_another_process_of_the_service_user_is_a_stranger_too(
    host: Any, start: Callable[..., Any], set_gpus: SetGpus
) -> None:
    """Another instance runs as the same user."""
    set_gpus({1: HOLDER})
    pid = hold(host, "vllm")
    host.run("rm -f /run/vllm/vllm-a.service.json")
    healthy, log, _seconds = start()
    assert not healthy and f"pid {pid}" in log and host.file(f"/proc/{pid}").exists


def test_gpus_of_others_do_not_matter(host: Any, start: Callable[..., Any], set_gpus: SetGpus) -> None:
    set_gpus({5: HOLDER})
    hold(host, "nobody")
    assert start()[0]


def test_memory_of_a_process_that_nvml_does_not_show(start: Callable[..., Any], set_gpus: SetGpus) -> None:
    """As in a container: the memory is used, but by whom is not told."""
    set_gpus({0: {"memory_used_mib": HELD_MIB}})
    healthy, log, _seconds = start()
    assert not healthy and "58.6 GiB by no process that NVML shows here" in log


def test_memory_that_frees_slowly(start: Callable[..., Any], set_gpus: SetGpus) -> None:
    set_gpus({1: {"memory_used_mib": [[0, HELD_MIB], [8, 0]]}})
    healthy, log, seconds = start()
    assert healthy and "waiting for GPU memory: GPU 1 has" in log
    assert seconds > 5


def test_an_nvml_that_does_not_answer(start: Callable[..., Any], host: Any, set_gpus: SetGpus) -> None:
    """The unit says what is wrong instead of starting a server that cannot find a GPU."""
    set_gpus({})
    text = host.file("/etc/fake-nvml.json").content_string
    host.check_output(
        "printf %%s %s > /etc/fake-nvml.json", json.dumps({**json.loads(text), "errors": {"nvmlInit": 9}})
    )
    healthy, log, _seconds = start()
    assert not healthy and "NVML does not answer (driver_not_loaded): run the role drivers" in log
