# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The example inventories: each is planned by the role itself, for GPUs as the role drivers would have found them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.gpu_inventory import inventory_gpus

from tests.host.hub import Hub
from tests.host.paths import CHECKOUT
from tests.hub_models import CASES, add_model

INVENTORIES = CHECKOUT / "inventories"
ANSIBLE_PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
KIMI = CASES["kimi25-tp8-auto"]["config"]
FP8_CACHE = {"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}

# What nobody wrote into the inventory, decided for its GPUs.
PLANNED: dict[str, dict[str, dict[str, Any]]] = {
    "rtx_4090": {"gpu1": {"model": "openai/gpt-oss-20b", "checkpoint_state": "original", "max_model_len": 131_072}},
    "rtx_pro_6000x2": {
        "gpu1--large": {"model": "openai/gpt-oss-120b", "max_model_len": 131_072},
        "gpu1--small": {"model": "Qwen/Qwen3-30B-A3B", "max_model_len": 32_768},
    },
    "h200x8": {
        "gpu1": {"model": "deepseek-ai/DeepSeek-V3.2", "checkpoint_state": "original", "max_model_len": 163_840},
    },
    "rtx_pro_6000x8": {
        "gpu1": {
            "model": "nvidia/Kimi-K2.5-NVFP4",
            "checkpoint_state": "stripped",
            "kv_cache_dtype": "bfloat16",
            "max_model_len": 163_840,
        }
    },
}
GPUS = {
    "rtx_4090": "1xRTX 4090",
    "rtx_pro_6000x2": "2xRTX PRO 6000",
    "h200x8": "8xH200",
    "rtx_pro_6000x8": "8xRTX PRO 6000",
}
PARALLEL = {"rtx_4090": 1, "rtx_pro_6000x2": 1, "h200x8": 8, "rtx_pro_6000x8": 8}
OPTIONS: dict[str, dict[str, Any]] = {
    "rtx_4090": {"tool_call_parser": "openai", "gpu_memory_utilization": 0.85},
    "rtx_pro_6000x2": {"enable_auto_tool_choice": True},
    "h200x8": {"tokenizer_mode": "deepseek_v32", "gpu_memory_utilization": 0.92},
    "rtx_pro_6000x8": {"tool_call_parser": "kimi_k2", "trust_remote_code": True, "gpu_memory_utilization": 0.95},
}


def _found(described: str) -> dict[str, Any]:
    gpus = [
        {
            "index": index,
            "name": gpu.name,
            "total_bytes": gpu.total_bytes,
            "compute_capability": ".".join(map(str, gpu.compute_capability or ())),
        }
        for index, gpu in enumerate(inventory_gpus(described))
    ]
    return {"gpus": gpus}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    add_model(root, "openai/gpt-oss-20b", "gptoss20b-h100")
    add_model(root, "openai/gpt-oss-120b", "gptoss120b-tp1")
    add_model(root, "Qwen/Qwen3-30B-A3B", "qwen3-30b-tp2")
    add_model(root, "deepseek-ai/DeepSeek-V3.2", "dsv32-tp8-h200")
    declared = {**KIMI["quantization_config"], **FP8_CACHE}
    add_model(root, "nvidia/Kimi-K2.5-NVFP4", "kimi25-tp8-auto", quantization_config=declared)
    with Hub(root) as running:
        yield running


def test_every_example_is_planned() -> None:
    examples = {path.parent.name for path in INVENTORIES.glob("*/group_vars")}
    assert examples == PLANNED.keys() | {"demo"}  # the demo's hosts.yml is made by `make demo`, and planned there
    assert PLANNED.keys() == GPUS.keys() == PARALLEL.keys() == OPTIONS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLANNED))
def test_example_is_planned_as_its_owner_expects(name: str, hub: Hub, tmp_path: Path) -> None:
    show = tmp_path / "show.yml"
    show.write_text(SHOW.format(playbook=CHECKOUT / "playbooks/site.yml", folder=tmp_path))
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": "/usr/bin/python3",
        "tools_path": str(tmp_path / "no-tools-yet"),
        "tools_packages": [],
        "vllm_gpus_found": _found(GPUS[name]),
        "vllm_hub_endpoint": hub.endpoint,
    }
    (tmp_path / "here.yml").write_text(json.dumps({"vllm": {"hosts": {"gpu1": {}}, "vars": here}}))
    inventories = ["-i", INVENTORIES / name, "-i", tmp_path / "here.yml"]
    command = [ANSIBLE_PLAYBOOK, *inventories, show, "--check", "--tags", "plan,show"]
    done = subprocess.run([*map(str, command)], cwd=CHECKOUT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "Skipping" not in done.stderr, "Ansible took a file for an inventory that is none"
    plans = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert plans.keys() == PLANNED[name].keys()
    for host, expected in PLANNED[name].items():
        assert {key: plans[host][key] for key in expected} == expected
        assert plans[host]["engine_args"]["tensor_parallel_size"] == PARALLEL[name]
        assert plans[host]["gpus"]["count"] == plans[host]["gpus"]["used"] == PARALLEL[name]
        assert plans[host]["engine_args"].items() >= OPTIONS[name].items()
        assert plans[host]["budget"]["fits"] and plans[host]["budget"]["kv_cache_tokens"] >= expected["max_model_len"]


# --check writes nothing on the hosts; the copy runs on the controller, without it.
SHOW = """
- name: Plan
  ansible.builtin.import_playbook: {playbook}
- name: Keep the plans
  hosts: vllm:!vllm_several
  gather_facts: false
  tags: [show]
  tasks:
    - name: Keep
      ansible.builtin.copy:
        content: "{{{{ vllm_plan | to_json }}}}"
        dest: "{folder}/{{{{ inventory_hostname }}}}.json"
        mode: "0600"
      delegate_to: localhost
      check_mode: false
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLANNED))
def test_playbooks_read_with_every_example(name: str) -> None:
    playbooks = [f"gpuhost.vllm.{path.stem}" for path in (CHECKOUT / "playbooks").glob("*.yml") if path.stem != "awx"]
    command = [ANSIBLE_PLAYBOOK, "-i", INVENTORIES / name, "--syntax-check", *playbooks]
    done = subprocess.run([*map(str, command)], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Skipping" not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("inventory", ["rtx_4090", "rtx_4090/", "rtx_4090/hosts.yml"])
def test_own_recipe_is_known_without_a_host_too(inventory: str, hub: Hub) -> None:
    asked = ["-e", "vllm_model=gpt-oss-20b", "-e", "gpus=1x24GB", "-e", f"vllm_hub_endpoint={hub.endpoint}"]
    command = [str(ANSIBLE_PLAYBOOK), "-i", f"{INVENTORIES}/{inventory}", "gpuhost.vllm.plan", *asked]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "openai/gpt-oss-20b at " in done.stdout
