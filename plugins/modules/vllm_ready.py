#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_ready
short_description: Wait until a vLLM service is healthy, or learn at once why it is not
version_added: 0.1.0
description:
  - Waits until C(/health) answers 200.
  - With O(unit), a unit that failed, ended or was restarted meanwhile is a failure at once, with the cause taken from its log.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  url:
    description: Address of the server, C(http://127.0.0.1:8000). A path in it replaces C(/health).
    type: str
    required: true
  unit:
    description: The systemd unit that runs the server.
    type: str
  timeout:
    description: How long to wait, in seconds.
    type: int
    default: 1800
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Wait for the service
  gpuhost.vllm.vllm_ready:
    url: http://127.0.0.1:8000
    unit: vllm-kimi-k25.service
    timeout: 1800
"""

RETURN = r"""
seconds:
  description: How long it was waited.
  type: float
  returned: success
  sample: 31.5
measured:
  description: What vLLM printed about itself at this start, in GiB, tokens and seconds; empty without O(unit).
  type: dict
  returned: success
  sample:
    weights_gib: 0.25
    available_kv_gib: 1.0
    kv_cache_tokens: 310688
    max_concurrency: 75.85
failure:
  description: Code C(service_not_ready) and the cause as the log tells it.
  type: dict
  returned: failure
  contains:
    code:
      description: Stable name of the failure.
      type: str
    details:
      description: C(cause) is the finding of the log triage or null, C(log) the last lines.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.log_triage import triage
from ..module_utils.service.ready import wait_until_ready


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "timeout": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    try:
        ready = wait_until_ready(module.params["url"], module.params["unit"], module.params["timeout"])
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, seconds=ready.seconds, measured=triage(ready.log).measured)


if __name__ == "__main__":
    main()
