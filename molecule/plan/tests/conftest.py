"""Plan again from the tests: many cases in one run of Ansible, because a run costs more than a plan."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CONTROL = "http://127.0.0.1:18098"
SCENARIO = Path(__file__).parents[1]


class HubControl:
    """The scenario's Hub: who may come in, and what it was asked."""

    def access(self, gated: dict[str, list[str]]) -> None:
        self._call("PUT", "/access", {"tokens": {}, "gated": gated})

    def forget(self) -> None:
        self._call("DELETE", "/seen")

    def seen(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/seen"))

    def _call(self, method: str, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        with urllib.request.urlopen(urllib.request.Request(CONTROL + path, body, method=method), timeout=10) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def hub() -> Iterator[HubControl]:
    hub = HubControl()
    yield hub
    hub.access({})


def run_cases(folder: Path, cases: list[dict[str, Any]], *options: str, **variables: Any) -> tuple[dict[str, Any], str]:
    """Outcomes by host and case, and what Ansible printed."""
    inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    command = ["ansible-playbook", "-i", str(inventory), str(SCENARIO / "cases.yml"), *options]
    command += ["-e", json.dumps({"cases": cases, "output_folder": str(folder), **variables})]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}, done.stdout


def changed_by_plan(output: str) -> list[str]:
    """Tasks of the role plan that say they changed something."""
    task, found = "", []
    for line in output.splitlines():
        if line.startswith("TASK ["):
            task = line
        elif line.startswith("changed: ") and "gpuhost.vllm.plan : " in task:
            found.append(task)
    return found


def name_of(host: Any) -> str:
    return str(host.backend.get_pytest_id().split("://")[-1])
