"""Each molecule scenario as one test, so that one pytest run counts everything; all run one after the other, on one worker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
# `default` only holds the create and destroy playbooks of the others.
SCENARIOS = sorted(
    path.parent.name for path in CHECKOUT.glob("molecule/*/molecule.yml") if path.parent.name != "default"
)

# Seen passing only in pieces so far, on trees that were being edited: they run and are reported, and do not yet decide.
# A scenario that was seen green from create to destroy leaves this list.
NOT_YET_SEEN_WHOLE = {"checkpoint_fetch", "checkpoint_patch", "serve", "serve_instances", "site", "vllm_install"}


def _parameter(scenario: str) -> object:
    marks = [pytest.mark.xfail(reason="not yet seen passing as a whole")] if scenario in NOT_YET_SEEN_WHOLE else []
    return pytest.param(scenario, marks=marks)


@pytest.mark.slow
@pytest.mark.xdist_group("molecule")
@pytest.mark.parametrize("scenario", [_parameter(scenario) for scenario in SCENARIOS])
def test_scenario(scenario: str) -> None:
    log = CHECKOUT / f"tests/output/molecule-{scenario}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        command = ["molecule", "test", "--scenario-name", scenario]
        finished = subprocess.run(command, cwd=CHECKOUT, stdout=output, stderr=subprocess.STDOUT, check=False)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-80:])
    assert finished.returncode == 0, f"molecule test -s {scenario} failed; the whole log is {log}\n{tail}"
