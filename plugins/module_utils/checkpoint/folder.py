# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder instead of a Hub, for hosts without a network: a disk that was carried there, or another host's store over NFS."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

from ..errors import VllmHostError
from .hub import HubUnreachable, Trouble
from .manifest import MANIFEST_NAME, Manifest, read_manifest
from .retry import Gate, RetryPolicy
from .tree import SHA1, SHA256, TreeFile, tree_file

READ_BYTES = 4 << 20
BOOK_KEEPING = frozenset({".cache", ".git", ".locks", MANIFEST_NAME})


class Folder:
    """The files of one commit below ``path``; the same calls as ``hub.Hub``.

    Which commit it is, and the digests, come from the manifest of a snapshot of ours, or from the Hub's own cache (``snapshots/<commit>/`` with links to
    blobs that are named by their digest). For a plain folder the revision must be the commit, and each file is read once more for its digest.
    """

    def __init__(self, path: Path, repo_id: str, policy: RetryPolicy, gate: Gate) -> None:
        self.path = path
        self.repo_id = repo_id
        self.policy = policy
        self.gate = gate
        self.notes: set[str] = set()

    def close(self) -> None:
        """Nothing is open."""

    def commit(self, revision: str, attempts: int) -> str:
        """The commit that the folder holds.

        Raises:
            HubUnreachable: ``source_missing``. VllmHostError: ``source_unfit``.
        """
        manifest = self._manifest()
        if manifest and (manifest.repo_id != self.repo_id or not manifest.complete):
            what = f"of {manifest.repo_id}" if manifest.complete else "incomplete"
            raise self._unfit(f"is a snapshot {what}")
        held = manifest.commit if manifest else self.path.resolve().name
        asked = revision if SHA1.fullmatch(revision) else None
        if SHA1.fullmatch(held):
            if asked not in (None, held):
                raise self._unfit(f"holds commit {held}, not {asked}")
            return held
        if asked is None:
            raise self._unfit("does not say which commit it is: give the commit (40 hex digits) as revision")
        return asked

    def tree(self, commit: str) -> list[TreeFile]:
        """All files of the folder."""
        manifest = self._manifest()
        if manifest:
            return [tree_file(f.path, f.size, f.sha256, f.git_oid) for f in manifest.files.values()]
        found = []
        for file in sorted(self.path.rglob("*")):
            path = file.relative_to(self.path)
            if file.is_file() and path.parts[0] not in BOOK_KEEPING:
                sha256, git_oid = self._digest(file)
                found.append(tree_file(path.as_posix(), file.stat().st_size, sha256, git_oid))
        return found

    @contextmanager
    def content(self, file: TreeFile, commit: str, start: int, location: Optional[str]) -> Iterator[FolderContent]:
        """The file's bytes from ``start``; raises Trouble if it cannot be opened."""
        try:
            descriptor = os.open(self.path / file.path, os.O_RDONLY)
        except OSError as error:
            raise Trouble(f"{self.path / file.path}: {error.strerror}") from None
        try:
            yield FolderContent(descriptor, file, start)
        finally:
            os.close(descriptor)

    def _manifest(self) -> Manifest | None:
        if not self.path.is_dir():
            raise HubUnreachable(
                "source_missing",
                f"source {self.path} is not a folder on this host. Mount it, or copy the checkpoint there.",
                reason=f"source {self.path} is not there",
            )
        return read_manifest(self.path)

    def _digest(self, file: Path) -> tuple[str | None, str | None]:
        """(sha256, git's blob id), one of them; from the name of the blob that a link points to, else by reading."""
        blob = file.resolve().name if file.is_symlink() else ""
        if SHA256.fullmatch(blob):
            return blob, None
        if SHA1.fullmatch(blob):
            return None, blob
        self.notes.add(
            f"{self.path} names no digests: they were computed from its files, so damage before that is not seen"
        )
        hasher = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(READ_BYTES):
                hasher.update(chunk)
        return hasher.hexdigest(), None

    def _unfit(self, why: str) -> VllmHostError:
        return VllmHostError("source_unfit", f"source {self.path} {why}.", path=str(self.path))


class FolderContent:
    """As ``hub.Content``."""

    location = None

    def __init__(self, descriptor: int, file: TreeFile, start: int) -> None:
        self._descriptor = descriptor
        self._file = file
        self.start = start
        self._offset = start

    def read_into(self, view: memoryview) -> int:
        """Put the next bytes into ``view``; returns how many, 0 at the end."""
        try:
            count = os.preadv(self._descriptor, [view[: self._file.size - self._offset]], self._offset)
        except OSError as error:
            raise Trouble(f"{self._file.path}: {error.strerror}") from None
        self._offset += count
        # What was copied is not needed in memory twice.
        os.posix_fadvise(self._descriptor, 0, self._offset, os.POSIX_FADV_DONTNEED)
        return count
