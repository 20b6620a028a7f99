"""Plan again from the tests, with other variables, and drive the Hub of this scenario."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CONTROL = "http://127.0.0.1:18098"
SCENARIO = Path(__file__).parents[1]


@dataclass
class Planned:
    """One run of the playbook.

    Attributes:
        plan: the fact ``vllm_plan``; None when the run failed.
        output: everything that Ansible printed.
        changed: number of changed tasks.
        ok: the run succeeded.
    """

    plan: Any
    output: str
    changed: int
    ok: bool


Plan = Callable[..., Planned]


class HubControl:
    """The scenario's Hub: what goes wrong, who may come in, and what it was asked."""

    def set(self, what: str, value: Any) -> None:
        self._call("PUT", f"/{what}", value)

    def forget(self) -> None:
        self._call("DELETE", "/seen")

    def seen(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/seen"))

    def _call(self, method: str, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        with urllib.request.urlopen(urllib.request.Request(CONTROL + path, body, method=method), timeout=10) as answer:
            return json.load(answer)


@pytest.fixture
def hub() -> Iterator[HubControl]:
    hub = HubControl()
    hub.set("faults", [])
    hub.forget()
    yield hub
    hub.set("faults", [])
    hub.set("access", {"tokens": {}, "gated": {}, "private": []})


@pytest.fixture
def plan(host: Any, tmp_path: Path) -> Plan:
    """Run the playbook of this scenario against one host."""
    name = host.backend.get_pytest_id().split("://")[-1]
    inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"

    def run(*options: str, **variables: Any) -> Planned:
        variables["plan_output"] = str(tmp_path)
        command = ["ansible-playbook", "-i", str(inventory), "--limit", name, str(SCENARIO / "converge.yml"), *options]
        command += ["-e", json.dumps(variables)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        written = tmp_path / f"{name}.json"
        made = json.loads(written.read_text()) if done.returncode == 0 and written.exists() else None
        counts = re.findall(r"changed=(\d+)", output)
        return Planned(made, output, int(counts[-1]) if counts else -1, done.returncode == 0)

    return run
