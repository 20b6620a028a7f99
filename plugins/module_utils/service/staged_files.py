# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several files changed as one: all are written beside their places first, so that a full disk is met before any is replaced."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import VllmHostError


@dataclass(frozen=True)
class Content:
    """Text and mode of a file; ``secret`` keeps its text out of diffs. Owner is root."""

    text: str
    mode: int = 0o644
    secret: bool = False


def put_in_place(staged: Mapping[Path, Path]) -> None:
    for path, aside in staged.items():
        aside.replace(path)


def write_aside(paths: Mapping[str, Path], contents: Mapping[str, Content]) -> dict[Path, Path]:
    """Write each file beside its place, all or none; raises ``files_not_written``."""
    staged: dict[Path, Path] = {}
    try:
        for name, path in paths.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            staged[path] = Path(aside)
            with os.fdopen(descriptor, "wb") as stream:
                os.fchmod(stream.fileno(), contents[name].mode)
                stream.write(contents[name].text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        for one in staged.values():
            one.unlink(missing_ok=True)
        raise not_written(path, error) from error
    return staged


def not_written(path: Path, error: OSError) -> VllmHostError:
    return VllmHostError(
        "files_not_written",
        f"{path} cannot be written ({error.strerror}): make room there, or see to its owner and mode. The service was not touched.",
        path=str(path),
    )
