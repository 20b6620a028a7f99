"""What happens to a transfer does not lose a byte of it: kill, stop, a lost controller, a second run."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from driver import Converge, HubControl

from tests.host import paths

STORE = "/var/lib/vllm/checkpoints/demo--smollm2-135m"
SLOW = {"where": "cdn", "bytes_per_second": 4_000_000, "times": None}
TOTAL = sum(path.stat().st_size for path in (paths.HUB_REPOS / "demo/smollm2-135m").iterdir())


@pytest.fixture(autouse=True)
def _empty_store(host: Any) -> None:
    host.check_output(f"rm -rf {STORE}")


def wait_for(host: Any, what: str, least: int) -> dict[str, Any]:
    """The transfer's state once so many bytes are there."""
    for _ in range(120):
        state = host.run(f"cat {STORE}/.progress.json").stdout
        if state and ((found := json.loads(state))["progress"] or {}).get("bytes_done", 0) >= least:
            return dict(found)
        time.sleep(0.25)
    raise AssertionError(f"{what}: the transfer did not get to {least} bytes: {state}")


def test_killed_and_taken_up(host: Any, hub: HubControl, converge: Converge) -> None:
    hub.faults(SLOW)
    first = converge()
    state = wait_for(host, "first run", 80_000_000)
    host.check_output(f"kill -9 {state['pid']}")
    output, _ = first.communicate(timeout=120)
    assert first.returncode != 0 and "was killed" in output and "run again" in output

    hub.faults()
    hub.forget()
    second = converge("-v")
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 0, output
    ranges = [int(seen["range"].split("=")[1].rstrip("-")) for seen in hub.seen() if seen["range"]]
    assert sum(ranges) >= 40_000_000, "most of what had arrived was not asked for again"
    assert host.run(f"ls {STORE}/partial").stdout == ""


def test_stopped_by_systemd(host: Any, hub: HubControl, converge: Converge) -> None:
    hub.faults(SLOW)
    first = converge()
    wait_for(host, "first run", 60_000_000)
    host.check_output("systemctl stop 'vllm-fetch-*'")
    output, _ = first.communicate(timeout=120)
    assert first.returncode != 0 and "was stopped" in output
    hub.faults()
    output, _ = converge("-v").communicate(timeout=120)
    assert "bytes_resumed" in output


def test_the_controller_goes_away_and_a_later_run_joins(host: Any, hub: HubControl, converge: Converge) -> None:
    hub.faults({**SLOW, "bytes_per_second": 1_000_000})
    first = converge()
    state = wait_for(host, "first run", 10_000_000)
    first.kill()
    second = converge(checkpoint_fetch_progress_interval=2)
    assert second.stdout is not None
    lines = [line.rstrip("\n") for line in second.stdout]
    assert second.wait(timeout=60) == 0, "\n".join(lines)
    assert json.loads(host.file(f"{STORE}/.progress.json").content_string)["pid"] == state["pid"], "one transfer"
    progress = [line for line in lines if " of 272.6 MB (" in line]
    assert progress and all(len(line) <= 80 for line in progress), "\n".join(lines)
    assert sum(seen["origin"] == "cdn" for seen in hub.seen()) == 7, "each shard was fetched once"


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(
    host: Any, hub: HubControl, converge: Converge
) -> None:
    host.check_output("mkdir -p /mnt/small && mount -t tmpfs -o size=100m tmpfs /mnt/small")
    try:
        output, _ = converge(checkpoint_fetch_store="/mnt/small").communicate(timeout=120)
        assert "disk_space" in output and "Make room" in output
        assert not any(seen["origin"] == "cdn" for seen in hub.seen())
    finally:
        host.check_output("umount /mnt/small")


def test_no_secret_in_the_most_talkative_output(host: Any, hub: HubControl, converge: Converge) -> None:
    hub.faults(
        {"where": "cdn", "path": "*-00003-*", "flip_at": 1000, "times": None},
        {"where": "cdn", "status": 503, "times": 3},
    )
    output, _ = converge("-vvv", "--diff").communicate(timeout=180)
    assert "content_mismatch" in output
    assert "hf_of_ann" not in output and "Signature=" not in output
    processes = host.check_output("ps axww -o args; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "hf_of_ann" not in processes
