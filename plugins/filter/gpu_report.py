# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_report
short_description: The GPUs of a host in a few lines
version_added: 0.1.0
description:
  - Driver, container, GPUs and problems, for people.
author: The gpuhost.vllm developers
options:
  _input:
    description: What M(gpuhost.vllm.gpu_info) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the GPUs
  ansible.builtin.debug:
    msg: "{{ vllm_gpus_found | gpuhost.vllm.gpu_report }}"
"""

RETURN = r"""
_value:
  description: Lines of text.
  type: list
  elements: str
"""

from typing import Any, Callable

from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.requirements import report


class FilterModule:
    """The filter C(gpu_report)."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_report": report}
