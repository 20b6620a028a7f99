"""Drive the role again, and the Hub of this scenario, from the tests."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CONTROL = "http://127.0.0.1:18096"
SCENARIO = Path(__file__).parents[1]


class HubControl:
    """The scenario's Hub: what goes wrong, who may come in, and what it was asked."""

    def faults(self, *rules: dict[str, Any]) -> None:
        self._call("PUT", "/faults", list(rules))

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
    hub.faults()
    hub.forget()
    yield hub
    hub.faults()


Converge = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def converge(host: Any) -> Iterator[Converge]:
    """Start the playbook of this scenario against one host; returns the process, its output in ``stdout``."""
    started: list[subprocess.Popen[str]] = []
    name = host.backend.get_pytest_id().split("://")[-1]

    def start(*options: str, **variables: Any) -> subprocess.Popen[str]:
        command = ["ansible-playbook", *inventories(), "--limit", name, str(SCENARIO / "converge.yml"), *options]
        command += ["-e", json.dumps(variables)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def inventories() -> list[str]:
    folder = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    return ["-i", str(folder)]
