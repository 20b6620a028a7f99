"""What AWX answers with 400, as far as playbooks/awx.yml could run into it (AWX's API documentation of surveys, custom credential types)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.host.paths import CHECKOUT

QUESTION_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "textarea": (str,),
    "password": (str,),
    "multiplechoice": (str,),
    "multiselect": (str, list),
    "integer": (int,),
    "float": (int, float),
}
# Names that an injector may not set, beside everything that starts with ANSIBLE_ (ENV_BLOCKLIST in awx/main/constants.py, in part).
BLOCKED_ENV = {"VIRTUAL_ENV", "PATH", "PYTHONPATH", "JOB_ID", "INVENTORY_ID", "REST_API_URL", "REST_API_TOKEN", "CACHE"}
FIELD_KEYS = {
    "id",
    "label",
    "type",
    "secret",
    "help_text",
    "multiline",
    "choices",
    "default",
    "format",
    "ask_at_runtime",
}
REQUIRED = {
    "organizations": ["name"],
    "credential_types": ["name", "kind"],
    "execution_environments": ["name", "image"],
    "projects": ["name", "organization"],
    "inventories": ["name", "organization"],
    "inventory_sources": ["name", "inventory", "source"],
    "job_templates": ["name", "project", "playbook"],
    "workflow_job_templates": ["name"],
    "workflow_job_template_nodes": ["workflow_job_template"],
}


def _question(item: Any, position: int) -> str:
    for key in ("type", "question_name", "variable", "required"):
        if key not in item:
            return f"'{key}' missing from survey question {position}."
    if item["type"] not in QUESTION_TYPES:
        return f"'{item['type']}' in survey question {position} is not a type."
    if not isinstance(item["required"], bool):
        return f"'required' in survey question {position} must be a boolean."
    for key in ("question_name", "variable"):
        if not isinstance(item[key], str) or not item[key]:
            return f"'{key}' in survey question {position} must be a string."
    default, wanted = item.get("default", ""), QUESTION_TYPES[item["type"]]
    if default != "" and (not isinstance(default, wanted) or isinstance(default, bool)):
        return f"The default of survey question {position} does not fit its type {item['type']}."
    for key in ("min", "max"):
        if key in item and not isinstance(item[key], int):
            return f"'{key}' in survey question {position} must be an integer."
    if item["type"].startswith("multi"):
        choices = item.get("choices")
        if not choices or not all(isinstance(choice, str) for choice in choices):
            return f"Survey question {position} of type {item['type']} must have choices."
        if default and item["type"] == "multiplechoice" and default not in choices:
            return f"The default of survey question {position} is not among its choices."
    return ""


def _survey(spec: dict[str, Any]) -> str:
    for key, kind in (("name", str), ("description", str), ("spec", list)):
        if not isinstance(spec.get(key), kind):
            return f"'{key}' missing from survey spec, or of a wrong type."
    if not spec["spec"]:
        return "'spec' does not contain any items."
    seen: set[str] = set()
    for position, item in enumerate(spec["spec"]):
        problem = _question(item, position)
        if not problem and item["variable"] in seen:
            problem = f"'variable' '{item['variable']}' duplicated in survey question {position}."
        if problem:
            return problem
        seen.add(item["variable"])
    return ""


def _credential_type(fields: dict[str, Any]) -> str:
    if fields["kind"] not in ("cloud", "net"):
        return "Must be one of cloud, net."
    inputs = fields.get("inputs", {})
    names = {field.get("id") for field in inputs.get("fields", [])}
    for field in inputs.get("fields", []):
        if not {"id", "label"} <= set(field) or set(field) - FIELD_KEYS:
            return f"Input field {field.get('id')} wants id and label, and no strange keys."
    if set(inputs.get("required", [])) - names:
        return "A required input is not a field."
    injectors = fields.get("injectors", {})
    if set(injectors) - {"env", "extra_vars", "file"}:
        return "Injectors are env, extra_vars and file."
    for kind in ("env", "extra_vars"):
        for name, template in injectors.get(kind, {}).items():
            if kind == "env" and (name in BLOCKED_ENV or name.startswith("ANSIBLE_")):
                return f"Environment variable {name} may not be set by a credential."
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                return f"{name} is no name of a variable."
            if set(re.findall(r"{{\s*(\w+)", template)) - names:
                return f"{kind}.{name} uses an undefined field."
    return ""


def refusal(resource: str, fields: dict[str, Any]) -> str:
    """The reason why AWX would not store ``fields`` in ``resource``; empty when it would."""
    if resource == "survey_spec":
        return _survey(fields)
    for key in REQUIRED.get(resource, []):
        if fields.get(key) in (None, ""):
            return f"{key}: This field is required."
    if resource == "credential_types":
        return _credential_type(fields)
    if resource == "job_templates" and not Path(CHECKOUT, fields["playbook"]).is_file():
        return f"Playbook not found for project: {fields['playbook']}"
    if resource == "inventory_sources" and fields["source"] == "scm":
        if not fields.get("source_project"):
            return "Project required for scm type sources."
        if not Path(CHECKOUT, fields.get("source_path", "")).exists():
            return f"No such inventory in the project: {fields.get('source_path')}"
    return ""
