# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a checkpoint folder, and whether all of them are there.

A snapshot of checkpoint_fetch is judged by its manifest. A plain folder, somebody's own checkpoint, has none and is judged by
what it says about itself: the shards named in its ``*.safetensors.index.json``.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..errors import VllmHostError
from .manifest import MANIFEST_NAME, Manifest, read_manifest

VIEW_NAME = ".view.json"
_OURS = (MANIFEST_NAME, VIEW_NAME)
_SKIPPED_FOLDERS = (".cache", ".git", ".locks")
"""Book-keeping of download tools, never part of a model."""


@dataclass(frozen=True)
class SnapshotFile:
    """One file of a checkpoint.

    Attributes:
        path: relative to the folder, with ``/``.
        real: the regular file behind it, symbolic links followed (the Hub's cache layout is made of them).
        status: of the regular file.
    """

    path: str
    real: Path
    status: os.stat_result


@dataclass(frozen=True)
class Snapshot:
    """A complete checkpoint folder.

    Attributes:
        folder: its real path.
        commit: from the manifest; None for a plain folder.
        files: by path, sorted.
    """

    folder: Path
    commit: Optional[str]
    files: tuple[SnapshotFile, ...]


def read_snapshot(folder: Path) -> Snapshot:
    """Look at a checkpoint folder and refuse it unless it is whole.

    Raises:
        VllmHostError: ``snapshot_missing``, ``snapshot_incomplete``, ``snapshot_is_a_view``, ``snapshot_bad_link``,
            ``not_a_checkpoint``, ``manifest_unreadable``.
    """
    try:
        real = folder.resolve(strict=True)
    except RuntimeError as error:  # a loop of links, before Python 3.13
        raise _bad_link(folder, "is a loop of symbolic links") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _bad_link(folder, "is a loop of symbolic links") from error
        raise VllmHostError(
            "snapshot_missing", f"{folder} does not exist. Run checkpoint_fetch first.", path=str(folder)
        ) from error
    if not real.is_dir():
        raise VllmHostError("not_a_checkpoint", f"{folder} is not a folder.", path=str(folder))
    if (real / VIEW_NAME).exists():
        raise VllmHostError(
            "snapshot_is_a_view",
            f"{folder} is a view made by checkpoint_patch; give the snapshot that it was made from.",
            path=str(folder),
        )
    manifest = read_manifest(real)
    files = tuple(sorted(_walk(real, "", (_identity(real),)), key=lambda file: file.path))
    present = {file.path: file.status.st_size for file in files}
    if manifest is not None:
        _check_manifest(folder, manifest, present)
    else:
        _check_indexes(folder, files, present)
    if not {"config.json", "params.json"} & present.keys():
        raise VllmHostError(
            "not_a_checkpoint",
            f"{folder} has neither config.json nor params.json: it is no checkpoint that vLLM can load.",
            path=str(folder),
        )
    return Snapshot(real, manifest.commit if manifest else None, files)


def _walk(folder: Path, prefix: str, inside: tuple[tuple[int, int], ...]) -> Iterator[SnapshotFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if not prefix and entry.name in _OURS:
                continue
            status = _status(Path(entry.path))
            if stat.S_ISDIR(status.st_mode):
                if entry.name in _SKIPPED_FOLDERS:
                    continue
                identity = (status.st_dev, status.st_ino)
                if identity in inside:
                    raise _bad_link(Path(entry.path), "leads back to a folder that it is in")
                yield from _walk(Path(entry.path), f"{path}/", (*inside, identity))
            elif stat.S_ISREG(status.st_mode):
                yield SnapshotFile(path, Path(os.path.realpath(entry.path)), status)
            else:
                raise VllmHostError(
                    "not_a_checkpoint",
                    f"{entry.path} is neither a file nor a folder. Remove it from the checkpoint.",
                    path=entry.path,
                )


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _bad_link(path, "is a loop of symbolic links") from error
        if error.errno == errno.ENOENT and path.is_symlink():
            raise _bad_link(path, "points to nothing") from error
        raise


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _bad_link(path: Path, what: str) -> VllmHostError:
    return VllmHostError(
        "snapshot_bad_link",
        f"{path} {what}. Remove the link, or fetch the checkpoint again.",
        path=str(path),
    )


def _check_manifest(folder: Path, manifest: Manifest, present: dict[str, int]) -> None:
    if not manifest.complete:
        raise _incomplete(folder, "its manifest says that it is incomplete", [])
    wrong = sorted(file.path for file in manifest.files.values() if present.get(file.path) != file.size)
    if wrong:
        raise _incomplete(folder, "files are missing or have another size than its manifest says", wrong)


def _check_indexes(folder: Path, files: tuple[SnapshotFile, ...], present: dict[str, int]) -> None:
    for index in (file for file in files if file.path.endswith(".safetensors.index.json")):
        try:
            shards = set(json.loads(index.real.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _incomplete(folder, f"{index.path} cannot be read ({error})", [index.path]) from error
        beside = index.path.rpartition("/")[0]
        paths = {shard: f"{beside}/{shard}" if beside else str(shard) for shard in shards}
        missing = sorted(path for path in paths.values() if not present.get(path))
        if missing:
            raise _incomplete(folder, f"{index.path} names shards that are missing or empty", missing)


def _incomplete(folder: Path, why: str, paths: list[str]) -> VllmHostError:
    named = f": {', '.join(paths[:3])}{' and more' if len(paths) > 3 else ''}" if paths else ""
    return VllmHostError(
        "snapshot_incomplete",
        f"{folder} is not complete, {why}{named}. Run checkpoint_fetch until it succeeds; nothing was changed.",
        path=str(folder),
        files=paths,
    )
