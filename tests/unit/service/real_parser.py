"""The argument parser of the real vLLM, kept running: one import, then one JSON line per configuration file.

Run by vLLM's interpreter; ``RealParser`` is the other end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBE = Path(__file__).resolve().parents[3] / "plugins/module_utils/service"


class RealParser:
    """Use as a context manager. ``options`` as parser_probe describes them."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._config = folder / "config.yaml"
        environment = {
            "HOME": str(folder),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [str(python), str(Path(__file__).resolve()), str(self._config)]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.options: dict[str, dict[str, Any]] = self._answer()

    def __enter__(self) -> RealParser:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def parse(self, text: str) -> dict[str, Any]:
        """The namespace that ``vllm serve --config`` makes of a file with ``text``, or ``{"error": …}``."""
        self._config.write_text(text, encoding="ascii")
        assert self._process.stdin
        self._process.stdin.write("parse\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._answer()
        return answer

    def _answer(self) -> Any:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise AssertionError("the real parser ended")


def _serve(path: str) -> None:
    sys.path.insert(0, str(PROBE))
    import parser_probe

    class Unvalidated:
        """The property is about values, not about whether they make sense together."""

        def validate(self, _namespace: object) -> None:
            pass

    top, serve, _command = parser_probe.serve_parser()
    print("ANSWER " + json.dumps(parser_probe.describe_options(serve)), flush=True)
    for _line in sys.stdin:
        parsed, error = parser_probe.parse(top, Unvalidated(), path)
        print("ANSWER " + json.dumps({"error": error} if error else parsed, default=repr), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
