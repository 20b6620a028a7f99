# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX does with the repository: builds the execution environment, installs collections/requirements.yml, runs jobs through ansible-runner."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
import yaml
from packaging.requirements import Requirement

from tests.host.hub import Hub
from tests.host.paths import CHECKOUT
from tests.hub_models import add_model
from tests.release import clean_environment, copy_committed

BIN = Path(sys.executable).parent
MODEL = "private/kimi"
TOKEN = "hf_" + "SecretOfTheHub" * 2
NOBODY = "http://127.0.0.1:9"


def _run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as AWX has it after the update of a project, its collections installed beside it, without a network."""
    folder = tmp_path_factory.mktemp("awx")
    copy_committed(folder / "project")
    env = clean_environment(folder / "home", ANSIBLE_GALAXY_SERVER=NOBODY)
    arguments = ["install", "-r", "collections/requirements.yml", "-p", folder / "requirements_collections"]
    _run(BIN / "ansible-galaxy", "collection", *arguments, cwd=folder / "project", env=env)
    return folder / "project"


@pytest.mark.slow
def test_builder_makes_a_context_of_the_execution_environment(tmp_path: Path) -> None:
    (tmp_path / "execution-environment.yml").write_text((CHECKOUT / "execution-environment.yml").read_text())
    options = ["--context", "context", "--output-filename", "Containerfile"]
    _run(BIN / "ansible-builder", "create", *options, cwd=tmp_path, env=clean_environment(tmp_path))
    containerfile = (tmp_path / "context/Containerfile").read_text()
    assert "ansible-core>=2.18,<2.20" in containerfile and "ansible-runner>=2.4,<3" in containerfile
    collections = yaml.safe_load((tmp_path / "context/_build/requirements.yml").read_text())["collections"]
    assert [item["name"].rpartition("/")[2] for item in collections] == ["gpuhost.vllm.git", "awx.awx"]


@pytest.mark.slow
def test_builder_finds_what_the_installed_collection_needs(project: Path, tmp_path: Path) -> None:
    """Through meta/execution-environment.yml, as the build stage of the image does."""
    written = {"pip": tmp_path / "pip.txt", "bindep": tmp_path / "bindep.txt"}
    options = [f"--write-{kind}={path}" for kind, path in written.items()]
    installed = project.parent / "requirements_collections"
    _run(BIN / "ansible-builder", "introspect", installed, *options, cwd=tmp_path, env=clean_environment(tmp_path))
    assert "huggingface_hub>=2.4,<3" in written["pip"].read_text()
    assert "openssh-clients [platform:rpm]" in written["bindep"].read_text()


def test_requirements_name_all_that_the_plan_imports() -> None:
    named = [Requirement(line) for line in _lines(CHECKOUT / "requirements.txt")]
    brought = {requirement.name for requirement in named}
    for name in [*brought, "httpx2"]:
        brought |= {Requirement(text).name for text in requires(name) or []}
    code = (CHECKOUT / "plugins/module_utils/checkpoint/hub.py").read_text()
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", code, re.MULTILINE)) - sys.stdlib_module_names
    assert imported and imported <= brought
    tools = {req.name: req for req in map(Requirement, _lines(CHECKOUT / "roles/tools/files/requirements.in"))}
    assert [requirement.specifier for requirement in named] == [
        tools[requirement.name].specifier for requirement in named
    ]


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_job_templates_need_no_other_collection_and_the_image_has_what_awx_yml_needs() -> None:
    used = {
        path.stem: set(
            re.findall(r"^ *(?:- )?(?:role: )?([a-z]+\.[a-z]+)\.[a-z_]+(?::|$)", path.read_text(), re.MULTILINE)
        )
        for path in [*(CHECKOUT / "playbooks").glob("*.yml"), *(CHECKOUT / "playbooks/tasks").glob("*.yml")]
    }
    assert used.pop("awx") == {"ansible.builtin", "awx.awx"}
    assert set().union(*used.values()) == {"ansible.builtin", "gpuhost.vllm"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    add_model(root, MODEL, "kimi25-tp8-auto")
    with Hub(root) as running:
        running.tokens, running.private = {TOKEN: "awx"}, {MODEL}
        yield running


Job = Callable[..., Any]


# ansible-runner's own file with the environment of the process; AWX blanks what it shows of it.
ENVIRONMENT_FILE = "command"


@pytest.fixture
def job(project: Path, hub: Hub, tmp_path: Path) -> Job:
    """A job of the template "plan": answers of the survey marked as unsafe, the credential's variables in a file of their own."""

    def run(token: str) -> Any:
        answers = {"vllm_model": MODEL, "gpus": "8x96GB", "vllm_version": "0.32.0", "plan_kv_cache_policy": "auto"}
        others = {"vllm_hub_endpoint": hub.endpoint}
        (tmp_path / "env").mkdir()
        (tmp_path / "env/extravars").write_text(
            "".join(f"{name}: !unsafe {json.dumps(value)}\n" for name, value in {**answers, **others}.items())
        )
        (tmp_path / "env/credential").write_text(f"vllm_hub_token: !unsafe {json.dumps(token)}\n")
        (tmp_path / "inventory").mkdir()
        (tmp_path / "inventory/hosts").write_text("[vllm]\ngpu1 ansible_host=gpu1.example.com\n")
        collections = project.parent / "requirements_collections"
        return ansible_runner.run(
            private_data_dir=str(tmp_path),
            project_dir=str(project),
            playbook="playbooks/plan.yml",
            ident="1",
            cmdline=f"-e @{tmp_path / 'env/credential'}",
            verbosity=3,
            quiet=True,
            suppress_env_files=True,
            envvars=clean_environment(
                tmp_path / "home", ANSIBLE_COLLECTIONS_PATH=str(collections), HF_TOKEN=token, ANSIBLE_FORCE_COLOR="1"
            ),
        )

    return run


def _readable(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_job_plans_with_an_injected_secret_and_hands_on_the_commit(job: Job, hub: Hub, tmp_path: Path) -> None:
    done = job(TOKEN)
    assert done.status == "successful", done.stdout.read()
    commit = hub.repository(MODEL).commit("main")
    (stats,) = [event for event in done.events if event["event"] == "playbook_on_stats"]
    artifacts = stats["event_data"]["artifact_data"]
    assert commit and artifacts["plan_revision"] == artifacts["vllm_planned"]["revision"] == commit.sha
    assert artifacts.keys() == {"plan_revision", "vllm_planned"}, (
        "plan_revision is the role's, so the next job deploys that commit"
    )
    assert artifacts["vllm_planned"]["model"] == MODEL
    assert artifacts["vllm_planned"]["tensor_parallel_size"] == 8
    assert artifacts["vllm_planned"]["bytes_to_download"] > 500 * 10**9
    written = _readable(tmp_path / "artifacts")
    assert "max_model_len" in written["stdout"], "the plan is in the log that AWX shows"
    assert [name for name, text in written.items() if TOKEN in text and name != ENVIRONMENT_FILE] == []
    assert stats["event_data"]["failures"] == {}


@pytest.mark.slow
def test_a_job_whose_secret_is_refused_does_not_tell_it(job: Job, tmp_path: Path) -> None:
    done = job("hf_" + "WrongSecret" * 3)
    assert done.status == "failed"
    written = _readable(tmp_path / "artifacts")
    assert "token" in written["stdout"]
    assert [name for name, text in written.items() if "WrongSecret" in text and name != ENVIRONMENT_FILE] == []
