# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables the collection knows, and what a user's variable must be like.

Ansible takes any name: one that is misspelt is a variable that nobody reads, and the default stays. Only names that come close to a known one are
doubted; all others are the user's own. The options of the roles are read from their argument specs; the few names that belong to no role are here.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load

ROLES = Path(__file__).resolve().parents[2] / "roles"
# Variables of the whole deployment, and those of the playbooks (tests/unit/collection/test_variables.py compares both with the tree).
DEPLOYMENT = (
    "vllm_api_key",
    "vllm_device",
    "vllm_engine_args",
    "vllm_env",
    "vllm_gpus",
    "vllm_host",
    "vllm_hub_endpoint",
    "vllm_hub_token",
    "vllm_instance",
    "vllm_instances",
    "vllm_model",
    "vllm_own_variables",
    "vllm_port",
    "vllm_revision",
    "vllm_tools_wheelhouse",
    "vllm_version",
)
PLAYBOOKS = ("benchmark_load_formats", "rollback_instance", "teardown_everything", "teardown_instance")
# What the roles tell each other: known, but nobody means to set them.
FACTS = (
    "vllm_checkpoint",
    "vllm_gpus_found",
    "vllm_plan",
    "vllm_planned",
    "vllm_release",
    "vllm_report",
    "vllm_service",
    "vllm_tools",
    "vllm_verification",
    "vllm_view",
)
PLAYBOOK_PREFIXES = ("benchmark_", "rollback_", "teardown_", "vllm_")
CLOSE = 0.8  # of what follows the prefix: one wrong letter in five
CLOSE_PREFIX = 0.9  # of the whole name, where not even the prefix is right

# A role's variable that is nothing but one of the deployment: {{ vllm_port | default(8000) }}
MAPPED = re.compile(r"\{\{ (vllm_\w+) \| default\((?:'[^']*'|\d+|\[\]|\{\})(?:, true)?\) \}\}")
KINDS = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "path": "a path",
    "str": "text",
}
PLURALS = {"dict": "dictionaries", "int": "whole numbers", "path": "paths", "str": "texts"}
SECRET = re.compile("key|token|secret|password")


@dataclass(frozen=True)
class Role:
    """What the files of a role say: its options by name (an argument spec), its defaults, its own variables."""

    name: str
    options: Mapping[str, Mapping[str, Any]]
    defaults: dict[str, Any]
    own: dict[str, Any]

    def mapped(self) -> dict[str, str]:
        """The variables that are nothing but one of the deployment, each with that."""
        matches = {name: MAPPED.fullmatch(value) for name, value in self.defaults.items() if isinstance(value, str)}
        return {name: match[1] for name, match in matches.items() if match}

    def rules(self) -> Sequence[Mapping[str, Any]]:
        """What can be said of its variables without looking at a host; the role's preflight checks the same list."""
        found: Sequence[Mapping[str, Any]] = self.own.get(f"__{self.name}_rules", ())
        return found


def read_role(name: str, folder: Path = ROLES) -> Role:
    """The role of that name."""

    def read(file: str) -> dict[str, Any]:
        path = folder / name / file
        return (yaml_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}

    options = read("meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})
    return Role(name, options, read("defaults/main.yml"), read("vars/main.yml"))


def role_names(folder: Path = ROLES) -> list[str]:
    """The roles of the collection."""
    return sorted(path.parent.parent.name for path in folder.glob("*/meta/argument_specs.yml"))


def misspelt(names: Iterable[str], known: Iterable[str], prefixes: Iterable[str]) -> dict[str, str]:
    """The names that are none of ``known`` but come close to one, each with that. ``prefixes`` end with an underscore.

    A known name with another word or a number added (``vllm_model_dir``, ``vllm_port2``) is a name of the user's own.
    """
    settable = sorted(set(known).difference(FACTS))
    every, starts = {*settable, *FACTS}, tuple(sorted(prefixes, key=len, reverse=True))
    # Ordinary words, such as "driver" and "tool", begin other people's names.
    first_words = {prefix.split("_")[0] for prefix in starts if prefix in PLAYBOOK_PREFIXES or prefix.count("_") > 1}
    found: dict[str, str] = {}
    for name in names:
        if name in every:
            continue
        prefix = next((start for start in starts if name.startswith(start)), "")
        if not prefix and not difflib.get_close_matches(name.split("_")[0], first_words, n=1, cutoff=CLOSE):
            continue
        meant = _closest(name, [other for other in settable if other.startswith(prefix)], len(prefix))
        if meant:
            found[name] = meant
    return found


def _closest(name: str, known: Sequence[str], skip: int) -> Optional[str]:
    stems = {other[skip:]: other for other in known if not _extends(name, other)}
    stem = name[skip:]
    swapped = [other for other in stems if len(other) == len(stem) and sorted(other) == sorted(stem)]
    near = difflib.get_close_matches(stem, stems, n=1, cutoff=CLOSE if skip else CLOSE_PREFIX)
    return next((stems[other] for other in [*near, *swapped]), None)


def _extends(name: str, known: str) -> bool:
    """Whether ``name`` is ``known`` with words or a number added."""
    words = iter(name.rstrip("0123456789").rstrip("_").split("_"))
    return name != known and "" not in name.split("_") and all(word in words for word in known.split("_"))


def said_misspelt(found: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each misspelt name."""
    for name, meant in found.items():
        yield (
            f"{name} is no variable of this collection; did you mean {meant}? "
            f"If it is your own, list its name in vllm_own_variables."
        )


def unfit(variable: str, value: Any, option: Mapping[str, Any], strict: bool) -> Optional[str]:
    """One sentence that says why ``value`` cannot be the variable's; none if it can. Secrets are not shown.

    ``strict`` refuses what an argument spec would convert, for the roles use the deployment's variables as they are.
    """
    kind = str(option.get("type", "str"))
    if value is None and not (strict and kind in ("dict", "int", "list")):
        return None
    if strict and not _plainly(value, kind):
        return _unfit_sentence(variable, value, kind, option)
    spec = {key: option[key] for key in ("type", "elements", "choices") if key in option}
    result = ArgumentSpecValidator({variable: spec}).validate({variable: value})
    return _unfit_sentence(variable, value, kind, option) if result.error_messages else None


def _plainly(value: Any, kind: str) -> bool:
    if kind == "dict":
        return isinstance(value, Mapping)
    if kind == "list":
        return isinstance(value, (list, tuple))
    return value is not None and not isinstance(value, (bool, Mapping, list, tuple))


def _unfit_sentence(variable: str, value: Any, kind: str, option: Mapping[str, Any]) -> str:
    wanted = KINDS.get(kind, kind)
    if kind == "list":
        wanted = f"a list of {PLURALS.get(str(option.get('elements', 'str')), 'values')}"
    if option.get("choices"):
        wanted = f"one of {', '.join(map(str, option['choices']))}"
    described = option.get("description", "")
    sentence = described if isinstance(described, str) else described[0]
    is_now = f"is {_shown(variable, value)}: it " if _shown(variable, value) else ""
    return f"{variable} {is_now}must be {wanted}. {_plain(sentence).partition('. ')[0].removesuffix('.')}."


def _shown(variable: str, value: Any) -> str:
    """A value as it may be shown: a number or a word, but no secret, and nothing that could hold one."""
    if isinstance(value, Mapping):
        return "a dictionary"
    if isinstance(value, (list, tuple)):
        return "a list" if len(json.dumps(value, default=str)) > 40 else json.dumps(value, default=str)
    if value is None:
        return "empty"
    if SECRET.search(variable) or variable.endswith(("_env", "_environment")):
        return ""
    text = json.dumps(value if isinstance(value, (bool, int, float)) else str(value), ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _plain(text: str) -> str:
    """Ansible's documentation markup as words."""
    return re.sub(r"[A-Z]\(([^)]*)\)", r"\1", text)


def unfit_values(
    roles: Iterable[Role], given: Mapping[str, Any], template: Callable[[Any], Any], undefined: type[Exception]
) -> Iterator[str]:
    """A sentence for each variable of ``given`` that cannot be what it is.

    ``template`` gives the value of an expression; what depends on something that only a host can tell raises ``undefined`` and is left to the role.
    """
    seen: set[str] = set()
    for role in roles:
        mapped = role.mapped()
        for name, option in role.options.items():
            variable = name if name in given else mapped.get(name, "")
            if variable not in given or variable in seen:
                continue
            try:
                value = template(given[name] if name in given else role.defaults[name])
            except undefined:
                continue
            sentence = unfit(variable, value, option, strict=variable in DEPLOYMENT)
            if sentence:
                seen.add(variable)
                yield sentence


def broken_rules(roles: Iterable[Role], template: Callable[[Any], Any], undefined: type[Exception]) -> Iterator[str]:
    """What each rule that does not hold says."""
    for role in roles:
        for rule in role.rules():
            try:
                if not template(rule["that"]):
                    yield str(template(rule["otherwise"])).strip()
            except undefined:
                continue
