# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a snapshot folder holds and when each file was last proved right: ``snapshots/<commit>/.manifest.json``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import VllmHostError

SCHEMA = 1
MANIFEST_NAME = ".manifest.json"


@dataclass(frozen=True)
class ManifestFile:
    """One file that was verified against the commit's tree.

    Attributes:
        path: relative to the snapshot, with ``/``.
        size: bytes.
        sha256: of the content, for files that the Hub keeps in large-file storage; else None.
        git_oid: name of git's blob (sha1), for all other files; else None.
        verified_at: when its digest was last computed and found right, UTC, ISO 8601.
    """

    path: str
    size: int
    sha256: str | None
    git_oid: str | None
    verified_at: str

    @property
    def digest(self) -> str:
        return self.sha256 or self.git_oid or ""

    def as_json(self) -> dict[str, Any]:
        digest = {"sha256": self.sha256} if self.sha256 else {"git_oid": self.git_oid}
        return {"path": self.path, "size": self.size, **digest, "verified_at": self.verified_at}


@dataclass
class Manifest:
    """The state of one snapshot.

    Attributes:
        revision: the branch, tag or commit that was asked for when the snapshot was made.
        complete: every file that was asked for is there and was verified.
        files: by path.
    """

    repo_id: str
    revision: str
    commit: str
    complete: bool = False
    files: dict[str, ManifestFile] = field(default_factory=dict)

    @property
    def bytes_total(self) -> int:
        return sum(file.size for file in self.files.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "repo_id": self.repo_id,
            "revision": self.revision,
            "commit": self.commit,
            "complete": self.complete,
            "files": [self.files[path].as_json() for path in sorted(self.files)],
        }


def read_manifest(snapshot: Path) -> Manifest | None:
    """The manifest of a snapshot folder; None where there is none.

    Raises:
        VllmHostError: ``manifest_unreadable``, if the file is damaged or of a later schema.
    """
    path = snapshot / MANIFEST_NAME
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["schema"] != SCHEMA:
            raise ValueError(f"schema {raw['schema']} instead of {SCHEMA}")
        files = [
            ManifestFile(item["path"], item["size"], item.get("sha256"), item.get("git_oid"), item["verified_at"])
            for item in raw["files"]
        ]
        return Manifest(
            raw["repo_id"], raw["revision"], raw["commit"], raw["complete"], {file.path: file for file in files}
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VllmHostError(
            "manifest_unreadable",
            f"{path} cannot be read: {error}. Remove this file: the next checkpoint_fetch verifies the snapshot anew.",
            path=str(path),
        ) from error


def write_manifest(snapshot: Path, manifest: Manifest) -> None:
    write_json_durably(snapshot / MANIFEST_NAME, manifest.as_json())


def write_json_durably(path: Path, value: Any, mode: int = 0o644) -> None:
    """Replace a JSON file in one step that survives a power loss."""
    aside = path.with_name(f"{path.name}.new")  # one writer at a time; a leftover of a killed one is overwritten
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
