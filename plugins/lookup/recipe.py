# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: recipe
short_description: The recipe of a model, for given GPUs
version_added: 0.1.0
author:
  - The gpuhost.vllm developers (@gpuhost)
description:
  - Finds the recipe whose name or repository is the given model, first in the user's folders, then among those of the collection, and
    merges what it says for the GPUs at hand.
  - Gives an empty dictionary for a model without a recipe.
options:
  _terms:
    description: One model, as a recipe's name (V(kimi-k2.5-nvfp4)) or a repository (V(nvidia/Kimi-K2.5-NVFP4)).
    required: true
  gpus:
    description: The GPUs, as M(gpuhost.vllm.gpu_info) returns them or described, such as V(8xH200).
    type: raw
    default: []
  indices:
    description: Which of O(gpus) the model gets, as O(gpuhost.vllm.deployment_plan#module:gpu_indices); empty means all.
    type: list
    elements: int
    default: []
  failure:
    description:
      - What becomes of GPUs or a file that cannot be read. V(raise) fails, as lookups do, with a preamble of Ansible's own.
      - V(return) gives a dictionary with C(failure) alone, which M(gpuhost.vllm.deployment_plan) as its O(gpuhost.vllm.deployment_plan#module:recipe) tells
        in one line, with its code.
    type: str
    choices: [raise, return]
    default: raise
  folders:
    description: Folders with the user's own recipes, one YAML file each; they come before the collection's. A folder that is not there has none.
    type: list
    elements: path
    default: []
"""

EXAMPLES = r"""
- name: What does gpt-oss need on eight H200?
  ansible.builtin.debug:
    msg: "{{ lookup('gpuhost.vllm.recipe', 'gpt-oss-120b', gpus='8xH200') }}"
"""

RETURN = r"""
_raw:
  description: The recipe, with C(hardware) being the name of the overrides that were merged, or V(any).
  type: list
  elements: dict
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.gpu_inventory import inventory_gpus, pick_gpus
from ansible_collections.gpuhost.vllm.plugins.module_utils.recipes import (
    check_recipe,
    find_recipe,
    for_hardware,
    hardware_of,
)

OWN_RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def read_recipes(folder: Path) -> Iterator[dict[str, Any]]:
    """The checked recipes of a folder, by file name; raises VllmHostError ``bad_recipe``."""
    for path in sorted(folder.glob("*.y*ml")):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise VllmHostError("bad_recipe", f"{path}: cannot be read: {error}", file=str(path)) from error
        yield check_recipe(content, str(path))


def recipe_of(model: str, gpus: Any = (), folders: Iterable[str] = (), indices: Iterable[int] = ()) -> dict[str, Any]:
    """The recipe of ``model`` for those ``gpus`` with ``indices``, the user's ``folders`` first; empty without one; raises VllmHostError."""
    hardware = hardware_of([gpu.name for gpu in pick_gpus(inventory_gpus(gpus), list(indices))])
    for folder in [*map(Path, folders), OWN_RECIPES]:
        recipe = find_recipe(model, read_recipes(folder))
        if recipe:
            return for_hardware(recipe, hardware, model)
    return {}


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: Any = None, **kwargs: Any) -> list[dict[str, Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        gpus, folders, indices = (self.get_option(name) for name in ("gpus", "folders", "indices"))
        try:
            return [recipe_of(str(term), gpus, folders, indices) for term in terms]
        except VllmHostError as error:
            if self.get_option("failure") == "return":
                return [
                    {"failure": {"code": error.code, "message": error.message, "details": error.details}}
                    for _term in terms
                ]
            raise AnsibleLookupError(error.message) from error
