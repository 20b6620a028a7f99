# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verification_report
short_description: Sum up what the verification of a vLLM service found
version_added: 0.1.0
author:
  - The gpuhost.vllm developers (@gpuhost)
description:
  - Makes the document of the verification report (the JSON file) from the results of the collection's modules.
  - Its keys C(verdict), C(failures), C(warnings) and C(changes) hold the sum.
options:
  _input:
    description:
      - Results by name. C(instance), C(host), C(generated_at) and C(required_checks) are needed; C(service), C(plan), C(view), C(gpus),
        C(install), C(log), C(probe) and C(previous) as far as they are known.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Sum up
  ansible.builtin.set_fact:
    report: "{{ {'instance': 'demo', 'host': inventory_hostname, 'generated_at': '2026-12-02T04:00:00Z', 'required_checks': ['factual'],
                 'probe': probe} | gpuhost.vllm.verification_report }}"
"""

RETURN = r"""
_value:
  description: The document.
  type: dict
"""

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.service.report import build_report


def verification_report(found: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in ("instance", "host", "generated_at", "required_checks") if name not in found]
    if missing:
        raise AnsibleFilterError(f"verification_report needs {', '.join(missing)}")
    # Plain data: nothing of Ansible's own types reaches the pure functions.
    return build_report(json.loads(json.dumps(found, default=str)))


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"verification_report": verification_report}
