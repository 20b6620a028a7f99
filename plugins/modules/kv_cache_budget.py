#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kv_cache_budget
short_description: Say before the download what vLLM will say after the load
version_added: 0.1.0
description:
  - Works out how vLLM will spend the memory of one GPU - weights, overhead, KV cache - and which context length, how many tokens and how
    many requests at a time fit.
  - Reads a model's metadata only (C(config.json), C(hf_quant_config.json), the headers of the safetensors files), from a folder or by range
    requests from a Hub. No GPU, no vLLM and no download is needed.
  - Blocks, tokens, the largest length and the concurrency are vLLM's own for a given amount of memory. The amount itself is a forecast
    with a range, unless it is given or was measured at an earlier start of the same deployment; RV(budget.source) says which.
author:
  - The gpuhost.vllm developers (@gpuhost)
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
options:
  path:
    description: A checkpoint folder on the host.
    type: path
  repo_id:
    description: A repository on a Hub, C(organization/name).
    type: str
  revision:
    description: Branch, tag or commit of O(repo_id).
    type: str
    default: main
  endpoint:
    description: URL of the Hub; empty means huggingface.co.
    type: str
    default: ''
  token:
    description: Token for the Hub.
    type: str
    default: ''
  config:
    description:
      - The model's C(config.json) as a dictionary, in place of O(path) and O(repo_id).
      - The weights are then told from the configuration, for the architectures that are known; else give O(weights_bytes_per_gpu).
    type: dict
  hf_quant_config:
    description: The model's C(hf_quant_config.json) as a dictionary, beside O(config).
    type: dict
  engine_args:
    description:
      - vLLM's options by their own names in snake_case, as for C(vllm serve --config).
      - Messages name them as the roles' variable, C(vllm_engine_args).
    type: dict
    default: {}
  vllm_version:
    description: The release that will serve, in quotes.
    type: raw
    default: 0.32.0
  device:
    description: On a V(cpu), C(VLLM_CPU_KVCACHE_SPACE) of O(env) is the memory of the cache.
    type: str
    choices: [cuda, cpu]
    default: cuda
  gpu_name:
    description: The GPU's product name; some of vLLM's defaults depend on it.
    type: str
    default: ''
  gpu_total_bytes:
    description: Memory of one GPU as nvidia-smi (NVML) shows it.
    type: int
  gpu_reserved_bytes:
    description: What the driver keeps of it (NVML's v2 information); estimated if not given.
    type: int
  compute_capability:
    description: Of the GPU, such as V(12.0).
    type: str
  env:
    description:
      - Environment of the server; variables that begin with C(VLLM_) matter.
      - Messages name it as the roles' variable, C(vllm_env).
    type: dict
    default: {}
  available_kv_cache_bytes:
    description: Memory for the KV cache of one GPU; replaces the forecast. One number, or one for each pipeline rank.
    type: list
    elements: int
  weights_bytes_per_gpu:
    description: Weights of one GPU as vLLM measures them; replaces the sum over the tensors. One number, or one for each pipeline rank.
    type: list
    elements: int
  overhead_bytes_per_gpu:
    description: Memory of one GPU outside weights and cache; replaces the forecast.
    type: int
  packages:
    description: Optional Python packages of the release that change vLLM's choice of attention, such as V(flashinfer) and V(deep_gemm).
    type: list
    elements: str
    default: []
requirements:
  - huggingface_hub 2 for O(repo_id); the role P(gpuhost.vllm.tools#role) installs it
seealso:
  - module: gpuhost.vllm.deployment_plan
"""

EXAMPLES = r"""
- name: Does Kimi-K2.5 fit on eight RTX PRO 6000?
  gpuhost.vllm.kv_cache_budget:
    repo_id: nvidia/Kimi-K2.5-NVFP4
    vllm_version: 0.32.0
    engine_args:
      tensor_parallel_size: 8
      gpu_memory_utilization: 0.95
      kv_cache_dtype: bfloat16
    gpu_total_bytes: 102641958912
    compute_capability: "12.0"
  register: kimi

- name: Show why
  ansible.builtin.debug:
    var: kimi.budget.reasons

- name: The same for a folder, when the memory for the cache is known
  gpuhost.vllm.kv_cache_budget:
    path: /srv/models/my-model
    available_kv_cache_bytes: 12562779340
"""

RETURN = r"""
budget:
  description: The memory of one GPU. Sizes are bytes.
  returned: success
  type: dict
  contains:
    kv_cache_dtype:
      description: Type of the KV cache as vLLM prints it; V(auto) is the model's own.
      type: str
      sample: bfloat16
    block_size:
      description: Tokens of one block.
      type: int
      sample: 16
    kv_bytes_per_token:
      description: What one more token takes on a GPU (on the pipeline rank that needs most).
      type: float
      sample: 70272
    groups:
      description: vLLM's cache groups (C(kind), C(layers), C(block_size), C(page_size_bytes)).
      type: list
      elements: dict
    weights_bytes_per_gpu:
      description: Weights of a GPU of each pipeline rank.
      type: list
      elements: int
      sample: [76439268692]
    overhead_bytes_per_gpu:
      description: Memory outside weights and cache, C(low), C(expected) and C(high), with its named C(parts).
      type: dict
    available_kv_cache_bytes:
      description: Memory for the KV cache on the GPU that has least; negative if not even the weights fit.
      type: int
      sample: 12562779340
    available_kv_cache_bytes_range:
      description: The range of a forecast, C(low) and C(high).
      type: dict
    source:
      description: Where the memory for the cache is known from, V(forecast), V(measured) or V(given).
      type: str
      sample: forecast
    num_gpu_blocks:
      description: Blocks of the cache.
      type: int
      sample: 11173
    kv_cache_tokens:
      description: What vLLM prints as the size of its cache, at RV(budget.max_model_len_requested).
      type: int
      sample: 178768
    max_model_len_requested:
      description: The length asked for, or the model's own.
      type: int
      sample: 262144
    max_model_len_fit:
      description: The largest length that the memory allows; where memory is no limit, the length asked for, or the model's own.
      type: int
      sample: 178752
    max_model_len:
      description: Recommended length, a round number that leaves room for batching; 0 if there is none.
      type: int
      sample: 131072
    max_concurrency:
      description: Requests of RV(budget.max_model_len_requested) that fit at a time.
      type: float
      sample: 0.681946
    concurrency:
      description: The same at several lengths (C(max_model_len), C(max_concurrency), C(kv_cache_tokens)).
      type: list
      elements: dict
    max_num_seqs:
      description: Sequences at a time, C(current), C(recommended), and the C(gained_bytes) that the recommendation gives back to the cache.
      type: dict
    fits:
      description: Whether vLLM would start with exactly these options.
      type: bool
    remedies:
      description: If it does not fit, what would help, cheapest first (C(action), C(engine_args), C(max_model_len_fit), C(enough), C(text)).
      type: list
      elements: dict
    reasons:
      description: The budget in words.
      type: list
      elements: str
checkpoint:
  description: The checkpoint (C(origin), C(commit), C(bytes_total), C(weight_bytes), C(bytes_read)); sizes in bytes.
  returned: success
  type: dict
failure:
  description: C(code) and C(details) of a failure.
  returned: failure
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.memory.budget import compute_budget
from ..module_utils.memory.budget_options import BUDGET_ARGUMENTS, BUDGET_SOURCES, budget_request, checkpoint_result
from ..module_utils.memory.budget_result import budget_result


def main() -> None:
    module = AnsibleModule(
        argument_spec=BUDGET_ARGUMENTS,
        mutually_exclusive=[BUDGET_SOURCES],
        required_one_of=[BUDGET_SOURCES],
        required_by={"hf_quant_config": "config"},
        supports_check_mode=True,
    )
    try:
        request = budget_request(module.params)
        budget = budget_result(compute_budget(request))
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, budget=budget, checkpoint=checkpoint_result(request.checkpoint))


if __name__ == "__main__":
    main()
