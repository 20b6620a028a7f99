# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The surveys ask for nothing that nobody reads, and propose what the roles would do anyway."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests import readme_tables
from tests.awx.refusals import refusal
from tests.host.paths import CHECKOUT

SURVEY_TYPES = {
    "str": {"text", "multiplechoice"},
    "path": {"text"},
    "raw": {"text"},
    "int": {"integer"},
    "float": {"integer", "float"},
}


class _Loader(yaml.SafeLoader):
    """YAML as Ansible reads it, as far as the data needs: ``!unsafe`` is a string."""


_Loader.add_constructor("!unsafe", lambda loader, node: node.value)
DATA = yaml.load((CHECKOUT / "playbooks/vars/awx.yml").read_text(), _Loader)  # noqa: S506
OPTIONS: dict[str, dict[str, Any]] = {}
for _role in sorted(path for path in readme_tables.ROLES.iterdir() if path.is_dir()):
    OPTIONS |= readme_tables.options(_role)
QUESTIONS = [(template["name"], item) for template in DATA["awx_job_templates"] for item in template["survey"]]


def _accepted(template: str, variable: str) -> list[dict[str, Any]]:
    """Options that take ``variable``: the role's option of that name, or those whose default is the deployment-wide variable."""
    if variable in OPTIONS:
        return [OPTIONS[variable]]
    reads = re.compile(rf"\{{\{{ {variable} \| default\((.*?)\) \}}\}}")
    found = []
    for option in OPTIONS.values():
        match = reads.fullmatch(str(option.get("default", "")))
        if match:
            found.append({**option, "default": yaml.safe_load(match[1])})
    return found


@pytest.mark.parametrize(
    ("template", "item"), QUESTIONS, ids=lambda part: part if isinstance(part, str) else part["variable"]
)
def test_question_fits_the_roles(template: str, item: dict[str, Any]) -> None:
    text = (CHECKOUT / f"playbooks/{template}.yml").read_text()
    options = _accepted(template, item["variable"])
    assert options or re.search(rf"\b{item['variable']}\b", text), "nobody reads this variable"
    for option in options:
        assert item["type"] in SURVEY_TYPES[option.get("type", "str")]
        assert item.get("choices") == option.get("choices")
        if "default" in item:
            assert item["default"] == option["default"]


@pytest.mark.parametrize("template", DATA["awx_job_templates"], ids=lambda template: template["name"])
def test_awx_takes_the_survey(template: dict[str, Any]) -> None:
    assert not refusal("survey_spec", {"name": "x", "description": "", "spec": template["survey"]})
    assert (CHECKOUT / f"playbooks/{template['name']}.yml").is_file()


def test_every_question_with_an_answer_of_the_roles_proposes_it() -> None:
    silent = [item["variable"] for template, item in QUESTIONS if item["variable"] in OPTIONS and "default" not in item]
    assert not silent


@pytest.mark.parametrize("kind", DATA["awx_credential_types"], ids=lambda kind: kind["name"])
def test_awx_takes_the_credential_type(kind: dict[str, Any]) -> None:
    assert not refusal("credential_types", {**kind, "kind": "cloud"})
    assert all(field["secret"] for field in kind["inputs"]["fields"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": None}, "is not a type"),
        ({"required": "yes"}, "boolean"),
        ({"default": 1}, "default"),
        ({"type": "multiplechoice", "choices": []}, "choices"),
        ({"type": "integer", "default": "1"}, "default"),
    ],
)
def test_stub_refuses_surveys_that_awx_refuses(change: dict[str, Any], reason: str) -> None:
    item = {"question_name": "a", "variable": "a", "type": "text", "required": True, **change}
    assert reason in refusal("survey_spec", {"name": "", "description": "", "spec": [item]})


def test_stub_refuses_duplicates_and_blocked_names() -> None:
    item = {"question_name": "a", "variable": "a", "type": "text", "required": True}
    assert "duplicated" in refusal("survey_spec", {"name": "", "description": "", "spec": [item, item]})
    fields = {"name": "x", "kind": "cloud", "inputs": {}, "injectors": {"env": {"ANSIBLE_CONFIG": "x"}}}
    assert "may not be set" in refusal("credential_types", fields)
