# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read vLLM's options (snake_case, as in a configuration file) with types checked and errors that name the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional

from ..errors import VllmHostError

_SUFFIXES = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}

#: No option is a larger number (bytes of memory are the largest).
_LARGEST = 1 << 62


def _bad(key: str, found: Any, expected: str) -> VllmHostError:
    return VllmHostError(
        "bad_engine_args",
        f"engine_args: {key} must be {expected}, not {found!r}.",
        key=key,
        found=repr(found)[:200],
        expected=expected,
    )


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
        self._values = {str(key).replace("-", "_"): value for key, value in values.items()}

    def get(self, key: str) -> Any:
        """The raw value, None if not given."""
        return self._values.get(key)

    def integer(self, key: str, default: Optional[int] = None, minimum: int = 1) -> Optional[int]:
        """A whole number; also "32k" as on vLLM's command line."""
        value = self._values.get(key)
        if value is None:
            return default
        if isinstance(value, str):
            text = value.strip()
            factor = _SUFFIXES.get(text[-1:], 1)
            try:
                value = float(text[:-1]) * factor if factor > 1 else int(text)
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
            except ValueError as error:
                raise _bad(key, value, "a mapping or its JSON text") from error
        if not isinstance(value, Mapping):
            raise _bad(key, value, "a mapping or its JSON text")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words (also one word, or several separated by commas)."""
        value = self._values.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            value = [part for part in value.split(",") if part]
        if not isinstance(value, (list, tuple)):
            raise _bad(key, value, "a list")
        return tuple(str(part) for part in value)
