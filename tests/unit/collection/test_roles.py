"""What every role promises: defaults that equal its argument specs, a README whose table is fresh, a table of contents as main.yml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests import readme_tables

ROLES = sorted(path for path in readme_tables.ROLES.iterdir() if path.is_dir())
EXPECTED = {"checkpoint_fetch", "checkpoint_patch", "drivers", "plan", "serve", "tools", "verify", "vllm_install"}


def _yaml(path: Path):
    return yaml.safe_load(path.read_text()) or {}


_options = readme_tables.options


def test_all_roles_of_the_road_are_here():
    assert {role.name for role in ROLES} >= EXPECTED


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_equal_argument_specs(role):
    documented = {name: option["default"] for name, option in _options(role).items() if "default" in option}
    assert _yaml(role / "defaults/main.yml") == documented


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_variables_carry_the_name_of_their_role(role):
    strangers = [name for name in _options(role) if not name.startswith(f"{role.name}_")]
    private = [
        name
        for path in (role / "vars").glob("**/*.yml")
        for name in _yaml(path)
        if not name.startswith(f"__{role.name}_")
    ]
    assert strangers + private == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_table_of_variables_is_fresh(role):
    assert readme_tables.rendered(role) == (role / "README.md").read_text(), "run: make docs"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_main_reads_as_a_table_of_contents(role):
    tasks = _yaml(role / "tasks/main.yml")
    assert all(task.get("name") for task in tasks)
    assert len((role / "tasks/main.yml").read_text().splitlines()) <= 60


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_injected_facts(role):
    """``ansible_facts['x']`` works with ANSIBLE_INJECT_FACT_VARS=false, ``ansible_x`` does not."""
    allowed = {
        "ansible_facts",
        "ansible_check_mode",
        "ansible_python_interpreter",
        "ansible_playbook_python",
        "ansible_version",
    }
    allowed |= {
        "ansible_connection",
        "ansible_host",
        "ansible_play_hosts",
        "ansible_play_hosts_all",
        "ansible_failed_task",
    }
    allowed |= {
        "ansible_failed_result",
        "ansible_managed",
        "ansible_diff_mode",
        "ansible_run_tags",
        "ansible_loop",
        "ansible_async_dir",
    }
    allowed |= {
        "ansible_play_batch",
        "ansible_user",
        "ansible_verbosity",
        "ansible_search_path",
        "ansible_parent_role_names",
        "ansible_role_name",
    }
    used = set()
    for path in [
        *(role / "tasks").glob("**/*.yml"),
        *(role / "templates").glob("**/*"),
        *(role / "defaults").glob("*.yml"),
    ]:
        if path.is_file():
            used |= set(re.findall(r"(?<![\w.'\"])ansible_[a-z_]+", path.read_text()))
    assert used - allowed == set()
