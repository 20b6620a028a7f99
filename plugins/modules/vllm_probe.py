#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_probe
short_description: Ask a running vLLM server questions and judge its answers
version_added: 0.1.0
description:
  - Asks questions whose answers are known and reads what the server says. A server that answers garbage with status 200 fails.
  - Checks streaming, token counts, reasoning, a tool call, a long context and simultaneous requests, and measures the speed.
  - The result says for each check what was asked, what was answered, the verdict and why. The module fails only for wrong options, so that a
    report can be written; look at RV(verdict).
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  url:
    description: Base URL of the server.
    type: str
    required: true
  model:
    description: Name of the model at the API. Empty takes the first that the server lists.
    type: str
    default: ''
  api_key:
    description: API key of the server. It is sent as a header and appears nowhere else.
    type: str
    default: ''
  checks:
    description: The checks to run. V(models) always runs first.
    type: list
    elements: str
    choices: [models, factual, multi_step, multi_turn, creative, language, reasoning, tool_call, streaming, usage, long_context, concurrency]
    default: [models, factual, multi_step, multi_turn, creative, language, reasoning, tool_call, streaming, usage, long_context, concurrency]
  required_checks:
    description: The checks whose failure makes RV(verdict) V(failed). The failure of another one is a warning.
    type: list
    elements: str
    default: [models, factual, multi_turn, creative, streaming, usage, concurrency, reasoning, tool_call]
  reasoning:
    description: Whether the server was started with a reasoning parser.
    type: bool
    default: false
  tools:
    description: Whether the server was started with automatic tool choice.
    type: bool
    default: false
  concurrency:
    description: Number of simultaneous requests of the check V(concurrency).
    type: int
    default: 4
  long_context_share:
    description: Share of the context length that the long context fills.
    type: float
    default: 0.9
  long_context_tokens:
    description: Upper limit of the long context in tokens; V(0) is none.
    type: int
    default: 0
  speed_levels:
    description: Numbers of simultaneous requests whose speed is measured. Empty measures nothing.
    type: list
    elements: int
    default: [1, 4, 8]
  speed_tokens:
    description: Tokens of each answer whose speed is measured.
    type: int
    default: 64
  request_timeout:
    description: Seconds for one request.
    type: float
    default: 300
  deadline:
    description: Seconds for everything. A check that cannot begin in time has failed.
    type: float
    default: 900
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Probe the server
  gpuhost.vllm.vllm_probe:
    url: http://127.0.0.1:8000
    api_key: "{{ vault_vllm_api_key }}"
    reasoning: true
    tools: true
  register: probe

- name: Insist on coherent answers
  ansible.builtin.assert:
    that: probe.verdict == 'passed'
    fail_msg: "{{ probe.failures | join('; ') }}"
"""

RETURN = r"""
verdict:
  description: V(failed) if a required check failed, else V(passed).
  type: str
  returned: success
failures:
  description: Required checks that failed, with the reason.
  type: list
  elements: str
  returned: success
warnings_found:
  description: Other checks that failed, and speeds that could not be measured.
  type: list
  elements: str
  returned: success
model:
  description: Name of the model at the API.
  type: str
  returned: success
max_model_len:
  description: Its context length in tokens, as the server says.
  type: int
  returned: success
checks:
  description: Each check in the order in which it ran.
  type: list
  elements: dict
  returned: success
  contains:
    id:
      description: Name of the check.
      type: str
    title:
      description: What it is about.
      type: str
    verdict:
      description: V(passed), V(failed) or V(skipped).
      type: str
    reason:
      description: Why.
      type: str
    required:
      description: Whether it counts for RV(verdict).
      type: bool
    prompt:
      description: The last question.
      type: str
    answer:
      description: The last answer.
      type: str
    exchanges:
      description: All questions and answers, with the reasoning that was kept apart.
      type: list
      elements: dict
    seconds:
      description: Duration.
      type: float
speed:
  description: For each number of simultaneous requests.
  type: list
  elements: dict
  returned: success
  contains:
    concurrency:
      description: Number of simultaneous requests.
      type: int
    time_to_first_token_s:
      description: Median.
      type: float
    tokens_per_second:
      description: Of one request while it decodes, median.
      type: float
    total_tokens_per_second:
      description: Of all requests together.
      type: float
    error:
      description: Why there are no figures.
      type: str
tokens_per_second:
  description: Of a single request while it decodes.
  type: float
  returned: success
time_to_first_token_s:
  description: Of a single request.
  type: float
  returned: success
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.openai_client import Client
from ..module_utils.service.probe import ProbeResult, ProbeSettings, probe
from ..module_utils.service.probe_data import ALL_CHECKS, BASIC


def run(params: dict[str, Any]) -> ProbeResult:
    """Probe the server that the options name."""
    client = Client(params["url"], params["api_key"], timeout=params["request_timeout"])
    same = "model checks reasoning tools concurrency long_context_share long_context_tokens speed_levels speed_tokens deadline"
    settings = ProbeSettings(required=params["required_checks"], **{name: params[name] for name in same.split()})
    return probe(client, settings)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "default": ""},
            "api_key": {"type": "str", "default": "", "no_log": True},
            "checks": {"type": "list", "elements": "str", "choices": list(ALL_CHECKS), "default": list(ALL_CHECKS)},
            "required_checks": {"type": "list", "elements": "str", "default": list(BASIC)},
            "reasoning": {"type": "bool", "default": False},
            "tools": {"type": "bool", "default": False},
            "concurrency": {"type": "int", "default": 4},
            "long_context_share": {"type": "float", "default": 0.9},
            "long_context_tokens": {"type": "int", "default": 0, "no_log": False},
            "speed_levels": {"type": "list", "elements": "int", "default": [1, 4, 8]},
            "speed_tokens": {"type": "int", "default": 64, "no_log": False},
            "request_timeout": {"type": "float", "default": 300},
            "deadline": {"type": "float", "default": 900},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params).as_result()
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    # Ansible shows a result's key `warnings` on the screen; these belong into the report.
    module.exit_json(changed=False, warnings_found=result.pop("warnings"), **result)


if __name__ == "__main__":
    main()
