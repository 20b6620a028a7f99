#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_install_info
short_description: Say whether an installed vLLM is what its wheels said
version_added: 0.1.0
description:
  - Compares every file of a virtual environment with the hashes that its distributions recorded, and finds modified, missing and foreign files,
    editable installs, and installs that were laid over one another.
  - Tells the versions of vLLM, PyTorch, CUDA, Triton and FlashInfer, and whether vLLM's libraries hold code for the host's GPUs.
  - Nothing of the environment is imported or run. A release of 3 GB takes a few seconds.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  venv:
    description: Root of the virtual environment.
    type: path
    required: true
  compute_capabilities:
    description: Compute capabilities of the GPUs that it shall run on, such as V(12.0).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Look at a release
  gpuhost.vllm.vllm_install_info:
    venv: /opt/vllm/releases/0.32.0-c43956a59b8e
    compute_capabilities: ['12.0']
  register: install

- name: Insist that nobody patched it
  ansible.builtin.assert:
    that: install.clean
    fail_msg: "Modified: {{ install.modified_files }}, foreign: {{ install.foreign_files }}"
"""

RETURN = r"""
version:
  description: Version of vLLM.
  type: str
  returned: success
torch:
  description: Version of PyTorch.
  type: str
  returned: success
cuda:
  description: CUDA version that PyTorch was built for; empty for a CPU build.
  type: str
  returned: success
triton:
  description: Version of Triton; empty when it is not installed.
  type: str
  returned: success
flashinfer:
  description: Version of FlashInfer; empty when it is not installed.
  type: str
  returned: success
transformers:
  description: Version of Transformers.
  type: str
  returned: success
python:
  description: Version of the environment's interpreter.
  type: str
  returned: success
modified_files:
  description: Files whose content is not what was recorded, relative to the environment.
  type: list
  elements: str
  returned: success
missing_files:
  description: Recorded files that are not there.
  type: list
  elements: str
  returned: success
foreign_files:
  description: Files among the packages that no distribution recorded.
  type: list
  elements: str
  returned: success
editable:
  description: Distributions that run from a source tree.
  type: list
  elements: str
  returned: success
mixed:
  description: Sentences about installs that contradict each other.
  type: list
  elements: str
  returned: success
cuda_architectures:
  description: Compute capabilities that vLLM's libraries hold code for; V(12.0+PTX) also for newer GPUs.
  type: list
  elements: str
  returned: success
  sample: ['8.0', '9.0', '10.0', '12.0+PTX']
gpu_fit:
  description: For each of O(compute_capabilities), whether there is code for it.
  type: list
  elements: dict
  returned: success
  contains:
    compute_capability:
      description: As it was asked for.
      type: str
    supported:
      description: Whether vLLM can run on it.
      type: bool
    how:
      description: A sentence.
      type: str
clean:
  description: Whether nothing of the above is wrong.
  type: bool
  returned: success
distributions:
  description: Number of installed distributions.
  type: int
  returned: success
files:
  description: Number of files that were compared.
  type: int
  returned: success
bytes:
  description: Bytes that were compared.
  type: int
  returned: success
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.install_info import inspect_install


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "venv": {"type": "path", "required": True},
            "compute_capabilities": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        info = inspect_install(Path(module.params["venv"]), module.params["compute_capabilities"])
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, **info.as_result())


if __name__ == "__main__":
    main()
