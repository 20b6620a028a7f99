"""Deploying again from inside a test, and what a test wants to know of the service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.playbook import Run, run_playbook

UNIT = "vllm-tiny.service"
URL = "http://127.0.0.1:8001"
# As in vars/served.yml.
KEY = 'key of the $test "100%"'
START_S = 600


@pytest.fixture(scope="session")
def play(request: pytest.FixtureRequest) -> Callable[..., Run]:
    """Run a playbook against the scenario's host: ``play("molecule/serve/converge.yml", vllm_port=8009)``."""
    return partial(run_playbook, request.config.getoption("ansible_inventory"))


@pytest.fixture(scope="session")
def deploy(play: Callable[..., Run]) -> Callable[..., Run]:
    return lambda *options, **variables: play("molecule/serve/converge.yml", *options, **variables)


class Service:
    """The unit on the test host."""

    def __init__(self, host: Any, unit: str = UNIT, url: str = URL) -> None:
        self.host, self.unit, self.url = host, unit, url

    def show(self, name: str) -> str:
        value: str = self.host.check_output(f"systemctl show --value --property={name} {self.unit}")
        return value

    @property
    def invocation(self) -> str:
        return self.show("InvocationID")

    def healthy(self) -> bool:
        return bool(self.host.run(f"curl -fsS --max-time 5 {self.url}/health").rc == 0)

    def wait_until_healthy(self, other_than: str = "") -> None:
        """Until it answers in another start than ``other_than``."""
        deadline = time.monotonic() + START_S
        while not (self.show("ActiveState") == "active" and self.invocation != other_than and self.healthy()):
            assert time.monotonic() < deadline, self.host.check_output(f"journalctl -u {self.unit} -n 50 --no-pager")
            time.sleep(1)

    def pids(self, pattern: str = "") -> list[int]:
        """Processes of the unit whose title contains ``pattern``."""
        lines = self.host.check_output("ps -eo pid=,unit=,args=").splitlines()
        return [int(line.split()[0]) for line in lines if line.split()[1] == self.unit and pattern in line]

    def ask(self, prompt: str, max_tokens: int = 8) -> dict[str, Any]:
        body = json.dumps({"model": "demo/tiny-mla", "prompt": prompt, "temperature": 0, "max_tokens": max_tokens})
        answer = self.host.check_output(
            f"curl -fsS -H 'Content-Type: application/json' -H %s -d %s {self.url}/v1/completions",
            f"Authorization: Bearer {KEY}",
            body,
        )
        found: dict[str, Any] = json.loads(answer)
        return found


@pytest.fixture
def service(host: Any) -> Service:
    return Service(host)
