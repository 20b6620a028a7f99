# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/plan.yml as people run it: with and without an inventory, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import TensorGroup
from memory_cases import KV_CASES, write_checkpoint

from tests.host.paths import CHECKOUT

# Each test is a run of Ansible, of some seconds.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    groups = [TensorGroup("model.layers.0.mlp.up_proj.weight", "BF16", (64, 32), 1, 4096)]
    write_checkpoint(folder, KV_CASES["llama8b-tp1"]["config"], groups, 1)
    return str(folder)


@pytest.fixture
def inventory(tmp_path: Path, model: str) -> Path:
    """A host with one model and one with two; none of them can be reached."""
    way = {"ansible_host": "203.0.113.1", "ansible_user": "nobody", "ansible_become": True}
    instances = [
        {"vllm_instance": "large", "vllm_model": model, "vllm_gpus": [0, 1]},
        {"vllm_instance": "small", "vllm_model": model, "vllm_gpus": [2], "vllm_engine_args": {"max_model_len": 8192}},
    ]
    hosts = {"one": {**way, "vllm_model": model}, "two": {**way, "vllm_instances": instances}}
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"vllm": {"hosts": hosts, "vars": {"vllm_engine_args": {"max_num_seqs": 7}}}}))
    return path


def plan(*options: str, **variables: Any) -> tuple[int, str]:
    """The exit status, and all that was said in one line."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    command = ["ansible-playbook", "gpuhost.vllm.plan", *options, "-e", json.dumps(variables)]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**environment, "ANSIBLE_FORCE_COLOR": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())


@pytest.mark.parametrize("variable", ["gpus", "plan_gpus"])
def test_without_an_inventory(model: str, variable: str) -> None:
    status, said = plan(vllm_model=model, **{variable: "2x96GB"})
    assert status == 0 and "GPUs 2 x RTX PRO 6000" in said and "Plan for one" not in said


def test_the_first_host_of_the_inventory(inventory: Path) -> None:
    status, said = plan("-i", str(inventory), gpus="4x96GB")
    assert status == 0 and "Plan for one of the inventory" in said and "max_num_seqs 7" in said
    assert "GPUs 4 x RTX PRO 6000" in said and "Plan for two" not in said


def test_each_instance_of_a_host_with_its_own_gpus(inventory: Path) -> None:
    status, said = plan("-i", str(inventory), gpus="4x96GB", plan_for="two")
    assert status == 0 and "Plan for one" not in said
    shown = {text.split()[0]: text for text in said.split("Plan for two--")[1:]}
    large, small = shown["large"], shown["small"]
    assert "GPUs 2 x RTX PRO 6000" in large and "GPUs 1 x RTX PRO 6000" in small
    assert "max_model_len 8,192" in small and "max_model_len 8,192" not in large


def test_what_is_given_wins_over_the_inventory(inventory: Path, model: str) -> None:
    status, said = plan("-i", str(inventory), gpus="4x96GB", vllm_model=model)
    assert status == 0 and "Plan for one" not in said and "max_num_seqs 7" not in said
    options = {"vllm_engine_args": {"max_num_seqs": 9}}
    status, said = plan("-i", str(inventory), gpus="4x96GB", plan_for="two", **options)
    assert status == 0 and said.count("max_num_seqs 9") == 2


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "failed: Say which model: -e vllm_model=organization/name (or a folder), and which GPUs: -e gpus=8x96GB"),
        ({"vllm_model": "a/b"}, "failed: Say which GPUs to plan a/b for: -e gpus=8x96GB or -e gpus=2xH200 (in an inventory plan_gpus: 8x96GB)"),
        ({"vllm_model": "a/b", "gpus": "8x96"}, "Module failed: '8x96' describes no GPUs. In gpus (plan_gpus in an inventory) write"),
        ({"vllm_model": "a/b", "gpus": "8xRTX6000"}, "Module failed: The description of GPUs '8xRTX6000' may mean several products"),
        ({"vllm_model": "a/b", "gpus": "1x96GB", "vllm_version": 0.3}, "Module failed: vllm_version is the number 0.3"),
        ({"vllm_model": "a/b", "gpus": "1x96GB", "vllm_engine_args": "x"}, "failed: vllm_engine_args and vllm_env must be dictionaries"),
        ({"vllm_model": "a/b", "gpus": "1x96GB", "vllm_device": "gpu"}, "failed: vllm_device is 'gpu': it must be cuda or cpu."),
        ({"plan_for": "nobody"}, "plan_for is 'nobody', which is no host of the inventory"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told_in_one_line(variables: dict[str, Any], says: str) -> None:
    status, said = plan(**variables)
    assert status != 0 and says in said


def test_an_own_recipe_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("name: [")
    status, said = plan(vllm_model="kimi-k2.5", gpus="8x96GB", plan_recipe_folders=[str(tmp_path)])
    assert status != 0 and f"Module failed: {tmp_path}/mine.yml: cannot be read" in said
