#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_log_triage
short_description: Say what the log of a vLLM server means
version_added: 0.1.0
description:
  - Reads the journal of a unit, a file, or lines, and tells which of vLLM's messages (releases 0.15 to 0.33) were seen, what they mean and what
    to do, what the first cause of a failure was, and which figures vLLM measured about itself.
  - Messages that only say that something else failed are never the cause. Errors that are not known are shown whole.
  - The log is streamed, so its length does not matter.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  unit:
    description: A systemd unit whose journal is read. Exactly one of O(unit), O(path) and O(lines) is needed.
    type: str
  path:
    description: A file on the host.
    type: path
  lines:
    description: The lines themselves.
    type: list
    elements: str
  scope:
    description:
      - Which part of the unit's journal is read.
      - V(last_start) is the last start of the unit. If it is still starting after systemd restarted it, the starts before are read too, so that the
        cause of a restart loop is found.
      - V(boot) is everything since the host started.
    type: str
    choices: [last_start, boot]
    default: last_start
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Read what the server said at its last start
  gpuhost.vllm.vllm_log_triage:
    unit: vllm-kimi-k25.service
  register: log

- name: Show the cause of a failure
  ansible.builtin.debug:
    msg: "{{ log.cause.meaning }} {{ log.cause.remedy }}"
  when: log.verdict == 'failed' and log.cause

- name: Read a log that a colleague sent
  gpuhost.vllm.vllm_log_triage:
    path: /tmp/vllm.log
"""

RETURN = r"""
findings:
  description: Each message once, fatal ones first.
  type: list
  elements: dict
  returned: success
  contains:
    id:
      description: Name of the message; V(unknown_error) and V(unknown_traceback) are those that are not known.
      type: str
    severity:
      description: V(harmless), V(degraded) or V(fatal).
      type: str
    meaning:
      description: What it means.
      type: str
    remedy:
      description: What to do.
      type: str
    count:
      description: How often it was seen.
      type: int
    example:
      description: The first one; a whole traceback for an unknown error.
      type: str
    source:
      description: Where the message comes from.
      type: str
measured:
  description:
    - What vLLM printed about itself at the last start, as far as it did - C(weights_gib), C(available_kv_gib) (both of one GPU),
      C(kv_cache_tokens), C(max_concurrency), C(max_model_len), C(graph_gib), C(load_seconds), C(init_engine_seconds), C(attention_backend),
      C(vllm_version), C(kv_cache_dtype) and more.
  type: dict
  returned: success
  sample: {available_kv_gib: 11.7, kv_cache_tokens: 178768, load_seconds: 540.1, max_concurrency: 1.36, max_model_len: 131072, weights_gib: 65.9}
verdict:
  description: V(healthy), V(degraded), V(starting), V(failed) or V(stopped), of the last start.
  type: str
  returned: success
cause:
  description: The finding that is the first cause of the failure; none if there is no failure, or if the log does not hold its cause.
  type: dict
  returned: success
previous_cause:
  description: The cause of the start before, when the log holds several.
  type: dict
  returned: success
starts:
  description: How many starts of a server the log holds.
  type: int
  returned: success
last_message:
  description: What the log last said.
  type: str
  returned: success
lines:
  description: How many lines were read.
  type: int
  returned: success
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.log_sources import triage_file, triage_unit
from ..module_utils.service.log_triage import Triage, triage


def read(params: dict[str, Any]) -> Triage:
    """Read the source that the options name."""
    if params["unit"]:
        return triage_unit(params["unit"], whole_boot=params["scope"] == "boot")
    if params["path"]:
        return triage_file(Path(params["path"]))
    return triage(params["lines"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str"},
            "path": {"type": "path"},
            "lines": {"type": "list", "elements": "str"},
            "scope": {"type": "str", "choices": ["last_start", "boot"], "default": "last_start"},
        },
        mutually_exclusive=[("unit", "path", "lines")],
        required_one_of=[("unit", "path", "lines")],
        supports_check_mode=True,
    )
    try:
        result = read(module.params)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, **result.as_result())


if __name__ == "__main__":
    main()
