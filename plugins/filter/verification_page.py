# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verification_page
short_description: The verification report as an HTML page
version_added: 0.1.0
author:
  - The gpuhost.vllm developers (@gpuhost)
description:
  - Fills a Jinja2 template with the document of P(gpuhost.vllm.verification_report#filter). Every value is escaped.
positional: template
options:
  _input:
    description: The document.
    type: dict
    required: true
  template:
    description: Text of the template.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Write the page
  ansible.builtin.copy:
    content: "{{ report | gpuhost.vllm.verification_page(lookup('ansible.builtin.file', 'report.html.j2')) }}"
    dest: /tmp/report.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

import json
from collections.abc import Mapping
from typing import Any

from ..plugin_utils.report_page import render_page


def verification_page(report: Mapping[str, Any], template: str) -> str:
    return render_page(json.loads(json.dumps(report, default=str)), str(template))


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"verification_page": verification_page}
