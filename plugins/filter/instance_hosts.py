# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: instance_hosts
short_description: One inventory host for each vLLM instance of a host
version_added: 0.1.0
author:
  - The gpuhost.vllm developers (@gpuhost)
description:
  - A host with C(vllm_instances) serves several models on disjoint GPUs. Each instance becomes a host of the play with variables of its own,
    so that nothing learned for one instance is seen by another.
  - An instance host is a member of its host's groups, has its connection variables (C(ansible_*)) and what is already known of its GPUs.
    Variables that all instances of a host share belong to C(group_vars).
positional: hostvars
options:
  _input:
    description: Names of the hosts to look at.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variable C(hostvars).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Give each instance of a host its own place in the next play
  ansible.builtin.add_host: "{{ item }}"
  loop: "{{ ansible_play_hosts | gpuhost.vllm.instance_hosts(hostvars) }}"
"""

RETURN = r"""
_value:
  description: Arguments of M(ansible.builtin.add_host), one dictionary an instance.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

# Facts and magic variables start with ansible_ as well; only these describe how a host is reached.
CONNECTION_PREFIXES = (
    "ansible_become",
    "ansible_connection",
    "ansible_host",
    "ansible_password",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_python_interpreter",
    "ansible_remote_tmp",
    "ansible_ssh_",
    "ansible_user",
)
NOT_CONNECTION = ("ansible_hostname", "ansible_user_", "ansible_ssh_host_key_")


def _connection(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: variables[key]
        for key in variables
        if key.startswith(CONNECTION_PREFIXES) and not key.startswith(NOT_CONNECTION)
    }


def _gpus(instance: Mapping[str, Any]) -> set[int]:
    return {int(index) for index in instance.get("vllm_gpus") or []}


def instance_hosts(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``add_host`` arguments for each instance of ``hosts``; raises AnsibleFilterError for an instance that cannot stand."""
    found: list[dict[str, Any]] = []
    for host in hosts:
        variables = hostvars[host]
        instances = variables.get("vllm_instances") or []
        seen: dict[str, set[int]] = {}
        for position, instance in enumerate(instances):
            where = f"{host}: vllm_instances[{position}]"
            name = instance.get("vllm_instance") if isinstance(instance, Mapping) else None
            if not name:
                raise AnsibleFilterError(f"{where}: vllm_instance is missing; give each instance a name of its own")
            if name in seen:
                raise AnsibleFilterError(f"{where}: the name {name} is taken by another instance of this host")
            gpus = _gpus(instance)
            if len(instances) > 1 and not gpus:
                raise AnsibleFilterError(
                    f"{where} ({name}): vllm_gpus is missing; list the GPU indices of this instance"
                )
            for other, taken in seen.items():
                if gpus & taken:
                    shared = ", ".join(map(str, sorted(gpus & taken)))
                    raise AnsibleFilterError(f"{where} ({name}): GPU {shared} belongs to {other} already")
            seen[name] = gpus
            entry = {"ansible_host": host, **_connection(variables)}
            if "vllm_gpus_found" in variables:
                entry["vllm_gpus_found"] = variables["vllm_gpus_found"]
            entry |= dict(instance)
            entry |= {"name": f"{host}--{name}", "groups": list(variables.get("group_names") or ["vllm"])}
            found.append(entry)
    return found


class FilterModule:
    """Filter of the collection."""

    def filters(self) -> dict[str, Any]:
        return {"instance_hosts": instance_hosts}
