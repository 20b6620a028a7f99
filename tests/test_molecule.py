"""Each molecule scenario as one test, so that one pytest run counts everything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
# `default` only holds the create and destroy playbooks of the others.
SCENARIOS = sorted(
    path.parent.name for path in CHECKOUT.glob("molecule/*/molecule.yml") if path.parent.name != "default"
)

# Two lanes of about the same length run side by side: a scenario waits for its hosts more than it computes.
SECOND_LANE = {"checkpoint_patch", "plan", "release", "serve", "serve_instances"}


def _parameter(scenario: str) -> object:
    return pytest.param(scenario, marks=pytest.mark.xdist_group("lane 2" if scenario in SECOND_LANE else "lane 1"))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [_parameter(scenario) for scenario in SCENARIOS])
def test_scenario(scenario: str) -> None:
    log = CHECKOUT / f"tests/output/molecule-{scenario}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        command = ["molecule", "test", "--scenario-name", scenario]
        finished = subprocess.run(command, cwd=CHECKOUT, stdout=output, stderr=subprocess.STDOUT, check=False)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-80:])
    assert finished.returncode == 0, f"molecule test -s {scenario} failed; the whole log is {log}\n{tail}"
