# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_report
short_description: A plan in a few lines
version_added: 0.1.0
description:
  - The decision with its reason, the memory of one GPU as a bar, and the concurrency at several lengths, for people. No line is longer than
    80 columns.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  _input:
    description: The C(plan) that M(gpuhost.vllm.deployment_plan) returned, which is the fact C(vllm_plan).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the plan
  ansible.builtin.debug:
    msg: "{{ vllm_plan | gpuhost.vllm.plan_report }}"
"""

RETURN = r"""
_value:
  description: Lines of text.
  type: list
  elements: str
"""

from typing import Any, Callable

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.plan_report import render_plan


class FilterModule:
    """The filter C(plan_report)."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan_report": render_plan}
