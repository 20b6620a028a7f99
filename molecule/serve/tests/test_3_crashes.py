"""Whatever dies, the service comes back by itself, and nothing of the dead one stays behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import START_S, Service


def gone(host: Any, pids: list[int]) -> bool:
    """Whether none of them lives; a moment is given for the kernel to clear up."""
    deadline = time.monotonic() + 20
    while any(host.file(f"/proc/{pid}").exists for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


@pytest.mark.parametrize("victim", ["VLLM::EngineCore", "VLLM::Worker", "vllm serve"])
def test_killed(host: Any, service: Service, victim: str) -> None:
    service.wait_until_healthy()
    invocation, everyone, killed = service.invocation, service.pids(), service.pids(victim)
    assert len(killed) == 1
    host.check_output(f"kill -9 {killed[0]}")
    service.wait_until_healthy(other_than=invocation)
    assert gone(host, everyone)
    assert service.ask("The sea")["usage"]["completion_tokens"] == 8


def test_many_requests_with_cancellation(host: Any, service: Service) -> None:
    """500 at once, a third of them given up at a random moment; what is answered is what a single request is answered."""
    service.wait_until_healthy()
    invocation = service.invocation
    script = (Path(__file__).parent / "many_requests.py").read_text()
    said = host.run("/opt/vllm/tools/bin/python -c %s %s", script, service.url)
    assert said.rc == 0, said.stdout + said.stderr
    assert service.invocation == invocation and service.healthy()
    # The engine forgets requests that were given up.
    running = f"curl -fsS {service.url}/metrics | grep -E '^vllm:num_requests_(running|waiting)[{{ ]' | awk '{{s += $NF}} END {{print s}}'"
    deadline = time.monotonic() + 60
    while float(host.check_output(running)) > 0:
        assert time.monotonic() < deadline
        time.sleep(1)


def test_reboot(host: Any, service: Service) -> None:
    service.wait_until_healthy()
    boot = host.check_output("cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1")
    host.run("systemd-run --on-active=1 systemctl reboot")
    deadline = time.monotonic() + START_S
    ask: Callable[[], str] = lambda: host.run("cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1").stdout.strip()  # noqa: E731
    time.sleep(3)
    while ask() in ("", boot.strip()):
        assert time.monotonic() < deadline
        time.sleep(1)
    service.wait_until_healthy()
