# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check what the user wrote before anything is changed: names that are misspelt, values that cannot be, rules of the roles.

All of it happens on the controller. Values are only looked at where a rule or a type asks for them, never for the check of the names.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible_collections.gpuhost.vllm.plugins.filter.instance_hosts import instance_hosts
from ansible_collections.gpuhost.vllm.plugins.plugin_utils.variables import (
    DEPLOYMENT,
    PLAYBOOK_PREFIXES,
    PLAYBOOKS,
    Role,
    broken_rules,
    misspelt,
    read_role,
    role_names,
    said_misspelt,
    unfit_values,
)

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 templates every text

    def trust_as_template(value: Any) -> Any:
        return value


def _trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    if isinstance(value, dict):
        return {key: _trusted(item) for key, item in value.items()}
    return value


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("roles", "rules"))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(
            {"roles": {"type": "list", "elements": "str", "default": []}, "rules": {"type": "bool", "default": True}}
        )
        given: dict[str, Any] = task_vars or {}
        every = {name: read_role(name) for name in role_names()}
        roles = [every[name] for name in options["roles"]]
        problems = [*self._names(given, every.values())]
        if roles and not problems:
            problems = [*self._values(given, roles, options["rules"])]
        result["changed"] = False
        if problems:
            result.update(failed=True, msg=" ".join([*dict.fromkeys(problems), "Nothing was changed."]))
            result["problems"] = [*dict.fromkeys(problems)]
        return result

    def _names(self, given: Mapping[str, Any], roles: Any) -> Iterator[str]:
        known = {*DEPLOYMENT, *PLAYBOOKS, *(option for role in roles for option in role.options)}
        prefixes = {*PLAYBOOK_PREFIXES, *(f"{role.name}_" for role in roles)}
        names = {str(name) for name in given}
        # The names within an instance are variables as well; its values stay unread.
        instances = given.get("vllm_instances")
        for instance in instances if isinstance(instances, list) else []:
            names |= set(map(str, instance)) if isinstance(instance, Mapping) else set()
        found = misspelt(sorted(names), known, prefixes)
        if found:
            own = self._template(given.get("vllm_own_variables") or [], given)
            listed = own if isinstance(own, list) else [own]
            yield from said_misspelt({name: meant for name, meant in found.items() if name not in listed})

    def _values(self, given: Mapping[str, Any], roles: list[Role], rules: bool) -> Iterator[str]:
        try:
            instances = self._template(given.get("vllm_instances") or [], given)
        except AnsibleError:
            return  # it waits for something that a host tells
        try:
            if not isinstance(instances, list) or any(not isinstance(one, Mapping) for one in instances):
                raise AnsibleFilterError("vllm_instances must be a list of dictionaries, one for each instance.")
            instance_hosts(["vllm"], {"vllm": {"vllm_instances": instances}})
        except (AnsibleFilterError, TypeError, ValueError) as error:
            message = (
                str(error)
                if isinstance(error, AnsibleFilterError)
                else "vllm_gpus of an instance must be a list of whole numbers"
            )
            yield message.removeprefix("vllm: ").removesuffix(".") + "."
            return
        yield from self._left_out(given, [str(instance["vllm_instance"]) for instance in instances])
        for position, instance in enumerate(instances):
            where = f"vllm_instances[{position}] ({instance['vllm_instance']}): "
            yield from (where + problem for problem in self._of_one({**given, **instance}, roles, rules))
        if not instances:
            yield from self._of_one(given, roles, rules)

    def _left_out(self, given: Mapping[str, Any], instances: list[str]) -> Iterator[str]:
        """Ansible would find no host for a play over the instances, and say that all went well."""
        limit, host = given.get("ansible_limit"), given.get("inventory_hostname")
        if not (limit and instances):
            return
        names = [f"{host}--{instance}" for instance in instances]
        # The inventory as it is going to be when the instances have been added to it.
        hosts = InventoryManager(self._loader, parse=False)
        for group, members in given.get("groups", {}).items():
            hosts.add_group(group)
            for name in [*members, *(names if host in members else [])]:
                hosts.add_host(name, group)
        hosts.reconcile_inventory()
        hosts.subset(limit)
        if not any(found.name in names for found in hosts.get_hosts("all")):
            yield f"--limit {limit} leaves out the instances of {host}, each of which is a host of its own: write --limit '{host},{host}--*'."

    def _of_one(self, given: Mapping[str, Any], roles: list[Role], rules: bool) -> Iterator[str]:
        """What is wrong with the variables of one instance: its types, or else the rules of its roles."""
        trusted = [Role(role.name, role.options, _trusted(role.defaults), _trusted(role.own)) for role in roles]
        defaults, own = ChainMap(*(role.defaults for role in trusted)), ChainMap(*(role.own for role in trusted))
        variables = {**defaults, **given, **own}
        template = Templar(self._loader, variables).template
        # What cannot be templated here, for it waits for a fact of the host, is left to the role.
        problems = [*unfit_values(trusted, given, template, AnsibleError)]
        if rules and not problems:
            problems = [*broken_rules(trusted, template, AnsibleError)]
        yield from problems

    def _template(self, value: Any, variables: Mapping[str, Any]) -> Any:
        return Templar(self._loader, dict(variables)).template(value)
