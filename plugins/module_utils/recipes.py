# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes: what a model needs to be served, as data; checked, found by name, and made to fit the GPUs at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import VllmHostError
from .memory.releases import parse_version

# Hardware for which a recipe may differ: part of the product's name and the number of GPUs.
HARDWARE = {
    "rtx_pro_6000_8x": ("RTX PRO 6000", 8),
    "h200_8x": ("H200", 8),
}
_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "repository": (str,),
    "revision": (str,),
    "minimum_vllm_version": (str,),
    "trust_remote_code": (bool,),
    "why_remote_code": (str,),
    "engine_args": (dict,),
    "env": (dict,),
    "hardware": (dict,),
    "sources": (list,),
    "unchecked": (list,),
}
_REQUIRED = ("name", "repository", "minimum_vllm_version", "trust_remote_code", "sources", "unchecked")
_RELEASE = r"\d{1,9}(\.\d{1,9})+"
_OVERRIDES = ("repository", "revision", "minimum_vllm_version", "engine_args", "env")


def check_recipe(recipe: Any, where: str) -> dict[str, Any]:
    """``recipe`` itself if it is one.

    Args:
        recipe: what a YAML file holds.
        where: the file, for messages.

    Raises:
        VllmHostError: ``bad_recipe``, naming file, key and remedy.
    """
    if not isinstance(recipe, Mapping):
        raise _bad(where, "", "is not a mapping of keys; see recipes/ of the collection for examples")
    for key in _REQUIRED:
        if key not in recipe:
            raise _bad(where, key, "is missing")
    for key, value in recipe.items():
        if key not in _FIELDS:
            raise _bad(where, key, f"is not known; known are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]):
            raise _bad(where, key, f"should be a {_FIELDS[key][0].__name__}")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", recipe["repository"]):
        raise _bad(where, "repository", "should be organization/name")
    if not re.fullmatch(_RELEASE, recipe["minimum_vllm_version"]):
        raise _bad(where, "minimum_vllm_version", 'should be a release such as "0.20.0", in quotes')
    if recipe["trust_remote_code"] and not recipe.get("why_remote_code"):
        raise _bad(where, "why_remote_code", "is missing: say what the repository's code is needed for")
    for hardware, override in recipe.get("hardware", {}).items():
        if hardware not in HARDWARE:
            raise _bad(where, f"hardware.{hardware}", f"is not known; known are {', '.join(HARDWARE)}")
        for key in override:
            if key not in _OVERRIDES:
                raise _bad(where, f"hardware.{hardware}.{key}", f"cannot be overridden; {', '.join(_OVERRIDES)} can")
    return dict(recipe)


def find_recipe(model: str, recipes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The first recipe whose name or repository (in any hardware's form) is ``model``; empty if there is none."""
    wanted = model.lower()
    for recipe in recipes:
        repositories = [recipe["repository"]] + [
            override["repository"] for override in recipe.get("hardware", {}).values() if "repository" in override
        ]
        if wanted in [recipe["name"].lower(), *(repository.lower() for repository in repositories)]:
            return dict(recipe)
    return {}


def hardware_of(gpus: Sequence[str]) -> str:
    """The key of HARDWARE for product names of GPUs, one entry a GPU; ``any`` if none fits."""
    for key, (product, count) in HARDWARE.items():
        if len(gpus) == count and all(product in name for name in gpus):
            return key
    return "any"


def for_hardware(recipe: Mapping[str, Any], hardware: str, model: str = "") -> dict[str, Any]:
    """``recipe`` with the overrides of ``hardware`` merged in.

    Args:
        recipe: a checked recipe.
        hardware: a key of HARDWARE, or ``any``.
        model: what the user asked for: a repository that is named outright is kept, a recipe's name follows the hardware.
    """
    override = recipe.get("hardware", {}).get(hardware, {})
    merged = {key: value for key, value in recipe.items() if key != "hardware"}
    for key, value in override.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, Mapping) else value
    if "/" in model:
        merged["repository"] = model
    if merged.get("trust_remote_code"):
        merged["engine_args"] = {"trust_remote_code": True, **merged.get("engine_args", {})}
    return {**merged, "hardware": hardware}


def require_recipe(recipe: Mapping[str, Any]) -> None:
    """Nothing if ``recipe`` was read; the lookup hands on a failure under the key ``failure``, to be told where it can be told well.

    Raises:
        VllmHostError: that failure.
    """
    failure = recipe.get("failure")
    if isinstance(failure, Mapping):
        details = failure.get("details")
        raise VllmHostError(
            str(failure.get("code")), str(failure.get("message")), **(details if isinstance(details, Mapping) else {})
        )


def require_release(recipe: Mapping[str, Any], version: str) -> None:
    """Nothing if ``version`` is new enough for ``recipe``.

    Raises:
        VllmHostError: ``vllm_too_old``; ``bad_value`` when ``version`` is no release, ``bad_recipe`` when the recipe's is none.
    """
    minimum = str(recipe.get("minimum_vllm_version") or "0.0")
    name = str(recipe.get("name") or "of this model")
    if not re.fullmatch(_RELEASE, minimum):
        raise _bad(f"the recipe {name}", "minimum_vllm_version", 'should be a release such as "0.20.0", in quotes')
    if parse_version(version) < parse_version(minimum):
        raise VllmHostError(
            "vllm_too_old",
            f"The recipe {name} wants vLLM {minimum} or newer, and vllm_version is {version}."
            f" Set vllm_version: '{minimum}' or newer, or plan_recipe: {{}} to go without the recipe.",
            recipe=name,
            minimum=minimum,
            version=version,
        )


def _bad(where: str, key: str, what: str) -> VllmHostError:
    return VllmHostError("bad_recipe", f"{where}: {key + ' ' if key else ''}{what}.", file=where, key=key)
