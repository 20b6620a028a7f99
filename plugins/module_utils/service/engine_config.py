# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engine arguments as the YAML file that ``vllm serve --config`` reads, so that every value arrives exactly.

vLLM turns the file into a command line and parses that (read in 0.32.0: utils/argparse_utils.py, ``load_config_file``). What gets lost on that
way, and what is written instead:

======================= ============================================== ==========================================
value                   what vLLM makes of the plain YAML              written as
======================= ============================================== ==========================================
``false`` of a switch   nothing: it looks for ``--no-x`` in the top    ``no-x: true``
                        parser, which does not have it
``-1``, ``-x`` (text)   ``--x -1``: taken for another option           ``"x=-1": true``, that is ``--x=-1``
list for a JSON option  ``--x a b``: one value was expected            ``x: '["a", "b"]'``
list, option repeated   ``--x a b``                                    ``"x=a": true``, ``"x=b": true``
dict                    JSON, with ``str`` for what JSON has not       ``x: '{...}'``
``null``                the text ``None``                              left out: vLLM's default
======================= ============================================== ==========================================

The file is ASCII (other characters as escapes): vLLM opens it in the encoding of the locale.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from ..errors import VllmHostError
from .yaml_library import import_yaml

Options = Mapping[str, Mapping[str, Any]]
HEADER = "# Written by Ansible (gpuhost.vllm) for `vllm serve --config` of release {release}; the engine arguments are in the inventory.\n"


def option_name(key: str) -> str:
    """``max_model_len`` as the option ``max-model-len``."""
    return key.lstrip("-").replace("_", "-")


def unknown_arguments(engine_args: Mapping[str, Any], options: Options) -> list[dict[str, Optional[str]]]:
    """Arguments that the release does not know, each as ``{argument, nearest}``; ``nearest`` is None if nothing is alike."""
    unknown: list[dict[str, Optional[str]]] = []
    names = [name for name, option in options.items() if name != "help"]
    for key in engine_args:
        if option_name(key) not in options:
            nearest = difflib.get_close_matches(option_name(key), names, n=1, cutoff=0.5)
            unknown.append({"argument": key, "nearest": nearest[0].replace("-", "_") if nearest else None})
    return unknown


def check_known(engine_args: Mapping[str, Any], options: Options, version: str) -> None:
    """Raise ``engine_argument_unknown`` naming every unknown argument and the nearest known one."""
    unknown = unknown_arguments(engine_args, options)
    if unknown:
        told = [
            f"'{one['argument']}'" + (f" (did you mean '{one['nearest']}'?)" if one["nearest"] else "")
            for one in unknown
        ]
        raise VllmHostError(
            "engine_argument_unknown",
            f"vLLM {version} has no engine argument {', '.join(told)}. Correct vllm_engine_args; the service was not touched.",
            unknown=unknown,
            version=version,
        )


def config_entries(engine_args: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """The entries of the file. Values that no command line can carry raise ``engine_argument_invalid``."""
    entries: dict[str, Any] = {}
    for key in sorted(engine_args):
        value = engine_args[key]
        if value is not None:
            entries.update(_entries_of(option_name(key), value, str(options[option_name(key)]["kind"])))
    return entries


def render_config(engine_args: Mapping[str, Any], options: Options, release: str) -> str:
    """The file's text. It names the release, so another release makes another text, which is checked anew."""
    entries = config_entries(engine_args, options)
    # A long string stays on one line: a folded one would be right as well, but not readable.
    text = import_yaml().safe_dump(entries, default_flow_style=False, allow_unicode=False, sort_keys=False, width=2**20)
    return HEADER.format(release=release) + str(text)


def _entries_of(name: str, value: Any, kind: str) -> dict[str, Any]:
    if isinstance(value, bool) and kind in ("switch", "flag", "optional"):
        if value:
            return {name: True}
        # A flag is false unless it is given, and so is an optional one.
        return {f"no-{name}": True} if kind == "switch" else {}
    if kind in ("switch", "flag"):
        raise _invalid(name, f"takes true or false, not {value!r}")
    if kind == "repeated":
        texts = [_text(name, item) for item in _as_list(value)]
        if len(set(texts)) < len(texts):
            raise _invalid(name, "cannot be given the same value twice")
        return {f"{name}={text}": True for text in texts}
    if kind == "list":
        items = [_text(name, item) for item in _as_list(value)]
        if len(items) == 1 and items[0].startswith("-"):
            return {f"{name}={items[0]}": True}
        if not items:
            raise _invalid(name, "cannot be given an empty list; leave it out")
        dashed = [item for item in items if item.startswith("-")]
        if dashed:
            raise _invalid(name, f"cannot carry {dashed[0]!r} among several values: it would be taken for an option")
        return {name: items}
    text = _text(name, value)
    return {f"{name}={text}": True} if text.startswith("-") else {name: _plain(value, text)}


def _as_list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _text(name: str, value: Any) -> str:
    """One value as the text of a command line argument."""
    if isinstance(value, (dict, list, tuple)):
        try:
            return json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise _invalid(name, f"cannot be written as JSON: {error}") from error
    if isinstance(value, bool):
        # For options that take a text among other things; the plain words of JSON, YAML and vLLM's own parsing differ only in case.
        return "true" if value else "false"
    text = str(value)
    if text == "--":
        raise _invalid(name, "cannot be '--': Python's argument parser takes that away (read in 3.11 to 3.13)")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid(name, f"holds half a character: {error}") from error
    return text


def _plain(value: Any, text: str) -> Any:
    """Numbers stay numbers for the reader's sake, as long as they come back from YAML as the same text; ``1e-05`` would not."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return text
    yaml = import_yaml()
    return value if str(yaml.safe_load(yaml.safe_dump(value))) == text else text


def _invalid(name: str, why: str) -> VllmHostError:
    return VllmHostError(
        "engine_argument_invalid",
        f"The engine argument '{name.replace('-', '_')}' {why}. Correct vllm_engine_args; the service was not touched.",
        argument=name.replace("-", "_"),
    )
