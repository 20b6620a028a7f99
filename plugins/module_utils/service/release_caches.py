# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Caches that outlived their release: what an instance compiled for it (``<caches>/<instance>/<id>/``), and its options (``.options/<id>.json``)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

# As releases are named, so that nothing else is ever taken for one.
_ID = re.compile(r"[^/]+-[0-9a-f]{12}")


def remove_orphaned_caches(caches: Path, releases: Path, references: Iterable[str]) -> list[Path]:
    """Remove the caches of releases that are gone; return their paths.

    Args:
        caches: folder of the caches of all instances.
        releases: folder of the releases.
        references: glob patterns of files, such as unit files; the caches of a release that one of them names stay, wherever it is installed.
    """
    candidates = [path for path in sorted(caches.glob("*/*")) if _ID.fullmatch(_release_id(path))]
    orphaned = [path for path in candidates if not (releases / _release_id(path)).exists()]
    if not orphaned:
        return []
    texts = [path.read_text(errors="replace") for pattern in references for path in _files(pattern)]
    doomed = [path for path in orphaned if not any(f"/{_release_id(path)}" in text for text in texts)]
    for path in doomed:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return doomed


def _release_id(path: Path) -> str:
    return path.name.removesuffix(".json")


def _files(pattern: str) -> list[Path]:
    root = Path(pattern).anchor or "."
    return [path for path in Path(root).glob(str(Path(pattern).relative_to(root))) if path.is_file()]
