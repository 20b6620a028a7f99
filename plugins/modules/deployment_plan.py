#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_plan
short_description: Decide how a model is served on given GPUs
version_added: 0.1.0
description:
  - Looks at a model's metadata, the GPUs, the disk, the recipe and what was measured at earlier starts, and decides once - KV-cache type and
    whether the checkpoint's declaration of it is stripped, tensor parallelism, context length, number of sequences, bytes to download.
  - Explicit options win over everything derived. What is known to fail, or does not fit, fails here with the reason and the remedies.
  - Reads only. Neither a GPU nor vLLM nor a download is needed.
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
    description: The model's C(config.json) as a dictionary, in place of O(path) and O(repo_id).
    type: dict
  hf_quant_config:
    description: The model's C(hf_quant_config.json) as a dictionary, beside O(config).
    type: dict
  model:
    description: The name under which measurements are kept; the repository or path by default.
    type: str
    default: ''
  gpus:
    description:
      - The GPUs to use, as a list of dictionaries as M(gpuhost.vllm.gpu_info) returns them, or described, such as V(8x96GB) or V(2xH200).
      - Not needed on a V(cpu).
    type: raw
    default: []
  gpu_indices:
    description: Which of O(gpus) the instance uses, by their C(index), or by their place from 0 on where they are described; empty means all.
    type: list
    elements: int
    default: []
  device:
    description: What vLLM runs on.
    type: str
    choices: [cuda, cpu]
    default: cuda
  vllm_version:
    description: The release that will serve, in quotes.
    type: raw
    default: 0.32.0
  engine_args:
    description:
      - vLLM's options that the user insists on, by their own names in snake_case. A name that is nearly one of vLLM's is refused, any other
        that is not known here is told in RV(plan.warnings).
      - Messages name them as the roles' variable, C(vllm_engine_args).
    type: dict
    default: {}
  env:
    description:
      - Environment of the server that the user insists on. Messages name it as the roles' variable, C(vllm_env).
      - On a V(cpu), C(VLLM_CPU_KVCACHE_SPACE) and the weights must fit into the memory of the host that keeps O(store).
    type: dict
    default: {}
  recipe:
    description: The model's recipe; its C(engine_args) and C(env) win over what is derived, not over the user's.
    type: dict
    default: {}
  kv_cache_policy:
    description:
      - V(auto) follows what is known to work on the GPUs with this release.
      - V(keep) serves the checkpoint as shipped, V(strip) with a 16-bit KV cache.
    type: str
    choices: [auto, keep, strip]
    default: auto
  force:
    description: Let an explicit choice through that is known to fail, and a name in O(engine_args) that looks like a slip of the pen.
    type: bool
    default: false
  kv_probe:
    description:
      - Whether an installed release is asked if its MLA decode kernel, with an FP8 cache, fits into the shared memory of a GPU of compute
        capability 12. The kernel is compiled by the release itself, without a GPU, and never run; that takes some seconds of one core.
      - V(auto) asks about releases that the collection's table does not know, V(always) about every one. While the release is not
        installed yet, or when it cannot tell, the table decides.
    type: str
    choices: [auto, always, never]
    default: auto
  releases:
    description: Folder of the installed releases, for O(kv_probe); empty when this is not the host that will serve.
    type: path
    default: ''
  store:
    description: Where checkpoints are kept; empty when this is not the host that will keep them, so that its disk says nothing.
    type: path
    default: ''
  measured:
    description: Folder of what vLLM measured at earlier starts.
    type: path
    default: /var/lib/vllm/measured
requirements:
  - huggingface_hub 2 for O(repo_id); the role P(gpuhost.vllm.tools#role) installs it
seealso:
  - module: gpuhost.vllm.kv_cache_budget
"""

EXAMPLES = r"""
- name: Plan Kimi-K2.5 for a host that is not there yet
  gpuhost.vllm.deployment_plan:
    repo_id: nvidia/Kimi-K2.5-NVFP4
    gpus: 8x96GB
    engine_args:
      gpu_memory_utilization: 0.95
  register: kimi

- name: Show it
  ansible.builtin.debug:
    msg: "{{ kimi.plan | gpuhost.vllm.plan_report }}"
"""

RETURN = r"""
plan:
  description: The decision. Sizes are bytes.
  returned: success
  type: dict
  contains:
    model:
      description: The model as it was named.
      type: str
    revision:
      description: The commit that the revision means now; empty for a folder.
      type: str
    checkpoint_state:
      description: V(original), or V(stripped) when the declaration of a quantized KV cache is to be taken back.
      type: str
    kv_cache_dtype:
      description: For vLLM's option of that name.
      type: str
    kv_decision:
      description: C(policy), C(reason) and C(source) of the KV-cache type.
      type: dict
    max_model_len:
      description: Context length to serve.
      type: int
    max_model_len_source:
      description: Why that length - V(asked) by the user or the recipe, V(recommended), or V(served) before and good enough.
      type: str
    max_num_seqs:
      description: Sequences at a time.
      type: int
    engine_args:
      description: All options for the server, the user's included.
      type: dict
    env:
      description: Environment for the server.
      type: dict
    budget:
      description: The memory of one GPU with these options, as M(gpuhost.vllm.kv_cache_budget) returns it.
      type: dict
    bytes_total:
      description: Size of the checkpoint.
      type: int
    bytes_to_download:
      description: What of it is not there yet.
      type: int
    disk_free_bytes:
      description: Free space for it; null when it was not asked.
      type: int
    load_seconds_expected:
      description: How long a start will take, from an earlier one or estimated from the size.
      type: int
    gpus:
      description: C(count), how many of them are C(used), C(name) and C(total_bytes) of the first.
      type: dict
    measured_key:
      description: The key under which a measurement of this deployment is kept.
      type: dict
    warnings:
      description: What the user should know although it was decided.
      type: list
      elements: str
checkpoint:
  description: The checkpoint (C(origin), C(commit), C(bytes_total), C(weight_bytes), C(bytes_read)).
  returned: success
  type: dict
failure:
  description: C(code) and C(details) of a failure.
  returned: failure
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.memory.budget_options import BUDGET_SOURCES, SOURCE_ARGUMENTS, checkpoint_result
from ..module_utils.memory.deployment_plan import PlanRequest, make_plan
from ..module_utils.memory.gpu_inventory import inventory_gpus, pick_gpus
from ..module_utils.memory.kv_kernel_probe import release_probe
from ..module_utils.memory.plan_look import look_at_checkpoint, look_at_disk, look_at_memory, look_at_processor
from ..module_utils.memory.releases import release_text
from ..module_utils.recipes import require_recipe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SOURCE_ARGUMENTS,
            "model": {"type": "str", "default": ""},
            "gpus": {"type": "raw", "default": []},
            "gpu_indices": {"type": "list", "elements": "int", "default": []},
            "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
            "vllm_version": {"type": "raw", "default": "0.32.0"},
            "engine_args": {"type": "dict", "default": {}},
            "env": {"type": "dict", "default": {}},
            "recipe": {"type": "dict", "default": {}},
            "kv_cache_policy": {"type": "str", "choices": ["auto", "keep", "strip"], "default": "auto"},
            "force": {"type": "bool", "default": False},
            "kv_probe": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "releases": {"type": "path", "default": ""},
            "store": {"type": "path", "default": ""},
            "measured": {"type": "path", "default": "/var/lib/vllm/measured"},
        },
        mutually_exclusive=[BUDGET_SOURCES],
        required_one_of=[BUDGET_SOURCES],
        required_by={"hf_quant_config": "config"},
        supports_check_mode=True,
    )
    params = module.params
    try:
        release = release_text(params["vllm_version"])
        require_recipe(params["recipe"])
        gpus = pick_gpus(inventory_gpus(params["gpus"]), params["gpu_indices"]) if params["device"] == "cuda" else []
        checkpoint = look_at_checkpoint(params, params["store"])
        plan = make_plan(
            PlanRequest(
                model=params["model"] or params["repo_id"] or params["path"] or "",
                checkpoint=checkpoint,
                gpus=gpus,
                device=params["device"],
                vllm_version=release,
                engine_args=params["engine_args"],
                env=params["env"],
                recipe=params["recipe"],
                kv_cache_policy=params["kv_cache_policy"],
                force=params["force"],
                kv_probe=release_probe(params["releases"], release, params["kv_probe"]),
                kv_probe_always=params["kv_probe"] == "always",
                disk=look_at_disk(params, params["store"], checkpoint),
                packages=look_at_processor(params["device"], params["store"]),
                host_memory_bytes=look_at_memory(params["device"], params["store"]),
                measured_folder=params["measured"],
            )
        )
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, plan=plan, checkpoint=checkpoint_result(checkpoint))


if __name__ == "__main__":
    main()
