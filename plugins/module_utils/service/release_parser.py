# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask an installed release which options it has and what it makes of a configuration file, in a process of its own.

Importing vLLM takes ten seconds and more, so what a release answers about its options is kept in a file: a release never changes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ..errors import VllmHostError
from . import parser_probe

TIMEOUT_S = 300
# The probe must leave the release as it is and reach nothing.
QUIET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "LANG": "C.UTF-8",
}


def options_cache(caches: Path, release_id: str) -> Path:
    """Where the options of a release are kept below the folder of all caches."""
    return caches / ".options" / f"{release_id}.json"


def known_options(python: str, cache: Path, user: Optional[str] = None) -> dict[str, dict[str, Any]]:
    """Options of ``vllm serve`` in the release of ``python``, see ``parser_probe``; from ``cache`` if they are there."""
    try:
        options: dict[str, dict[str, Any]] = json.loads(cache.read_text())
        return options
    except (OSError, ValueError):
        options = ask(python, None, user)["options"]
    cache.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    aside = cache.with_suffix(".new")
    aside.write_text(json.dumps(options, indent=1, sort_keys=True))
    aside.replace(cache)
    return options


def parse_config(
    python: str, text: str, user: Optional[str] = None, env: Optional[Mapping[str, str]] = None
) -> dict[str, Any]:
    """What ``vllm serve --config`` of that release makes of a file with ``text``: its arguments by their Python names.

    Raises ``engine_argument_invalid`` with the release's own words if it refuses.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-config-") as folder:
        path = Path(folder, "config.yaml")
        path.write_text(text)
        path.chmod(0o644)
        Path(folder).chmod(0o755)
        answer = ask(python, path, user, env)
    if answer["error"]:
        raise VllmHostError(
            "engine_argument_invalid",
            f"The installed vLLM refuses the engine arguments: {answer['error']}. Correct vllm_engine_args; the service was not touched.",
            error=answer["error"],
        )
    parsed: dict[str, Any] = answer["parsed"]
    return parsed


def ask(
    python: str, config: Optional[Path], user: Optional[str] = None, env: Optional[Mapping[str, str]] = None
) -> dict[str, Any]:
    """Run the probe in a release, as ``user`` if given; the answer is described in ``parser_probe``."""
    with tempfile.TemporaryDirectory(prefix="vllm-home-") as home:
        Path(home).chmod(0o1777)
        command = [python, "-", *([str(config)] if config else [])]
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": home,
            "VLLM_CACHE_ROOT": home,
            **QUIET,
            **(env or {}),
        }
        try:
            done = subprocess.run(
                command,
                input=_source(),
                env=environment,
                cwd=home,
                user=user,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VllmHostError(
                "release_unusable",
                f"The release's {python} gave no answer: {error}. Run the role vllm_install.",
                python=python,
            ) from error
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-8:])
        raise VllmHostError(
            "release_unusable",
            f"The release of {python} cannot be loaded, so the service was not touched. It said:\n{last}",
            python=python,
            output=last,
        )
    answer: dict[str, Any] = json.loads(done.stdout.rstrip().splitlines()[-1])
    return answer


def _source() -> str:
    """The probe's text, also from inside the zip that Ansible ships a module in."""
    spec = importlib.util.find_spec(parser_probe.__name__)
    source = spec.loader.get_source(parser_probe.__name__) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:
        raise VllmHostError("internal_error", "The source of parser_probe is not at hand.")
    return str(source)
