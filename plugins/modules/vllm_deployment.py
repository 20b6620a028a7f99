#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_deployment
short_description: Deploy, roll back or remove a vLLM instance as a transaction
version_added: 0.1.0
description:
  - An instance is a unit C(vllm-<instance>.service), its engine configuration C(/etc/vllm/<instance>.yaml) and its environment
    C(/etc/vllm/<instance>.env).
  - With O(state=present) the three are put in place and the unit is started anew if any of them differs or it is not running. If it does not
    become healthy, the last good ones are put back and started, and the module fails with the cause.
  - Where only time-outs of the start differ, they hold from the next start on and the service is left running.
  - With O(state=previous) the healthy deployment before the current one is deployed in the same way.
  - With O(state=absent) the unit is stopped and all of it removed; checkpoints, releases and caches stay.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  state:
    description: What is wanted.
    type: str
    choices: [present, previous, absent]
    default: present
  unit:
    description: Text of the unit. Its C(ExecStartPost) must return when the service is healthy.
    type: str
  config:
    description: Text of the engine configuration.
    type: str
  environment:
    description: Environment of the service.
    type: dict
    default: {}
  secrets:
    description: More environment of the service, never shown.
    type: dict
    default: {}
  record:
    description: What the instance claims and runs; C(gpus), C(device), C(host), C(port), C(url), C(model), C(release), C(view).
    type: dict
    default: {}
  replaces:
    description: Instances that this one takes the place of. They are stopped for its start, removed when it is healthy, started again when it is not.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details: Values of the environment are not shown, only whether they change.
  idempotent:
    support: partial
    details: Going to the previous deployment swaps it with the current one.
"""

EXAMPLES = r"""
- name: Deploy
  gpuhost.vllm.vllm_deployment:
    instance: tiny
    unit: "{{ lookup('ansible.builtin.template', 'vllm.service.j2') }}"
    config: "{{ config.content }}"
    environment: {HF_HUB_OFFLINE: "1"}
    secrets: {VLLM_API_KEY: "{{ vault_api_key }}"}
    record: {gpus: [0, 1], device: cuda, host: 127.0.0.1, port: 8000}

- name: Go back by hand
  gpuhost.vllm.vllm_deployment:
    instance: tiny
    state: previous
"""

RETURN = r"""
seconds:
  description: How long the start took until it was healthy; 0 when nothing was started.
  type: float
  returned: success
restarted:
  description: Whether the unit was started anew.
  type: bool
  returned: success
record:
  description: The record of what is deployed now.
  type: dict
  returned: success
failure:
  description: Code C(deploy_failed) with C(cause), the last lines of the C(log), and C(restored), which says what runs now.
  type: dict
  returned: failure
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.deployment import (
    Deployment,
    Places,
    apply,
    apply_to_next_start,
    difference,
    exists,
    remove,
    require_instances,
    roll_back,
    unit_name,
)
from ..module_utils.service.environment_file import render_environment_file
from ..module_utils.service.unit_service import SystemdService


def _present(options: dict[str, Any], places: Places, service: SystemdService, check_mode: bool) -> dict[str, Any]:
    environment = render_environment_file({**options["environment"], **options["secrets"]})
    deployment = Deployment(options["instance"], options["unit"], options["config"], environment, options["record"])
    found = difference(deployment, places, service.is_running(unit_name(options["instance"])))
    outdated = [name for name in options["replaces"] if exists(name, places)]
    seconds = 0.0
    if found.restart and not check_mode:
        seconds = apply(deployment, places, service, outdated)
    elif not check_mode:
        if found.changed:
            apply_to_next_start(deployment, places, service)
        for name in outdated:
            remove(name, places, service)
    return {
        "changed": found.changed or bool(outdated),
        "restarted": found.restart,
        "seconds": seconds,
        "record": options["record"],
        "diff": {"before": found.before, "after": found.after},
    }


def _previous(options: dict[str, Any], places: Places, service: SystemdService, check_mode: bool) -> dict[str, Any]:
    record = roll_back(options["instance"], places, service, check_mode)
    return {"changed": True, "restarted": True, "seconds": record.pop("seconds", 0.0), "record": record}


def _absent(options: dict[str, Any], places: Places, service: SystemdService, check_mode: bool) -> dict[str, Any]:
    there = exists(options["instance"], places)
    if there and not check_mode:
        remove(options["instance"], places, service)
    return {"changed": there, "restarted": False, "seconds": 0.0, "record": {}}


STATES = {"present": _present, "previous": _previous, "absent": _absent}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "state": {"type": "str", "choices": list(STATES), "default": "present"},
            "unit": {"type": "str"},
            "config": {"type": "str"},
            "environment": {"type": "dict", "default": {}},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "record": {"type": "dict", "default": {}},
            "replaces": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "present", ("unit", "config"))],
        supports_check_mode=True,
    )
    try:
        require_instances(module.params["instance"], *module.params["replaces"])
        result = STATES[module.params["state"]](module.params, Places(), SystemdService(), module.check_mode)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
