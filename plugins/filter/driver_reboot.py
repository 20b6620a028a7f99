# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_reboot
short_description: Whether the running kernel needs a reboot for the installed NVIDIA driver, and whether it may have it
version_added: 0.1.0
description:
  - Decides from what M(gpuhost.vllm.gpu_info) found; changes nothing.
author: The gpuhost.vllm developers
options:
  _input:
    description: What M(gpuhost.vllm.gpu_info) returned after the packages were installed.
    type: dict
    required: true
  installed:
    description: Release of the installed packages; empty if unknown.
    type: str
    required: true
  allowed:
    description: Whether a reboot is allowed.
    type: bool
    required: true
  local:
    description: Whether the play runs on the host itself.
    type: bool
    required: true
  tried:
    description:
      - Whether the host was booted since packages and settings last changed. Then a module that is not loaded, or of the other flavour than
        the installed one, needs something else.
    type: bool
    default: false
  options_changed:
    description: Whether the options of the modules changed since they were loaded.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Say whether to reboot
  ansible.builtin.debug:
    msg: "{{ vllm_gpus_found | gpuhost.vllm.driver_reboot(installed='580.159.04', allowed=true, local=false) }}"
"""

RETURN = r"""
_value:
  description: Whether it is C(needed), whether to C(do) it, and C(why) (why needed, then what forbids it; or why another would not help).
  type: dict
"""

from typing import Any, Callable

from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.decision import reboot


class FilterModule:
    """The filter C(driver_reboot)."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"driver_reboot": reboot}
