# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_decision
short_description: Whether a host's NVIDIA driver is left alone, installed, or matched to the host of a container
version_added: 0.1.0
description:
  - Decides from what M(gpuhost.vllm.gpu_info) found; changes nothing.
author: The gpuhost.vllm developers
options:
  _input:
    description: What M(gpuhost.vllm.gpu_info) returned.
    type: dict
    required: true
  branch:
    description: Release branch that is wanted. A newer one that works is left alone.
    type: str
    required: true
  version:
    description: Exact release that is wanted; empty for the newest of the branch.
    type: str
    default: ''
  kernel_modules:
    description: Whose the kernel side is.
    type: str
    choices: [auto, install, skip]
    default: auto
  downgrade:
    description: Whether a newer branch is replaced too.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Say what would be done
  ansible.builtin.debug:
    msg: "{{ vllm_gpus_found | gpuhost.vllm.driver_decision(branch='580') }}"
"""

RETURN = r"""
_value:
  description:
    - C(action) (V(none), V(everything), V(user_space) or V(refuse)), C(release) to install, whether it is C(exact), and C(reasons).
  type: dict
"""

from typing import Any, Callable

from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.decision import decide


class FilterModule:
    """The filter C(driver_decision)."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"driver_decision": decide}
