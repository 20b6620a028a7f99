# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A script for the interpreter of an installed vLLM: it shows the options of ``vllm serve`` and parses a configuration file with them.

It is sent to that interpreter on standard input, so it must stand alone: only the standard library and vLLM. ``vllm.entrypoints.cli.serve``
offers ``cmd_init`` since 0.8 and keeps hiding where the parser lives, which moved several times. The last line on standard output is JSON::

    {"options": {"max-model-len": {"kind": "value", "dest": "max_model_len", "choices": null}, ...},
     "parsed": {"max_model_len": 4096, ...} or null,
     "error": "argument --dtype: invalid choice: ..." or null}
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
from typing import Any, Optional


def serve_parser() -> tuple[Any, Any, Any]:
    """vLLM's top parser, its ``serve`` parser and the command, wired as ``vllm`` itself does."""
    for home in ("vllm.utils.argparse_utils", "vllm.utils"):
        with contextlib.suppress(ImportError, AttributeError):
            top = importlib.import_module(home).FlexibleArgumentParser(prog="vllm")
            break
    else:
        raise SystemExit("this vLLM has no FlexibleArgumentParser where any known release keeps it")
    subparsers = top.add_subparsers(dest="subparser")
    command = importlib.import_module("vllm.entrypoints.cli.serve").cmd_init()[0]
    return top, command.subparser_init(subparsers), command


def kind_of(action: argparse.Action) -> str:
    """How an option takes its value.

    ``switch``: --x and --no-x; ``flag``: --x alone; ``optional``: --x or --x VALUE; ``list``: --x A B; ``repeated``: --x A --x B;
    ``value``: --x VALUE.
    """
    if any(name.startswith("--no-") for name in action.option_strings) and action.nargs == 0:
        return "switch"
    if action.nargs == 0:
        return "flag"
    if action.nargs == "?":
        return "optional"
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        return "list"
    if type(action).__name__ == "_AppendAction":
        return "repeated"
    return "value"


def describe_options(parser: Any) -> dict[str, dict[str, Any]]:
    """Every long option by its name without the dashes; the ``--no-`` halves of switches are left out."""
    options: dict[str, dict[str, Any]] = {}
    for action in parser._actions:
        for name in action.option_strings:
            kind = kind_of(action)
            if name.startswith("--") and not (kind == "switch" and name.startswith("--no-")):
                choices = [str(choice) for choice in action.choices] if action.choices else None
                options[name[2:]] = {"kind": kind, "dest": action.dest, "choices": choices}
    return options


def parse(top: Any, command: Any, path: str) -> tuple[Optional[dict[str, Any]], Optional[str]]:
    """What ``vllm serve --config PATH`` understands, or why it refuses."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            namespace = top.parse_args(["serve", "--config", path])
            command.validate(namespace)
    except SystemExit:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        return None, lines[-1].split("error: ", 1)[-1] if lines else "refused without a word"
    except Exception as error:  # vLLM's validation raises TypeError, ValueError and its own
        return None, f"{type(error).__name__}: {error}"
    return {key: value for key, value in vars(namespace).items() if key != "dispatch_function"}, None


def main() -> None:
    # vLLM may print while it is imported: only the last line counts.
    answer: dict[str, Any] = {"parsed": None, "error": None}
    top, serve, command = serve_parser()
    answer["options"] = describe_options(serve)
    if len(sys.argv) > 1:
        answer["parsed"], answer["error"] = parse(top, command, sys.argv[1])
    sys.stdout.write(f"\n{json.dumps(answer, default=repr)}\n")


if __name__ == "__main__":
    main()
