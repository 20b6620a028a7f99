# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_requirements_unmet
short_description: What keeps the GPUs of a host from serving
version_added: 0.1.0
description:
  - Compares what M(gpuhost.vllm.gpu_info) found with what a deployment needs.
author: The gpuhost.vllm developers
options:
  _input:
    description: What M(gpuhost.vllm.gpu_info) returned.
    type: dict
    required: true
  minimum_driver:
    description: Oldest driver release that will do; empty for any.
    type: str
    default: ''
  minimum_compute_capability:
    description: Such as V(9.0); empty for any.
    type: str
    default: ''
  expected_gpus:
    description: How many there must be; 0 for any number.
    type: int
    default: 0
  gpus:
    description: Indices that the deployment uses; empty for all.
    type: list
    elements: int
    default: []
"""

EXAMPLES = r"""
- name: Stop unless the GPUs can serve
  ansible.builtin.assert:
    that: vllm_gpus_found | gpuhost.vllm.gpu_requirements_unmet(minimum_driver='580') | length == 0
"""

RETURN = r"""
_value:
  description: A sentence for each shortcoming, with its remedy; empty when all is well.
  type: list
  elements: str
"""

from typing import Any, Callable

from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.requirements import unmet


class FilterModule:
    """The filter C(gpu_requirements_unmet)."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_requirements_unmet": unmet}
