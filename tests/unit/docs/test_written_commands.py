# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands in the docs are run, as far as they leave the machine as it is; of the others every word is looked up.

A program that is new in the docs fails here until somebody says how its commands are checked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from written_commands import Command, commands, yaml_blocks

from tests import readme_tables
from tests.awx.collection import awx_collection
from tests.host.hub import Hub
from tests.host.paths import CHECKOUT
from tests.hub_models import add_model

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
COMMANDS = list(commands())


def run(words: list[str], **variables: str) -> str:
    env = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        **variables,
    }
    done = subprocess.run(words, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def of(program: str) -> list[Any]:
    return [pytest.param(command, id=command.name) for command in COMMANDS if command.words[0] == program]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    add_model(root, "nvidia/Kimi-K2.5-NVFP4", "kimi25-tp8-auto")
    add_model(root, "openai/gpt-oss-20b", "gptoss20b-h100")
    with Hub(root) as running:
        yield running


def test_programs_of_the_docs_are_all_checked_below() -> None:
    checked = {
        "ansible-playbook",
        "ansible",
        "ansible-builder",
        "ansible-galaxy",
        "make",
        "molecule",
        "pytest",
        "python",
        "source",
    }
    assert {command.words[0] for command in COMMANDS} == checked


@pytest.mark.parametrize("command", of("ansible-playbook"))
def test_playbooks_tags_and_variables_exist(command: Command, hub: Hub) -> None:
    words = command.words
    collections = f"{CHECKOUT / '.collections'}:{awx_collection()}" if "gpuhost.vllm.awx" in words else ""
    own = {"ANSIBLE_COLLECTIONS_PATH": collections} if collections else {}
    if "gpuhost.vllm.plan" in words:  # as it is written, but for the Hub
        assert "max_model_len" in run([*words, "-e", f"vllm_hub_endpoint={hub.endpoint}"])
    else:
        run([*words, "--syntax-check"], **own)
    if "--tags" in words:
        plain = [word for word in words if word not in ("--tags", words[words.index("--tags") + 1])]
        known = set(
            re.findall(r"[\w-]+", " ".join(re.findall(r"TAGS: \[(.*?)\]", run([*plain, "--list-tags"], **own))))
        )
        assert set(words[words.index("--tags") + 1].split(",")) <= known
    set_here = [word.partition("=")[0] for option, word in zip(words, words[1:]) if option == "-e"]
    (playbook,) = [word for word in words if word.startswith("gpuhost.vllm.") or word.endswith(".yml")]
    text = "" if playbook == "site.yml" else (CHECKOUT / f"playbooks/{playbook.rpartition('.')[2]}.yml").read_text()
    assert [name for name in set_here if name not in KNOWN and not re.search(rf"\b{name}\b", text)] == []


def test_plan_of_the_docs_would_fail_for_a_model_that_is_not_there(hub: Hub) -> None:
    asked = ["-e", "vllm_model=nvidia/not-there", "-e", "gpus=8x96GB", "-e", f"vllm_hub_endpoint={hub.endpoint}"]
    with pytest.raises(AssertionError, match="not-there"):
        run(["ansible-playbook", "gpuhost.vllm.plan", *asked])


@pytest.mark.parametrize("command", of("ansible"))
def test_modules_run_from_the_command_line(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO 12-02 06:00:00 [kv_cache_utils.py:1] GPU KV cache size: 183,440 tokens\n")
    words = [re.sub(r"path=\S+", f"path={log}", word) for word in command.words]
    assert "SUCCESS" in run(words)


@pytest.mark.parametrize("command", of("ansible-builder"))
def test_images_can_be_prepared(command: Command, tmp_path: Path) -> None:
    assert command.words[1] == "build"  # needs podman; what it does first needs nothing
    run(["ansible-builder", "create", "--context", str(tmp_path / "context")])


@pytest.mark.parametrize("command", of("ansible-galaxy"))
def test_the_collection_that_is_installed_is_this_one(command: Command) -> None:
    galaxy = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
    assert command.words[1:] == ["collection", "install", f"{galaxy['namespace']}.{galaxy['name']}"]


@pytest.mark.parametrize("command", of("make"))
def test_targets_of_make_exist_and_are_listed(command: Command) -> None:
    (target,) = command.words[1:]
    run(["make", "--dry-run", target])
    assert re.search(rf"^{target}\s", run(["make", "help"]), re.MULTILINE)


@pytest.mark.parametrize("command", of("molecule"))
def test_scenarios_exist(command: Command) -> None:
    words = command.words
    scenario = CHECKOUT / "molecule" / words[words.index("-s") + 1]
    assert (scenario / "molecule.yml").is_file()
    if "--host" in words:
        assert words[words.index("--host") + 1] in (scenario / "molecule.yml").read_text()
    run(["molecule", words[1], "--help"])


@pytest.mark.parametrize("command", of("pytest"))
def test_tests_exist(command: Command) -> None:
    assert [word for word in command.words[1:] if not (CHECKOUT / word).exists()] == []


@pytest.mark.parametrize("command", of("python"))
def test_programs_of_the_checkout_exist_with_their_options(command: Command) -> None:
    assert command.words[1] == "-m"
    module = CHECKOUT / command.words[2].replace(".", "/")
    source = (module / "__main__.py" if module.is_dir() else module.with_suffix(".py")).read_text()
    assert [word for word in command.words[3:] if word.startswith("--") and f'"{word}"' not in source] == []


@pytest.mark.parametrize("command", of("source"))
def test_what_is_sourced_is_made_by_setup(command: Command) -> None:
    assert command.words[1].startswith(".venv/") and ".venv" in (CHECKOUT / "tests/setup.sh").read_text()


ROLE_OPTIONS = {path.name: readme_tables.options(path) for path in readme_tables.ROLES.iterdir() if path.is_dir()}
DEPLOYMENT_WIDE = set(re.findall(r"`(vllm_[a-z_]+)`", (CHECKOUT / "docs/architecture.md").read_text())) | {
    name
    for options in ROLE_OPTIONS.values()
    for option in options.values()
    for name in re.findall(r"\bvllm_[a-z_]+", str(option.get("default", "")))
}
KNOWN = DEPLOYMENT_WIDE | {name for options in ROLE_OPTIONS.values() for name in options} | {"vllm_instances"}


@pytest.mark.parametrize(("page", "block"), [pytest.param(*found, id=found[0].name) for found in yaml_blocks()])
def test_variables_in_yaml_exist_and_plays_are_read(page: Path, block: Any, tmp_path: Path) -> None:
    if isinstance(block, dict):
        settings = [block, *block.get("vllm_instances", [])]
        assert [name for part in settings for name in part if name not in KNOWN] == []
        return
    for play in block:
        for role in play["roles"]:
            given = role.get("vars", {key: value for key, value in role.items() if key != "role"})
            assert given.keys() <= ROLE_OPTIONS[role["role"].rpartition(".")[2]].keys()
    (tmp_path / "play.yml").write_text(json.dumps(block))
    run(["ansible-playbook", "--syntax-check", "-i", "gpu1,", str(tmp_path / "play.yml")])


def test_reference_deployment_of_the_readme_is_the_one_of_the_inventory() -> None:
    (shown,) = [block for page, block in yaml_blocks() if page == CHECKOUT / "README.md"]
    kept = yaml.safe_load((CHECKOUT / "inventories/rtx_pro_6000x8/group_vars/vllm.yml").read_text())
    assert shown.items() <= kept.items()


def test_every_role_playbook_and_recipe_is_told_of() -> None:
    readme, operations = (CHECKOUT / "README.md").read_text(), (CHECKOUT / "docs/operations.md").read_text()
    assert [role for role in ROLE_OPTIONS if role != "tools" and f"roles/{role}/README.md" not in readme] == []
    playbooks = [path.stem for path in (CHECKOUT / "playbooks").glob("*.yml")]
    assert [name for name in playbooks if f"gpuhost.vllm.{name}" not in readme + operations] == []
