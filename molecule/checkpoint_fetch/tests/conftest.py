"""Fixtures: the Hub, and the role run once more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import SCENARIO, Converge, HubControl

sys.path.insert(0, str(SCENARIO.parents[1]))  # for tests.host


@pytest.fixture
def hub() -> Iterator[HubControl]:
    hub = HubControl()
    hub.faults()
    hub.forget()
    yield hub
    hub.faults()


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
