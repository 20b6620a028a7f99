# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/awx.yml through the real collection awx.awx against the stub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.awx.collection import awx_collection
from tests.awx.stub import TOKEN, Awx, serving
from tests.host.paths import CHECKOUT

# Each test goes on from what the one before it left in AWX.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("awx")]
Play = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def awx() -> Iterator[tuple[str, Awx]]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def play(awx: tuple[str, Awx]) -> Play:
    folders = f"{CHECKOUT / '.collections'}:{awx_collection()}"
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": folders,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "CONTROLLER_HOST": awx[0],
        "CONTROLLER_OAUTH_TOKEN": TOKEN,
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "playbooks/awx.yml", *arguments]
        return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300)

    return run


def changed(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"changed=(\d+)", done.stdout)[-1])


def test_empty_awx_is_filled_once(awx: tuple[str, Awx], play: Play) -> None:
    state = awx[1]
    assert changed(play("--check")) == 1 and not state.writes  # the organization; all else belongs to it
    assert changed(play()) == 10  # every task but the one of the execution environment, which is optional
    written = len(state.writes)
    assert changed(play()) == 0
    assert changed(play("--check")) == 0
    assert len(state.writes) == written


def test_workflow_goes_from_plan_over_approval_to_verify(awx: tuple[str, Awx], play: Play) -> None:
    state = awx[1]
    nodes = {item["identifier"]: item for item in state.objects["workflow_job_template_nodes"].values()}
    names = {item["id"]: name for name, item in nodes.items()}
    after = {
        name: [
            names[number] for number in state.associations["workflow_job_template_nodes", item["id"], "success_nodes"]
        ]
        for name, item in nodes.items()
    }
    assert after == {"plan": ["approval"], "approval": ["site"], "site": ["verify"], "verify": []}
    approval = state.objects["workflow_approval_templates"][nodes["approval"]["unified_job_template"]]
    assert approval["timeout"] == 86400
    site = state.named("job_templates", "gpuhost.vllm site")
    assert nodes["site"]["unified_job_template"] == site["id"] and site["ask_limit_on_launch"]


def test_injectors_reach_awx_as_templates(awx: tuple[str, Awx], play: Play) -> None:
    token = awx[1].named("credential_types", "Hugging Face Hub token")
    assert token["injectors"] == {"env": {"HF_TOKEN": "{{ token }}"}, "extra_vars": {"vllm_hub_token": "{{ token }}"}}


def test_edited_survey_is_put_right(awx: tuple[str, Awx], play: Play) -> None:
    state = awx[1]
    site = state.named("job_templates", "gpuhost.vllm site")
    before = state.surveys["job_templates", site["id"]]
    state.surveys["job_templates", site["id"]] = {**before, "description": "edited by hand"}
    assert changed(play()) == 1
    assert state.surveys["job_templates", site["id"]] == before
