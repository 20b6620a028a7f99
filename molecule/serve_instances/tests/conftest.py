"""Deploying instances again, and the GPUs that the host seems to have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.playbook import Run, run_playbook

CHECKOUT = Path(__file__).resolve().parents[3]
GPUS = json.loads((CHECKOUT / "tests/host/fake_nvml/default.json").read_text())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One host is enough for what test_instances decides; the other has a newer systemd, which the reclaim cares for."""
    items[:] = [item for item in items if not (item.path.name == "test_instances.py" and "debian13" in item.name)]


@pytest.fixture(scope="module")
def play(request: pytest.FixtureRequest, host: Any) -> Callable[..., Run]:
    """Run a playbook against the host of the test alone."""
    inventory = request.config.getoption("ansible_inventory")
    return lambda playbook, *options, **variables: run_playbook(
        inventory, playbook, f"--limit={host.backend.host}", *options, **variables
    )


@pytest.fixture(scope="module")
def deploy(play: Callable[..., Run]) -> Callable[..., Run]:
    """``deploy({"vllm_instance": …}, …)`` runs the role once for each."""
    return lambda *instances: play("molecule/serve_instances/converge.yml", instances=list(instances))


@pytest.fixture
def answers(host: Any) -> Callable[[int], dict[str, Any]]:
    """What the stand-in behind a port says of itself; empty if nothing answers."""

    def ask(port: int) -> dict[str, Any]:
        said = host.run(f"curl -fsS --max-time 5 http://127.0.0.1:{port}/health")
        return json.loads(said.stdout) if said.rc == 0 else {}

    return ask


@pytest.fixture
def set_gpus(host: Any) -> Iterator[Callable[..., None]]:
    """``set_gpus({0: {"processes": […]}})``: what the fake NVML says of single GPUs; undone after the test."""

    def write(single: dict[int, dict[str, Any]]) -> None:
        gpus = [{**gpu, **single.get(index, {})} for index, gpu in enumerate(GPUS["gpus"])]
        text = json.dumps({**GPUS, "gpus": gpus})
        host.check_output("printf %%s %s > /etc/.fake.json && mv /etc/.fake.json /etc/fake-nvml.json", text)

    yield write
    write({})
