#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_measured
short_description: Keep what vLLM measured at a start, for the next plan
version_added: 0.1.0
description:
  - Writes the figures that vLLM printed into C(/var/lib/vllm/measured), under a key that names everything that changes them.
  - Nothing is written when the record holds the same memory figures already, so that a restart changes nothing.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  model:
    description: Repository id or path.
    type: str
    required: true
  commit:
    description: Resolved revision; empty for a local folder.
    type: str
    default: ''
  release:
    description: Version of vLLM.
    type: str
    required: true
  gpu_name:
    description: Product name of the GPUs, C(cpu) without one.
    type: str
    default: cpu
  gpu_count:
    description: GPUs of the instance.
    type: int
    default: 0
  engine_args:
    description: All engine arguments; the relevant ones are picked.
    type: dict
    default: {}
  kv_cache_dtype:
    description: Type of the KV cache as it was set.
    type: str
    default: auto
  checkpoint_state:
    description: Which view of the checkpoint is served.
    type: str
    choices: [original, stripped]
    default: original
  measured:
    description: Figures as M(gpuhost.vllm.vllm_ready) returns them.
    type: dict
    required: true
  folder:
    description: Where records are kept.
    type: path
    default: /var/lib/vllm/measured
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Keep what the server measured
  gpuhost.vllm.vllm_measured:
    model: example/tiny
    commit: 0123456789abcdef0123456789abcdef01234567
    release: 0.32.0
    measured: "{{ ready.measured }}"
"""

RETURN = r"""
path:
  description: The record.
  type: str
  returned: success
"""

from datetime import datetime, timezone

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.memory.measured import find_measurement, measurement_key, measurement_path, write_measurement
from ..module_utils.service.measurement import measurement_of, same_memory


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "commit": {"type": "str", "default": ""},
            "release": {"type": "str", "required": True},
            "gpu_name": {"type": "str", "default": "cpu"},
            "gpu_count": {"type": "int", "default": 0},
            "engine_args": {"type": "dict", "default": {}},
            "kv_cache_dtype": {"type": "str", "default": "auto"},
            "checkpoint_state": {"type": "str", "choices": ["original", "stripped"], "default": "original"},
            "measured": {"type": "dict", "required": True},
            "folder": {"type": "path", "default": "/var/lib/vllm/measured"},
        },
        supports_check_mode=True,
    )
    options = dict(module.params)
    folder, measured = options.pop("folder"), options.pop("measured")
    key = measurement_key(**options)
    new = measurement_of(key, measured, datetime.now(timezone.utc))
    changed = not same_memory(find_measurement(key, folder), new)
    if changed and not module.check_mode:
        write_measurement(new, folder)
    module.exit_json(changed=changed, path=str(measurement_path(key, folder)))


if __name__ == "__main__":
    main()
