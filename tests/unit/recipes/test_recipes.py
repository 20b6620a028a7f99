"""Recipes: the data itself, its schema, and what it becomes on given GPUs."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError
from ansible_collections.gpuhost.vllm.plugins.lookup.recipe import OWN_RECIPES, LookupModule, read_recipes, recipe_of
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.recipes import (
    check_recipe,
    find_recipe,
    for_hardware,
    hardware_of,
    require_recipe,
    require_release,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.engine_config import check_known, render_config

from tests.host import paths
from tests.unit.service.real_parser import RealParser

RECIPES = list(read_recipes(OWN_RECIPES))
KIMI = find_recipe("kimi-k2.5-nvfp4", RECIPES)
PROMISED = {
    "deepseek-v3.2",
    "glm-5-nvfp4",
    "gpt-oss-120b",
    "kimi-k2.5",
    "kimi-k2.5-nvfp4",
    "kimi-k2.6",
    "llama-3.3-70b",
    "minimax-m2.5",
    "qwen3-30b-a3b",
    "qwen3.5-397b-a17b",
    "smollm2",
}


def _last_line(python: Path, program: str) -> dict:
    finished = subprocess.run([python, "-"], input=program, check=True, capture_output=True, text=True)
    return json.loads(finished.stdout.splitlines()[-1])


def test_the_promised_models_have_recipes_under_their_own_file_names():
    assert {recipe["name"] for recipe in RECIPES} == PROMISED
    assert {path.stem for path in OWN_RECIPES.glob("*.yml")} == PROMISED


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["name"])
def test_every_recipe_says_where_it_is_from(recipe):
    assert recipe["sources"]


@pytest.fixture(scope="module")
def vllm() -> Path:
    python = paths.VLLM_VENV / "bin/python"
    if not python.exists():
        pytest.fail("the CPU build of vLLM is not there: make parts")
    return python


def _for_every_hardware():
    users = list(read_recipes(paths.CHECKOUT / "inventories/recipes"))
    for recipe in [*RECIPES, *users]:
        for hardware in ["any", *recipe.get("hardware", {})]:
            yield recipe["name"], hardware, for_hardware(recipe, hardware).get("engine_args", {})


@pytest.mark.slow
def test_every_parser_is_known_to_the_installed_vllm(vllm: Path):
    program = """
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import TokenizerRegistry
from vllm.tool_parsers import ToolParserManager
import json
print()
print(json.dumps({
    "tool_call_parser": ToolParserManager.list_registered(),
    "reasoning_parser": ReasoningParserManager.list_registered(),
    "tokenizer_mode": ["auto", *TokenizerRegistry.tokenizers],
}))
"""
    known = _last_line(vllm, program)
    for name, hardware, args in _for_every_hardware():
        for kind, names in known.items():
            assert args.get(kind) in [None, *names], (name, hardware)


@pytest.mark.slow
def test_every_argument_is_taken_by_the_installed_vllm_as_it_is_written(vllm: Path, tmp_path: Path):
    """Through the file that the role serve writes, read by vLLM's own parser."""
    with RealParser(vllm, tmp_path) as parser:
        for name, hardware, args in _for_every_hardware():
            check_known(args, parser.options, "0.32.0")
            parsed = parser.parse(render_config({"model": "x", **args}, parser.options, "0.32.0"))
            assert "error" not in parsed, (name, hardware, parsed)
            assert {key: parsed[key] for key in args if not isinstance(args[key], dict)} == {
                key: value for key, value in args.items() if not isinstance(value, dict)
            }, (name, hardware)
        with pytest.raises(VllmHostError, match="tool_call_parser"):
            check_known({"tool_call_parsr": "kimi_k2"}, parser.options, "0.32.0")


def test_a_recipe_is_found_by_its_name_and_by_any_of_its_repositories():
    assert find_recipe("nvidia/kimi-k2.5-nvfp4", RECIPES) == KIMI
    assert find_recipe("nvidia/Qwen3.5-397B-A17B-NVFP4", RECIPES)["name"] == "qwen3.5-397b-a17b"
    assert find_recipe("somebody/else", RECIPES) == {}


@pytest.mark.parametrize(
    ("gpus", "hardware"),
    [
        (["NVIDIA RTX PRO 6000 Blackwell Server Edition"] * 8, "rtx_pro_6000_8x"),
        (["NVIDIA H200"] * 8, "h200_8x"),
        (["NVIDIA H200"] * 4, "any"),
        (["NVIDIA H200"] * 7 + ["NVIDIA H100"], "any"),
        ([], "any"),
    ],
)
def test_hardware_is_a_product_and_a_number(gpus, hardware):
    assert hardware_of(gpus) == hardware


def test_overrides_of_the_hardware_are_merged_and_the_recipe_stays_as_it_was():
    before = copy.deepcopy(KIMI)
    merged = for_hardware(KIMI, "rtx_pro_6000_8x")
    assert merged["engine_args"]["tensor_parallel_size"] == 8
    assert merged["engine_args"]["tool_call_parser"] == "kimi_k2"
    assert merged["engine_args"]["trust_remote_code"] is True
    assert merged["hardware"] == "rtx_pro_6000_8x"
    assert before == KIMI


def test_a_recipes_name_follows_the_hardware_and_a_repository_is_kept():
    qwen = find_recipe("qwen3.5-397b-a17b", RECIPES)
    assert for_hardware(qwen, "rtx_pro_6000_8x", "qwen3.5-397b-a17b")["repository"] == "nvidia/Qwen3.5-397B-A17B-NVFP4"
    assert for_hardware(qwen, "rtx_pro_6000_8x", "Qwen/Qwen3.5-397B-A17B")["repository"] == "Qwen/Qwen3.5-397B-A17B"


def test_an_old_release_is_refused_with_the_release_to_take():
    require_release(KIMI, "0.20.0")
    require_release(KIMI, "0.33.1+cu130")
    with pytest.raises(VllmHostError, match="wants vLLM 0.20.0 or newer, and vllm_version is 0.19.1"):
        require_release(KIMI, "0.19.1")


def _spoiled(**changes):
    recipe = {**copy.deepcopy(KIMI), **changes}
    return {key: value for key, value in recipe.items() if value is not None}


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ([], "r.yml: is not a mapping"),
        (_spoiled(repository=None), "r.yml: repository is missing"),
        (_spoiled(repository="kimi"), "repository should be organization/name"),
        (_spoiled(engine_arg={}), "engine_arg is not known; known are name, repository"),
        (_spoiled(engine_args=[]), "engine_args should be a dict"),
        (_spoiled(minimum_vllm_version=0.2), "minimum_vllm_version should be a str"),
        (_spoiled(minimum_vllm_version="latest"), "in quotes"),
        (_spoiled(why_remote_code=None), "why_remote_code is missing"),
        (_spoiled(hardware={"tpu": {}}), "hardware.tpu is not known; known are rtx_pro_6000_8x, h200_8x"),
        (_spoiled(hardware={"h200_8x": {"name": "x"}}), "hardware.h200_8x.name cannot be overridden"),
    ],
)
def test_a_bad_recipe_is_refused_naming_file_key_and_remedy(recipe, message):
    with pytest.raises(VllmHostError, match=message):
        check_recipe(recipe, "r.yml")


def test_the_users_own_recipe_comes_first(tmp_path: Path):
    text = (
        (OWN_RECIPES / "kimi-k2.5-nvfp4.yml").read_text().replace("reasoning_parser: kimi_k2", "reasoning_parser: mine")
    )
    (tmp_path / "kimi.yml").write_text(text)
    mine = recipe_of("kimi-k2.5-nvfp4", gpus="8x96GB", folders=[str(tmp_path)])
    ours = recipe_of("kimi-k2.5-nvfp4", gpus="8x96GB")
    assert (mine["engine_args"]["reasoning_parser"], ours["engine_args"]["reasoning_parser"]) == ("mine", "kimi_k2")


def test_a_model_without_a_recipe_has_an_empty_one(tmp_path: Path):
    assert recipe_of("somebody/else", folders=[str(tmp_path / "absent")]) == {}


@pytest.mark.parametrize("text", ["- a\n- b\n", "name: [", "name: x\n"])
def test_a_bad_file_of_the_users_names_itself(tmp_path: Path, text: str):
    (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(VllmHostError, match="mine.yml"):
        recipe_of("kimi-k2.5", folders=[str(tmp_path)])


class Lookup(LookupModule):
    """Without Ansible's configuration, which a loaded plugin would read its defaults from."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        self.given = {"gpus": [], "indices": [], "folders": [], "failure": "raise", **direct}

    def get_option(self, option, hostvars=None):
        return self.given[option]


def test_the_lookup_hands_a_failure_on_when_it_is_asked_to():
    """A lookup that fails is told with a preamble of Ansible's; the module tells it in one line, with its code."""
    lookup = Lookup()
    for options, code in (({"gpus": "8x96"}, "bad_gpus"), ({"gpus": "2xH200", "indices": [2]}, "bad_gpus")):
        (found,) = lookup.run(["kimi-k2.5"], **options, failure="return")
        assert found["failure"]["code"] == code
        with pytest.raises(VllmHostError) as caught:
            require_recipe(found)
        assert caught.value.code == code and caught.value.message == found["failure"]["message"]
        with pytest.raises(AnsibleLookupError):
            lookup.run(["kimi-k2.5"], **options)
    require_recipe({})


def test_an_instance_on_some_of_the_gpus_gets_no_options_for_all():
    assert recipe_of("kimi-k2.5-nvfp4", gpus="8x96GB")["hardware"] == "rtx_pro_6000_8x"
    assert recipe_of("kimi-k2.5-nvfp4", gpus="8x96GB", indices=[0])["hardware"] == "any"
