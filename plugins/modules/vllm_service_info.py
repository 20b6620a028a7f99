#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_info
short_description: Say what an installed vLLM instance is
version_added: 0.1.0
description:
  - Reads the unit, the configuration and the record of one instance, so that a running service can be verified without the variables that
    it was deployed with. Secrets are left out.
author:
  - The gpuhost.vllm developers (@gpuhost)
requirements:
  - PyYAML on the host (the role P(gpuhost.vllm.tools#role) provides it)
options:
  instance:
    description: Name of the instance; its unit is C(vllm-INSTANCE.service).
    type: str
    required: true
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Look at an instance
  gpuhost.vllm.vllm_service_info:
    instance: kimi-k25
  register: service
  vars:
    ansible_python_interpreter: /opt/vllm/tools/bin/python
"""

RETURN = r"""
unit:
  description: Name of its unit.
  type: str
  returned: success
active:
  description: Whether the unit is running.
  type: bool
  returned: success
url:
  description: Where the host itself reaches the API.
  type: str
  returned: success
model:
  description: Name of the model at the API.
  type: str
  returned: success
model_path:
  description: The served folder.
  type: str
  returned: success
revision:
  description: Commit of the checkpoint, as far as it is known.
  type: str
  returned: success
options:
  description: Options of C(vllm serve), without secrets.
  type: dict
  returned: success
release:
  description: Folder of its virtual environment.
  type: str
  returned: success
release_id:
  description: Name of that folder.
  type: str
  returned: success
gpus:
  description: Its GPUs; empty means all.
  type: list
  elements: int
  returned: success
device:
  description: V(cuda) or V(cpu).
  type: str
  returned: success
restarts:
  description: How often systemd restarted it by itself.
  type: int
  returned: success
start_id:
  description: Stands for its last start (the invocation of systemd); another start has another one.
  type: str
  returned: success
start_seconds:
  description: From its last start until it was healthy; null while it starts.
  type: float
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.deployment import require_instances
from ..module_utils.service.service_info import service_info


def main() -> None:
    module = AnsibleModule(argument_spec={"instance": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        require_instances(module.params["instance"])
        info = service_info(module.params["instance"])
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, **info.as_result())


if __name__ == "__main__":
    main()
