# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user writes: misspelt names and impossible values stop a playbook before anything is changed, names of their own do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpuhost.vllm.plugins.plugin_utils.variables import (
    DEPLOYMENT,
    FACTS,
    PLAYBOOK_PREFIXES,
    PLAYBOOKS,
    misspelt,
    read_role,
    role_names,
    unfit,
)

CHECKOUT = Path(__file__).resolve().parents[3]
ROLES = [read_role(name) for name in role_names()]
KNOWN = {*DEPLOYMENT, *PLAYBOOKS, *(option for role in ROLES for option in role.options)}
PREFIXES = {*PLAYBOOK_PREFIXES, *(f"{role.name}_" for role in ROLES)}
SECRET = "sk-SECRETSECRET"


def nearest(name: str) -> str | None:
    return misspelt([name], KNOWN, PREFIXES).get(name)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("vllm_engine_arg", "vllm_engine_args"),
        ("vllm_engine_arguments", "vllm_engine_args"),
        ("vllm_enginge_args", "vllm_engine_args"),
        ("vllm_modle", "vllm_model"),
        ("vllm_modell", "vllm_model"),
        ("vllm_prot", "vllm_port"),
        ("vllm_ports", "vllm_port"),
        ("vllm_evn", "vllm_env"),
        ("vllm_gpu", "vllm_gpus"),
        ("vllm_api_kye", "vllm_api_key"),
        ("vllm_apikey", "vllm_api_key"),
        ("vllm_hub_tokn", "vllm_hub_token"),
        ("vllm_instanse", "vllm_instance"),
        ("vllm_install_wheel_house", "vllm_install_wheelhouse"),
        ("vllm_instal_version", "vllm_install_version"),
        ("plan_kv_cache_polcy", "plan_kv_cache_policy"),
        ("serve_enviroment_profile", "serve_environment_profile"),
        ("serve_start_timeout", "serve_start_timeout_s"),
        ("verify_deadline", "verify_deadline_s"),
        ("checkpoint_fetch_worker", "checkpoint_fetch_workers"),
        ("checkpoint_fech_store", "checkpoint_fetch_store"),
        ("tools_packges", "tools_packages"),
        ("drivers_branc", "drivers_branch"),
        ("teardown_instnace", "teardown_instance"),
        ("teardown_everthing", "teardown_everything"),
        ("teradown_instance", "teardown_instance"),
        ("rollback_instanc", "rollback_instance"),
        ("benchmark_load_format", "benchmark_load_formats"),
        ("vlm_model", "vllm_model"),
    ],
)
def test_a_misspelt_name_is_told_with_the_one_that_was_meant(written: str, meant: str) -> None:
    assert nearest(written) == meant


@pytest.mark.parametrize(
    "name",
    [
        *(
            "vllm_model_dir",
            "vllm_model_path",
            "vllm_models_dir",
            "vllm_backup_path",
            "vllm_port2",
            "vllm_port_2",
            "vllm_engine_args_common",
        ),
        *(
            "vllm_install_requirements_file",
            "vllm_user",
            "vllm_home",
            "vllm_team",
            "vllm_domain",
            "vllm_several",
            "vllm_nginx_port",
        ),
        *(
            "vllm_big_model",
            "vllm_api_key_file",
            "vllm_max_model_len",
            "vllm_env_prod",
            "checkpoint_fetch_user",
            "plan_result",
            "plan_approved",
        ),
        *(
            "serve_nginx",
            "serve_static_files",
            "verify_ssl",
            "verify_mail_to",
            "tools_dir",
            "drivers_mirror_host",
            "teardown_reason",
        ),
        *(
            "ansible_host",
            "model",
            "port",
            "engine_args",
            "gpus",
            "groups",
            "inventory_dir",
            "vault_vllm_api_key",
            "nginx_port",
            "plane_id",
        ),
    ],
)
def test_a_name_of_the_user_s_own_is_let_through(name: str) -> None:
    assert nearest(name) is None


def test_everything_known_is_let_through() -> None:
    assert misspelt([*KNOWN, *FACTS], KNOWN, PREFIXES) == {}


def _names(value: Any) -> Iterator[str]:
    """All keys of a document; inventories and scenarios hold variables at many places."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


class Loader(yaml.SafeLoader):
    """Reads tags such as !unsafe as what they hold."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))
WRITTEN = [
    path
    for folder in ("inventories", "molecule", "tests/host", "playbooks")
    for path in sorted((CHECKOUT / folder).rglob("*.yml"))
    if "argument_specs" not in path.name
]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_the_repository_s_own_inventories_and_scenarios_are_let_through(path: Path) -> None:
    names = {name for document in yaml.load_all(path.read_text(), Loader) for name in _names(document)}
    assert misspelt(sorted(names), KNOWN, PREFIXES) == {}


def test_no_variable_of_the_deployment_is_missing_from_the_list() -> None:
    """Whatever ``vllm_…`` roles and playbooks read is on the list of variables or on that of facts; and nothing that nobody reads is on one."""
    files = [
        *CHECKOUT.glob("playbooks/*.yml"),
        *(path for path in CHECKOUT.glob("roles/*/*/*") if path.suffix in (".yml", ".j2")),
    ]
    text = "\n".join(re.sub(r"(^|\s)#.*", "", path.read_text()) for path in files)
    text += (CHECKOUT / "plugins/filter/instance_hosts.py").read_text() + (
        CHECKOUT / "plugins/action/check_variables.py"
    ).read_text()
    own_options = {option for role in ROLES for option in role.options}
    names = set(re.findall(r"(?<![\w./-])vllm_[a-z_]+", text)) - own_options
    groups = {"vllm_several"}
    others = {"vllm_install"}  # a role
    assert names - groups - others == {*DEPLOYMENT, *FACTS}
    read = set(re.findall(r"\b(?:teardown|rollback|benchmark)_[a-z_]+", text))
    files_of_tasks = {"benchmark_one_load_format"}
    assert read - files_of_tasks == set(PLAYBOOKS)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("vllm_port", "eight", 'vllm_port is "eight": it must be a whole number. Port to bind, 1024 or higher.'),
        ("vllm_port", None, "vllm_port is empty: it must be a whole number."),
        ("vllm_port", True, "vllm_port is true: it must be a whole number."),
        ("vllm_engine_args", "max_model_len=1", 'vllm_engine_args is "max_model_len=1": it must be a dictionary.'),
        ("vllm_engine_args", ["a"], 'vllm_engine_args is ["a"]: it must be a dictionary.'),
        ("vllm_engine_args", None, "vllm_engine_args is empty: it must be a dictionary."),
        ("vllm_env", f"KEY={SECRET}", "vllm_env must be a dictionary."),
        ("vllm_gpus", "0,1", 'vllm_gpus is "0,1": it must be a list of whole numbers.'),
        ("vllm_gpus", ["first"], 'vllm_gpus is ["first"]: it must be a list of whole numbers.'),
        ("vllm_gpus", 0, "vllm_gpus is 0: it must be a list of whole numbers."),
        ("vllm_device", "gpu", 'vllm_device is "gpu": it must be one of cuda, cpu.'),
        ("vllm_host", ["127.0.0.1"], 'vllm_host is ["127.0.0.1"]: it must be text.'),
        ("vllm_api_key", {"key": SECRET}, "vllm_api_key is a dictionary: it must be text."),
        (
            "plan_kv_cache_policy",
            "stripped",
            'plan_kv_cache_policy is "stripped": it must be one of auto, keep, strip.',
        ),
        ("verify_concurrency", "many", 'verify_concurrency is "many": it must be a whole number.'),
        ("checkpoint_fetch_prune", "maybe", 'checkpoint_fetch_prune is "maybe": it must be true or false.'),
    ],
)
def test_a_value_of_another_type_is_told_by_the_name_that_was_written(variable: str, value: Any, told: str) -> None:
    options = {role.mapped().get(name, ""): option for role in ROLES for name, option in role.options.items()}
    options |= {name: option for role in ROLES for name, option in role.options.items()}
    sentence = unfit(variable, value, options[variable], strict=variable in DEPLOYMENT)
    assert sentence and sentence.startswith(told), sentence
    assert SECRET not in sentence and "\n" not in sentence


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("vllm_port", "8000"),
        ("vllm_version", 0.32),
        ("vllm_gpus", []),
        ("vllm_hub_token", None),
        ("verify_checks", "models,usage"),
    ],
)
def test_what_the_roles_can_use_is_let_through(variable: str, value: Any) -> None:
    options = {role.mapped().get(name, name): option for role in ROLES for name, option in role.options.items()}
    assert unfit(variable, value, options[variable], strict=variable in DEPLOYMENT) is None


def test_every_deployment_variable_of_a_type_is_checked() -> None:
    """A default that is no longer a plain one would take its variable out of the check."""
    mapped = {variable for role in ROLES for variable in role.mapped().values()}
    # A plan's revision and a list of instances have their own ways.
    assert set(DEPLOYMENT) - mapped == {"vllm_instances", "vllm_model", "vllm_own_variables", "vllm_revision"}


PLAY = """
- hosts: vllm
  gather_facts: false
  tasks:
    - gpuhost.vllm.check_variables:
        roles: [tools, drivers, plan, vllm_install, checkpoint_fetch, checkpoint_patch, serve, verify]
"""


def check(tmp_path: Path, play: str = PLAY, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """The check itself, on a host that cannot be reached."""
    (tmp_path / "play.yml").write_text(play)
    (tmp_path / "hosts.yml").write_text(json.dumps({"vllm": {"hosts": {"gpu1.invalid": {}}, "vars": variables}}))
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        str(tmp_path / "hosts.yml"),
        str(tmp_path / "play.yml"),
        *options,
    ]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=60)


GOOD = {"vllm_model": "acme/model", "vllm_engine_args": {"max_model_len": 2048}, "vllm_gpus": [0]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        GOOD,
        {"vllm_model": "/srv/models/mine"},
        GOOD | {"vllm_model_dir": "/srv", "vllm_enginge": "own"},
        GOOD | {"vllm_engine_arg": {}, "vllm_own_variables": ["vllm_engine_arg"]},
        # Waits for a fact, and a role's own of which nobody knows yet.
        GOOD | {"vllm_port": "{{ hostvars[inventory_hostname].not_known_yet }}"},
        # The names alone are looked at: this one would fail.
        GOOD | {"vllm_notes": "{{ lookup('ansible.builtin.file', '/not/there') }}"},
        {
            "vllm_instances": [
                GOOD | {"vllm_instance": "a"},
                GOOD | {"vllm_instance": "b", "vllm_gpus": [1], "vllm_port": 8001},
            ]
        },
        GOOD | {"vllm_host": "0.0.0.0", "vllm_api_key": SECRET, "serve_secret_env": {"HF_TOKEN": SECRET}},
        # Its commit is found by the plan.
        GOOD | {"vllm_engine_args": {"trust_remote_code": True}},
    ],
    ids=["usual", "folder", "own names", "listed as own", "fact", "not looked at", "instances", "open", "remote code"],
)
def test_good_variables_pass_without_a_connection(tmp_path: Path, variables: dict[str, Any]) -> None:
    done = check(tmp_path, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            GOOD | {"vllm_engine_arg": {}},
            "vllm_engine_arg is no variable of this collection; did you mean vllm_engine_args?",
        ),
        (GOOD | {"vllm_port": "eight"}, 'vllm_port is "eight": it must be a whole number.'),
        (GOOD | {"vllm_port": 80}, "vllm_port is 80: vLLM binds ports from 1024 to 65535."),
        (GOOD | {"serve_port": 80}, "vllm_port is 80: vLLM binds ports from 1024 to 65535."),
        (GOOD | {"vllm_instance": "Big One"}, "vllm_instance is 'Big One': use lower case letters"),
        (GOOD | {"vllm_api_key": f"{SECRET}\n"}, "vllm_api_key has a line break"),
        (GOOD | {"vllm_env": {"VLLM_API_KEY": SECRET}}, "vllm_env holds VLLM_API_KEY"),
        (GOOD | {"vllm_env": f"A={SECRET}"}, "vllm_env must be a dictionary."),
        (GOOD | {"vllm_host": "0.0.0.0"}, "vllm_host is 0.0.0.0, which others can reach: set vllm_api_key"),
        (GOOD | {"vllm_engine_args": {"port": 1}}, "vllm_engine_args holds port:"),
        (GOOD | {"vllm_gpus": [0, 0]}, "vllm_gpus is [0, 0]: each GPU once"),
        (GOOD | {"verify_required_checks": ["sing"]}, "verify_required_checks names sing, which do not exist."),
        (GOOD | {"checkpoint_fetch_workers": 0}, "must be 1 or more."),
        ({}, "vllm_model is '': give a repository as organization/name"),
        (GOOD | {"vllm_instances": "a"}, "vllm_instances must be a list of dictionaries"),
        ({"vllm_instances": [GOOD]}, "vllm_instances[0]: vllm_instance is missing"),
        (
            {"vllm_instances": [GOOD | {"vllm_instance": "a", "vllm_prot": 1}]},
            "vllm_prot is no variable of this collection; did you mean vllm_port?",
        ),
        (
            {"vllm_instances": [GOOD | {"vllm_instance": "a", "vllm_port": 80}]},
            "vllm_instances[0] (a): vllm_port is 80:",
        ),
        (
            {"vllm_instances": [GOOD | {"vllm_instance": "a"}, GOOD | {"vllm_instance": "b"}]},
            "vllm_instances[1] (b): GPU 0 belongs to a already",
        ),
    ],
)
def test_bad_variables_stop_it_in_one_line(tmp_path: Path, variables: dict[str, Any], told: str) -> None:
    done = check(tmp_path, **variables)
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[ERROR]")]
    assert done.returncode == 2 and told in line, done.stdout + done.stderr
    assert line.endswith("Nothing was changed.")
    assert SECRET not in done.stdout + done.stderr


TWO = {
    "vllm_instances": [
        GOOD | {"vllm_instance": "a"},
        GOOD | {"vllm_instance": "b", "vllm_gpus": [1], "vllm_port": 8001},
    ]
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "variables", "stops"),
    [
        ("gpu1.invalid", GOOD, False),
        ("gpu1.invalid", TWO, True),
        ("gpu1.invalid,gpu1.invalid--*", TWO, False),
        ("gpu1.invalid,gpu1.invalid--b", TWO, False),
        ("gpu1*", TWO, False),
        ("vllm", TWO, False),
        ("all:!gpu2", TWO, False),
    ],
)
def test_a_limit_that_leaves_out_all_instances_of_a_host_is_told(
    tmp_path: Path, limit: str, variables: dict[str, Any], stops: bool
) -> None:
    done = check(tmp_path, PLAY, "--limit", limit, **variables)
    assert done.returncode == (2 if stops else 0), done.stdout + done.stderr
    told = "--limit gpu1.invalid leaves out the instances of gpu1.invalid, each of which is a host of its own"
    assert (told in done.stdout + done.stderr) is stops


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["site", "teardown", "rollback", "verify", "benchmark_load_format"])
def test_every_playbook_that_takes_variables_checks_their_names_first(playbook: str, tmp_path: Path) -> None:
    play = f"- ansible.builtin.import_playbook: {CHECKOUT}/playbooks/{playbook}.yml"
    done = check(tmp_path, play, **GOOD, teardown_instnace="small")
    assert "did you mean teardown_instance?" in done.stdout + done.stderr
    assert "unreachable=0" in done.stdout, "it went to the host first"


def test_the_check_of_the_names_is_quick() -> None:
    names = [f"ansible_fact_{number}" for number in range(1000)] + [
        f"vllm_tenant_{number}_quota" for number in range(100)
    ]
    begin = time.process_time()
    assert misspelt([*names, *KNOWN], KNOWN, PREFIXES) == {}
    assert time.process_time() - begin < 0.3
