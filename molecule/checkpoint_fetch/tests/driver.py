"""Drive the role again, and the Hub of this scenario, from the tests."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTROL = "http://127.0.0.1:18096"
SCENARIO = Path(__file__).parents[1]
REPOSITORY = "demo/smollm2-135m"


class HubControl:
    """The scenario's Hub: what goes wrong, who may come in, and what it was asked."""

    def faults(self, *rules: dict[str, Any]) -> None:
        self._call("PUT", "/faults", list(rules))

    def forget(self) -> None:
        self._call("DELETE", "/seen")

    def seen(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/seen"))

    def _call(self, method: str, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        with urllib.request.urlopen(urllib.request.Request(CONTROL + path, body, method=method), timeout=10) as answer:
            return json.load(answer)


Converge = Callable[..., "subprocess.Popen[str]"]
