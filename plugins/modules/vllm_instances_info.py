#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_instances_info
short_description: The vLLM instances of a host, and what stands in the way of another one
version_added: 0.1.0
description:
  - Lists the instances that were deployed on this host, from their own installed records.
  - With O(instance) and O(port), tells who holds GPUs or the port that this instance wants.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  instance:
    description: The instance that is about to be deployed; its own claims are no conflict.
    type: str
    default: ''
  gpus:
    description: Indices of the GPUs that it wants; empty means all.
    type: list
    elements: int
    default: []
  device:
    description: What it runs on.
    type: str
    choices: [cuda, cpu]
    default: cuda
  host:
    description: Address that it wants to bind.
    type: str
    default: 127.0.0.1
  port:
    description: Port that it wants to bind; 0 means that no port is checked.
    type: int
    default: 0
  ignore:
    description: Instances that make room for this one.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: See what runs here
  gpuhost.vllm.vllm_instances_info:
  register: found

- name: See whether an instance would fit
  gpuhost.vllm.vllm_instances_info:
    instance: kimi-k25
    gpus: [0, 1, 2, 3]
    port: 8000
"""

RETURN = r"""
instances:
  description: The record of each instance by its name.
  type: dict
  returned: success
  sample:
    kimi-k25: {device: cuda, gpus: [], host: 127.0.0.1, port: 8000}
conflicts:
  description: Sentences that say what stands in the way of O(instance), and what to do.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.deployment import Places, gpu_conflicts, records, unit_name
from ..module_utils.service.ports import listeners


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "default": ""},
            "gpus": {"type": "list", "elements": "int", "default": []},
            "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 0},
            "ignore": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        instances = records(Places())
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    conflicts: list[str] = []
    if options["instance"]:
        making_room = [options["instance"], *options["ignore"]]
        others = {name: record for name, record in instances.items() if name not in making_room}
        for conflict in gpu_conflicts(options["gpus"], options["device"], others):
            gpus = ", ".join(map(str, conflict["gpus"])) or "all"
            conflicts.append(
                f"The instance '{conflict['instance']}' on this host uses GPU {gpus}: give each instance its own in vllm_gpus, or remove the other one."
            )
        units = {unit_name(name) for name in making_room}
        for listener in listeners(options["host"], options["port"]) if options["port"] else []:
            if listener.process is None or listener.process.unit not in units:
                conflicts.append(
                    f"Port {options['port']} is in use by {listener.describe()}: stop it, or choose another vllm_port."
                )
    module.exit_json(changed=False, instances=instances, conflicts=conflicts)


if __name__ == "__main__":
    main()
