"""The site playbook once more, with other variables or options."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.playbook import Run, run_playbook

EPHEMERAL = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])


@pytest.fixture(scope="session")
def play() -> Callable[..., Run]:
    return partial(run_playbook, EPHEMERAL / "inventory")


@pytest.fixture(scope="session")
def travel(play: Callable[..., Run]) -> Callable[..., Run]:
    """Run site.yml: ``travel("--check", vllm_port=8123)``."""
    return partial(play, "site.yml")
