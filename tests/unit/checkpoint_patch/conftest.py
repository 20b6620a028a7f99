from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_folders import COMMIT, add_manifest, write_checkpoint


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """``store/snapshots/<commit>`` with a complete manifest."""
    folder = write_checkpoint(tmp_path / "store" / "snapshots" / COMMIT)
    add_manifest(folder)
    return folder


@pytest.fixture
def views(snapshot: Path) -> Path:
    return snapshot.parent.parent / "views"


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    return lambda name="plain", **files: write_checkpoint(tmp_path / name, **files)
