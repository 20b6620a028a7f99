#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_bench
short_description: Measure a running vLLM server with vLLM's own benchmark
version_added: 0.1.0
description:
  - Runs C(vllm bench serve) of an installed release against a running server, with random prompts of a fixed length, once for each number of
    simultaneous requests. Its figures compare with published ones.
  - M(gpuhost.vllm.vllm_probe) measures speed too, in less time and without the release.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  executable:
    description: The C(vllm) command of the release.
    type: path
    required: true
  url:
    description: Base URL of the server.
    type: str
    required: true
  model:
    description: Name of the model at the API.
    type: str
    required: true
  tokenizer:
    description: Folder of the checkpoint, for its tokenizer.
    type: path
    required: true
  api_key:
    description: API key of the server, handed over in the environment.
    type: str
    default: ''
  levels:
    description: Numbers of simultaneous requests.
    type: list
    elements: int
    required: true
  prompts_per_level:
    description: Requests for each simultaneous one.
    type: int
    default: 4
  input_tokens:
    description: Length of the prompts.
    type: int
    default: 512
  output_tokens:
    description: Length of the answers.
    type: int
    default: 128
  timeout:
    description: Seconds for one level.
    type: float
    default: 600
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Measure with vLLM's own benchmark
  gpuhost.vllm.vllm_bench:
    executable: /opt/vllm/releases/0.32.0-c43956a59b8e/bin/vllm
    url: http://127.0.0.1:8000
    model: nvidia/Kimi-K2.5-NVFP4
    tokenizer: /var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/views/0f1e2d3c-stripped
    levels: [1, 8, 32]
"""

RETURN = r"""
points:
  description: For each number of simultaneous requests.
  type: list
  elements: dict
  returned: success
  contains:
    concurrency:
      description: Number of simultaneous requests.
      type: int
    completed:
      description: Requests that were answered.
      type: int
    failed:
      description: Requests that were not.
      type: int
    output_tokens_per_second:
      description: Of all requests together.
      type: float
    total_tokens_per_second:
      description: Prompts included.
      type: float
    median_ttft_ms:
      description: Time to the first token.
      type: float
    p99_ttft_ms:
      description: Time to the first token of the slowest hundredth.
      type: float
    median_tpot_ms:
      description: Time for each further token.
      type: float
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.bench_serve import BenchRequest, bench_serve


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "executable": {"type": "path", "required": True},
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "tokenizer": {"type": "path", "required": True, "no_log": False},
            "api_key": {"type": "str", "default": "", "no_log": True},
            "levels": {"type": "list", "elements": "int", "required": True},
            "prompts_per_level": {"type": "int", "default": 4},
            "input_tokens": {"type": "int", "default": 512, "no_log": False},
            "output_tokens": {"type": "int", "default": 128, "no_log": False},
            "timeout": {"type": "float", "default": 600},
        },
        supports_check_mode=True,
    )
    options = dict(module.params)
    api_key = options.pop("api_key")
    try:
        points = bench_serve(BenchRequest(**options), api_key)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, points=[asdict(point) for point in points])


if __name__ == "__main__":
    main()
