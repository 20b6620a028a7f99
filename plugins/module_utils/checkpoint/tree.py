# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of one commit, as the Hub lists them: what a snapshot must hold, and which digest proves each file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..errors import VllmHostError

SHA256 = re.compile(r"[0-9a-f]{64}")
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
SHA1 = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class TreeFile:
    """One file of a commit.

    Attributes:
        path: relative, with ``/``; proved harmless by ``safe_path``.
        size: bytes.
        sha256: for files in large-file storage; else None, and ``git_oid`` is the digest.
        git_oid: sha1 of git's blob. For files in large-file storage that is the pointer, which says nothing about the content.
    """

    path: str
    size: int
    sha256: str | None
    git_oid: str | None

    @property
    def digest(self) -> str:
        """Hexadecimal; unique to the content."""
        return self.sha256 or self.git_oid or ""

    def hasher(self) -> Any:
        """A hash object that ends at ``digest`` once it was given the whole content."""
        if self.sha256:
            return hashlib.sha256()
        # Git names a blob by the sha1 of a short header and the content.
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size, "sha256": self.sha256, "git_oid": self.git_oid}


def tree_file(path: str, size: Any, sha256: Any, git_oid: Any) -> TreeFile:
    """Check what came from outside.

    Raises:
        VllmHostError: ``unsafe_path``; ``tree_invalid`` for a size or digest that is none.
    """
    safe_path(path)
    sha256, git_oid = (digest if isinstance(digest, str) else None for digest in (sha256, git_oid))
    digest_is_right = SHA256.fullmatch(sha256) if sha256 else git_oid and SHA1.fullmatch(git_oid)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or not digest_is_right:
        raise VllmHostError(
            "tree_invalid",
            f"the Hub lists {path!r} without a usable size and digest (size {size!r}, sha256 {sha256!r}, oid {git_oid!r}). "
            "Nothing could be verified; ask the operator of this endpoint, or use another one.",
            path=path,
        )
    return TreeFile(path, size, sha256, git_oid)


def require_repo_id(repo_id: str) -> None:
    """Nothing for what a Hub may call a repository (96 characters are its own limit of a name).

    Raises:
        VllmHostError: ``repo_id_invalid``.
    """
    if not _REPO_ID.fullmatch(repo_id) or ".." in repo_id or "--" in repo_id or len(repo_id) > 200:
        raise VllmHostError(
            "repo_id_invalid", f"repo_id {repo_id[:200]!r} is not of the form organization/name.", repo_id=repo_id[:200]
        )


def safe_path(path: str) -> str:
    """A path that stays below the snapshot.

    Raises:
        VllmHostError: ``unsafe_path``.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in path or "\\" in path or parts[0] == ".manifest.json":
        raise VllmHostError(
            "unsafe_path",
            f"the repository lists the path {path!r}, which would be written outside its snapshot. Nothing was fetched; "
            "do not use this repository or endpoint.",
            path=path,
        )
    return path


def select(files: Iterable[TreeFile], allow_patterns: list[str], ignore_patterns: list[str]) -> list[TreeFile]:
    """The files that match any of ``allow_patterns`` (all, if there is none) and none of ``ignore_patterns``.

    Patterns are shell globs on the whole path, in which ``*`` also spans ``/``; one that ends with ``/`` means the folder: as in huggingface_hub.
    """
    allow = [_folder_too(pattern) for pattern in allow_patterns]
    ignore = [_folder_too(pattern) for pattern in ignore_patterns]
    return [
        file
        for file in files
        if (not allow or any(fnmatchcase(file.path, pattern) for pattern in allow))
        and not any(fnmatchcase(file.path, pattern) for pattern in ignore)
    ]


def _folder_too(pattern: str) -> str:
    return f"{pattern}*" if pattern.endswith("/") else pattern
