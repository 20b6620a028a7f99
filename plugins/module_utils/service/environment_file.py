# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's EnvironmentFile: every value in double quotes, with the escapes that systemd undoes.

Inside double quotes a backslash is taken away only before ``"``, ``\\``, `````, ``$`` and a newline, and a newline is kept (systemd.exec(5),
EnvironmentFile; the same in systemd 249 to 257). systemd drops a variable with other control characters, so those are refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import VllmHostError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Newline and tab pass; systemd ignores variables with any other control character (env_value_is_valid).
UNUSABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|[\ud800-\udfff]")
_ASSIGNMENT = re.compile(r'^([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"$', re.MULTILINE | re.DOTALL)


def render_environment_file(environment: Mapping[str, Any]) -> str:
    """Text of the file, sorted by name. ``environment_invalid`` names the variable, never its value."""
    return "".join(f'{name}="{_escaped(name, environment[name])}"\n' for name in sorted(environment))


def parse_environment_file(text: str) -> dict[str, str]:
    """The variables of a file that :func:`render_environment_file` wrote."""
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in _ASSIGNMENT.findall(text)}


def environment_text(value: Any) -> str:
    """A value as an environment carries it: booleans as 1 and 0, as the VLLM_ variables expect them."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _escaped(name: str, value: Any) -> str:
    if not NAME.fullmatch(name):
        raise VllmHostError(
            "environment_invalid", f"'{name}' is no name of an environment variable: correct vllm_env.", name=name
        )
    if value is None or isinstance(value, (dict, list)):
        raise VllmHostError(
            "environment_invalid", f"The environment variable {name} is no text: correct vllm_env.", name=name
        )
    text = environment_text(value)
    if UNUSABLE.search(text):
        raise VllmHostError(
            "environment_invalid",
            f"The environment variable {name} contains a control character, which systemd does not pass on: correct vllm_env.",
            name=name,
        )
    return re.sub(r'(["\\`$])', r"\\\1", text)
