"""teardown.yml and rollback.yml with and without a name, in check mode on this machine; molecule/serve_instances runs them for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


@pytest.fixture
def run(tmp_path: Path):
    here = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    inventory = {"vllm": {"hosts": {"here": {**here, "vllm_instance": "no-such"}}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))

    def play(playbook: str, **variables: object) -> tuple[int, str]:
        command = ["ansible-playbook", "-i", tmp_path / "hosts.yml", PLAYBOOKS / playbook, "--check"]
        command += ["-e", json.dumps(variables)]
        done = subprocess.run(command, cwd=PLAYBOOKS.parent, capture_output=True, text=True, check=False)
        return done.returncode, " ".join(done.stdout.split())

    return play


def test_without_a_name_the_instances_of_the_inventory_are_meant(run) -> None:
    assert run("teardown.yml")[0] == 0
    assert run("teardown.yml", teardown_everything=True)[0] == 0


@pytest.mark.parametrize(
    ("playbook", "variable"), [("teardown.yml", "teardown_instance"), ("rollback.yml", "rollback_instance")]
)
def test_a_name_that_is_none_is_refused(run, playbook: str, variable: str) -> None:
    status, said = run(playbook, **{variable: "small"})
    assert status == 2 and "no instance small; there are: none. Nothing was changed." in said


def test_going_back_needs_something_to_go_back_to(run) -> None:
    status, said = run("rollback.yml")
    assert status == 2 and "has 0 instances (none)" in said
