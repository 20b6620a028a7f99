# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of the store, and who may write into it.

::

    <store>/<org>--<name>/
        snapshots/<commit>/      files (0444) and .manifest.json
        views/                   what is served; made by checkpoint_patch
        trees/<commit>.json      the commit's files as the Hub listed them; never changes
        refs/<revision>.json     the commit that a branch or tag last meant
        partial/<digest>.part    files on their way
        .lock  .progress.json    the running transfer
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import VllmHostError
from .manifest import Manifest, read_manifest, utc_now, write_json_durably
from .tree import SHA1, TreeFile, require_repo_id, tree_file

TREE_SCHEMA = 1


class Store:
    """One repository's folder below the store's root."""

    def __init__(self, root: Path, repo_id: str) -> None:
        require_repo_id(repo_id)
        self.repo_id = repo_id
        self.folder = root / repo_id.replace("/", "--")
        self.snapshots = self.folder / "snapshots"
        self.views = self.folder / "views"
        self.partial = self.folder / "partial"
        self.progress_file = self.folder / ".progress.json"
        self._lock_file = self.folder / ".lock"

    def snapshot(self, commit: str) -> Path:
        return self.snapshots / commit

    def part(self, file: TreeFile) -> Path:
        return self.partial / f"{file.digest}.part"

    def commits(self) -> list[str]:
        """Commits of which anything is there, newest first."""
        if not self.snapshots.is_dir():
            return []
        folders = [entry for entry in self.snapshots.iterdir() if SHA1.fullmatch(entry.name)]
        return [folder.name for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True)]

    def read_tree(self, commit: str) -> list[TreeFile] | None:
        """The commit's files, if they were listed before; a damaged list counts as none."""
        try:
            listed = json.loads((self.folder / "trees" / f"{commit}.json").read_text(encoding="utf-8"))
            if listed["schema"] == TREE_SCHEMA:
                return [tree_file(f["path"], f["size"], f["sha256"], f["git_oid"]) for f in listed["files"]]
        except (OSError, ValueError, KeyError, TypeError, VllmHostError):
            pass
        return None

    def write_tree(self, commit: str, files: list[TreeFile]) -> None:
        path = self.folder / "trees" / f"{commit}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        listed = {"schema": TREE_SCHEMA, "commit": commit, "files": [file.as_json() for file in files]}
        write_json_durably(path, listed)

    def read_ref(self, revision: str) -> str | None:
        """The commit that a branch or tag meant when the Hub was last asked."""
        try:
            commit = str(json.loads(self._ref(revision).read_text(encoding="utf-8"))["commit"])
            return commit if SHA1.fullmatch(commit) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_ref(self, revision: str, commit: str) -> None:
        if revision != commit and self.read_ref(revision) != commit:
            self._ref(revision).parent.mkdir(parents=True, exist_ok=True)
            write_json_durably(self._ref(revision), {"commit": commit, "resolved_at": utc_now()})

    def _ref(self, revision: str) -> Path:
        return self.folder / "refs" / f"{quote(revision, safe='')}.json"

    def manifest(self, commit: str) -> Manifest | None:
        return read_manifest(self.snapshot(commit))

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Be the only writer; the kernel drops the lock when the process ends, however it ends.

        Raises:
            VllmHostError: ``store_busy``, naming the holder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock_file.open("a+", encoding="utf-8") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self.busy() from None
            stream.truncate(0)
            json.dump({"pid": os.getpid(), "what": what, "since": utc_now()}, stream)
            stream.flush()
            yield

    def is_locked(self) -> bool:
        try:
            with self._lock_file.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True

    def busy(self) -> VllmHostError:
        holder = self.holder()
        return VllmHostError(
            "store_busy",
            f"{self.folder} is in use by process {holder.get('pid', '?')} ({holder.get('what', 'unknown')}, since "
            f"{holder.get('since', '?')}). Wait until it has finished, or stop that process, and run again.",
            path=str(self.folder),
            holder=holder,
        )

    def holder(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._lock_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def commits_in_use(self) -> dict[str, list[str]]:
        """Commit -> names of the views made from it."""
        used: dict[str, list[str]] = {}
        if self.views.is_dir():
            for description in sorted(self.views.glob("*/.view.json")):
                commit = commit_of_view(description)
                if commit:
                    used.setdefault(commit, []).append(description.parent.name)
        return used

    def remove(self, revision: str, check_mode: bool) -> list[str]:
        """Remove the snapshot of a commit, branch or tag as last resolved, or of all commits (``*``), with what was left of transfers.

        Returns:
            Commits that were removed.
        Raises:
            VllmHostError: ``snapshot_in_use``, naming the views.
        """
        commit = revision if SHA1.fullmatch(revision) else self.read_ref(revision)
        doomed = [known for known in self.commits() if revision in ("*", known) or known == commit]
        used = self.commits_in_use()
        for known in doomed:
            if known in used:
                raise VllmHostError(
                    "snapshot_in_use",
                    f"{self.snapshot(known)} is served by the views {', '.join(used[known])}. Remove those first (role checkpoint_patch).",
                    path=str(self.snapshot(known)),
                    views=used[known],
                )
        if doomed and not check_mode:
            with self.locked("checkpoint_fetch state=absent"):
                for known in doomed:
                    self._remove_snapshot(known)
                if not self.commits():
                    shutil.rmtree(self.partial, ignore_errors=True)
        return doomed

    def prune(self, keep: str, check_mode: bool) -> list[str]:
        """Remove all snapshots but ``keep`` and those that a view uses; returns their commits."""
        used = self.commits_in_use()
        doomed = [commit for commit in self.commits() if commit != keep and commit not in used]
        if doomed and not check_mode:
            with self.locked("checkpoint_fetch prune"):
                for commit in doomed:
                    self._remove_snapshot(commit)
        return doomed

    def _remove_snapshot(self, commit: str) -> None:
        """First the name, then the content: a snapshot is there or not, never half."""
        doomed = self.snapshots / f".{commit}.removed"
        if self.snapshot(commit).exists():
            self.snapshot(commit).replace(doomed)
        if doomed.exists():
            shutil.rmtree(doomed)
        (self.folder / "trees" / f"{commit}.json").unlink(missing_ok=True)


def commit_of_view(description: Path) -> str | None:
    """The commit that a view's ``.view.json`` names, under ``commit`` or in the path of its snapshot."""
    try:
        view = json.loads(description.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for value in (view.get("commit"), Path(str(view.get("snapshot", ""))).name):
        if isinstance(value, str) and SHA1.fullmatch(value):
            return value
    return None
