# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read vLLM's options (snake_case, as in a configuration file) with types checked and errors that name the key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..errors import VllmHostError

#: vLLM's human_readable_int (utils/argparse_utils.py): decimals only before a decimal suffix.
_READABLE = re.compile(r"(\d+(?:\.\d+)?)([kmgt])|(\d+)([KMGT])")

#: No option is a larger number (bytes of memory are the largest).
_LARGEST = 1 << 62


def means_longest(value: Any) -> bool:
    """Whether a max_model_len asks for the largest length that fits: -1 or auto, in any spelling that vLLM takes."""
    return str(value).strip().lower() in ("-1", "auto")


def with_underscores(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same options in the spelling of vLLM's Python: people write dashes as well, as on its command line."""
    return {str(name).replace("-", "_"): value for name, value in values.items()}


def option(key: str) -> str:
    """An option as messages name it: as it is written in an inventory, where C(vllm_engine_args) holds it."""
    return f"vllm_engine_args.{key}"


def variable(name: str) -> str:
    """A variable of the server's environment as messages name it."""
    return f"vllm_env.{name}"


def _bad(key: str, found: Any, expected: str) -> VllmHostError:
    return VllmHostError(
        "bad_engine_args",
        f"{option(key) if key != 'engine_args' else 'vllm_engine_args'} must be {expected}, not {_short(found)}.",
        key=key,
        found=_short(found),
        expected=expected,
    )


def _short(found: Any) -> str:
    """What was found, in one line of a message."""
    text = repr(found)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _readable(text: str) -> int:
    match = _READABLE.fullmatch(text)
    if match is None:
        return int(text)
    decimal, power, binary, power_of_two = match.groups()
    if decimal:
        return int(float(decimal) * 1000 ** ("kmgt".index(power) + 1))
    return int(binary) * 1024 ** ("KMGT".index(power_of_two) + 1)


class EngineArgs:
    """Typed access to a dict of options; hyphens and underscores mean the same.

    Raises:
        VllmHostError: ``bad_engine_args`` from every method, for a value of the wrong type.
    """

    def __init__(self, values: Optional[Mapping[str, Any]]) -> None:
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            raise _bad("engine_args", values, "a mapping of vLLM's options")
        self._values = with_underscores(values)

    def get(self, key: str) -> Any:
        """The raw value, None if not given."""
        return self._values.get(key)

    def integer(self, key: str, default: Optional[int] = None, minimum: int = 1) -> Optional[int]:
        """A whole number; also "32k" as on vLLM's command line."""
        value = self._values.get(key)
        if value is None:
            return default
        if isinstance(value, str):
            try:
                value = _readable(value.strip())
            except ValueError as error:
                raise _bad(key, value, "a whole number") from error
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not -_LARGEST < value < _LARGEST
            or value % 1
        ):
            raise _bad(key, value, "a whole number")
        if value < minimum:
            raise _bad(key, value, f"at least {minimum}")
        return int(value)

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number between two bounds."""
        value = self._values.get(key)
        if value is None:
            return default
        try:
            found = float(value)
        except (TypeError, ValueError) as error:
            raise _bad(key, value, "a number") from error
        if isinstance(value, bool) or not low <= found <= high:
            raise _bad(key, value, f"between {low} and {high}")
        return found

    def flag(self, key: str) -> Optional[bool]:
        """A switch: true, false or None if not given (also by its ``no_`` form)."""
        value = self._values.get(key)
        negated = self._values.get(f"no_{key}")
        if value is None and negated is not None:
            value, key = negated, f"no_{key}"
        if value is None:
            return None
        if isinstance(value, str) and value.strip().lower() in ("true", "false", "yes", "no", "1", "0", ""):
            value = value.strip().lower() in ("true", "yes", "1", "")
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise _bad(key, value, "true or false")
        return not value if key.startswith("no_") else bool(value)

    def text(self, key: str, default: str) -> str:
        """A word."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise _bad(key, value, "a word")
        return value

    def mapping(self, key: str) -> Optional[Mapping[str, Any]]:
        """A dict, or the same as JSON text."""
        value = self._values.get(key)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise _bad(key, value, "a mapping or its JSON text") from error
        if not isinstance(value, Mapping):
            raise _bad(key, value, "a mapping or its JSON text")
        return value

    def compilation(self) -> Mapping[str, Any]:
        """``compilation_config``, which may also be the number of a level."""
        value = self._values.get("compilation_config")
        if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()):
            return {}
        return self.mapping("compilation_config") or {}

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words (also one word, or several separated by commas)."""
        return tuple(str(part) for part in self._list(key))

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers (also one, several separated by commas, or JSON text)."""
        return tuple(EngineArgs({key: part}).integer(key) or 0 for part in self._list(key))

    def _list(self, key: str) -> Sequence[Any]:
        value = self._values.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            parts = (part.strip(" \"'") for part in value.strip().removeprefix("[").removesuffix("]").split(","))
            return [part for part in parts if part]
        if isinstance(value, int) and not isinstance(value, bool):
            return [value]
        if not isinstance(value, (list, tuple)):
            raise _bad(key, value, "a list")
        return value
