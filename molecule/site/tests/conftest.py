"""The site playbook once more, with other variables or options."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
EPHEMERAL = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])


@pytest.fixture(scope="session")
def travel() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run site.yml; variables are extra variables."""

    def run(*options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        command = ["ansible-playbook", f"--inventory={EPHEMERAL / 'inventory'}", str(PROJECT / "site.yml"), *options]
        command += ["--extra-vars", json.dumps(variables)]
        plain = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}
        return subprocess.run(
            command, cwd=PROJECT, env=plain, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    return run
