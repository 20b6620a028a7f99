"""Whatever dies, the service comes back by itself, and nothing of the dead one stays behind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import KEY, START_S, Service


def gone(host: Any, pids: list[int]) -> bool:
    """Whether none of them lives; a moment is given for the kernel to clear up."""
    deadline = time.monotonic() + 20
    while any(host.file(f"/proc/{pid}").exists for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


# The worker is killed by the kernel below.
@pytest.mark.parametrize("victim", ["VLLM::EngineCore", "vllm serve"])
def test_killed(host: Any, service: Service, victim: str) -> None:
    service.wait_until_healthy()
    invocation, everyone, killed = service.invocation, service.pids(), service.pids(victim)
    assert len(killed) == 1
    host.check_output(f"kill -9 {killed[0]}")
    service.wait_until_healthy(other_than=invocation)
    assert gone(host, everyone)
    assert service.ask("The sea")["usage"]["completion_tokens"] == 8


# Fills the memory of the host until the kernel has killed the process $0, and gives it back.
FILL = """
mkdir -p /root/full && mount -t tmpfs -o size=8g full /root/full
count=0
while test -e /proc/$0 && test $count -lt 250; do count=$((count + 1)); head -c 32M /dev/zero > /root/full/$count; done
umount /root/full
test ! -e /proc/$0
"""
# What the start before the present one died of.
CAUSE = """
from gpuhost_vllm.service.log_sources import triage_unit
cause = triage_unit("vllm-tiny.service", whole_boot=True).previous_cause
print(cause.meaning if cause else "unknown")
"""


def test_out_of_memory(host: Any, service: Service) -> None:
    service.wait_until_healthy()
    invocation, everyone, workers = service.invocation, service.pids(), service.pids("VLLM::Worker")
    host.check_output("bash -c %s %s", FILL, str(workers[0]))
    service.wait_until_healthy(other_than=invocation)
    assert gone(host, everyone)
    assert service.ask("The sea")["usage"]["completion_tokens"] == 8
    # vLLM does not always know yet by which signal it ended.
    assert "main memory" in host.check_output("/opt/vllm/tools/bin/python -I -c %s", CAUSE)


def test_a_full_disk_under_the_log(host: Any, service: Service) -> None:
    service.wait_until_healthy()
    invocation, alone = service.invocation, service.ask("The sea")["choices"]
    folder = f"/var/log/journal/{host.check_output('cat /etc/machine-id')}"
    host.check_output(f"mount -t tmpfs -o size=8m full /var/log/journal && mkdir {folder} && journalctl --rotate")
    try:
        # What journald has not taken for itself, then more lines than it has room for.
        host.run("head -c 20M /dev/zero > /var/log/journal/rest")
        host.check_output("head -c 12M /dev/urandom | base64 -w 8000 | logger && journalctl --sync")
        assert host.run(f"head -c 64K /dev/zero > {folder}/more").rc != 0, "the disk is not full"
        assert all(service.ask("The sea")["choices"] == alone for _count in range(20))
    finally:
        host.check_output("umount --lazy /var/log/journal && journalctl --rotate")
    service.ask("The sea")
    assert service.invocation == invocation and service.healthy()
    host.check_output("journalctl --sync")
    assert "POST /v1/completions" in host.check_output(f"journalctl --output=cat --lines=5 --unit={service.unit}")


def test_many_requests_with_cancellation(host: Any, service: Service) -> None:
    """500 at once, a third of them given up at a random moment; what is answered is what a single request is answered."""
    service.wait_until_healthy()
    invocation = service.invocation
    script = (Path(__file__).parent / "many_requests.py").read_text()
    said = host.run("/opt/vllm/tools/bin/python -c %s %s %s", script, service.url, KEY)
    assert said.rc == 0, said.stdout + said.stderr
    assert service.invocation == invocation and service.healthy()
    # The engine forgets requests that were given up.
    running = f"curl -fsS {service.url}/metrics | grep -E '^vllm:num_requests_(running|waiting)[{{ ]' | awk '{{s += $NF}} END {{print s}}'"
    deadline = time.monotonic() + 60
    while float(host.check_output(running)) > 0:
        assert time.monotonic() < deadline
        time.sleep(1)


def _boot(host: Any) -> str:
    """Which boot it is; empty while nobody answers, which testinfra raises."""
    try:
        return host.run("cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1").stdout.strip()
    except RuntimeError:
        return ""


def test_reboot(host: Any, service: Service) -> None:
    service.wait_until_healthy()
    before = _boot(host)
    host.run("systemd-run --on-active=1 systemctl reboot")
    deadline = time.monotonic() + START_S
    time.sleep(3)
    while _boot(host) in ("", before):
        assert time.monotonic() < deadline
        time.sleep(1)
    service.wait_until_healthy()
    # Up at the first try, knowing nothing of the processes before.
    assert service.show("NRestarts") == "0"
    recorded = json.loads(host.file(f"/run/vllm/{service.unit}.json").content_string)
    assert {pid for pid, _started in recorded} <= set(service.pids())
    assert "ending what an earlier start left" not in host.check_output(f"journalctl --boot --unit={service.unit}")
    assert service.ask("The sea")["usage"]["completion_tokens"] == 8
