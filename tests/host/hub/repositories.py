"""Folders as repositories: entries with their digests, and commits that follow from the content alone."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

LFS_FROM_BYTES = 10_000_000  # the Hub refuses larger files outside LFS
LFS_SUFFIXES = {".safetensors", ".bin", ".gguf", ".model", ".pt", ".pth", ".parquet"}
CHUNK = 8 << 20


@dataclass(frozen=True)
class Entry:
    """One file of a commit. ``git_oid`` is the blob's (for LFS: the pointer's); ``sha256`` is None for what git itself holds."""

    path: str
    file: Path
    size: int
    git_oid: str
    sha256: str | None

    @property
    def etag(self) -> str:
        return self.sha256 or self.git_oid

    @cached_property
    def pointer_size(self) -> int:
        return len(lfs_pointer(self.sha256 or "", self.size))

    def as_json(self) -> dict[str, Any]:
        """As the tree endpoint lists it."""
        listed: dict[str, Any] = {"type": "file", "oid": self.git_oid, "size": self.size, "path": self.path}
        if self.sha256:
            listed["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": self.pointer_size}
        return listed


@dataclass(frozen=True)
class Commit:
    """A folder's content at one moment."""

    sha: str
    entries: dict[str, Entry]

    def folders(self) -> list[str]:
        return sorted({str(parent) for path in self.entries for parent in Path(path).parents} - {"."})


def lfs_pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def git_blob_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class HashCache:
    """sha256 of large files, kept beside the repositories and trusted as long as size and modification time stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sha256(self, file: Path) -> str:
        remembered = self._slot(file)
        if remembered.exists():
            return remembered.read_text()
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
        self.preset(file, digest.hexdigest())
        return digest.hexdigest()

    def preset(self, file: Path, sha256: str) -> None:
        """Remember a digest without reading: for sparse files that only a benchmark's tree has to list."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._slot(file).write_text(sha256)

    def _slot(self, file: Path) -> Path:
        status = file.stat()
        identity = json.dumps([str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_ino])
        return self._folder / hashlib.sha256(identity.encode()).hexdigest()


class Repository:
    """``<org>/<name>`` under the root is branch main; a sibling ``<org>/<name>@<revision>`` is a further branch or tag.

    A branch moves when its folder's content changes, or when ``refs`` says so: a commit that any folder still holds stays
    reachable by its sha.
    """

    def __init__(self, root: Path, repo_id: str, hashes: HashCache) -> None:
        self.repo_id = repo_id
        self.refs: dict[str, str] = {}  # branch -> revision whose folder it now means
        self._folder = root / repo_id
        self._hashes = hashes
        self._lock = threading.Lock()
        self._read: dict[tuple[Any, ...], Commit] = {}

    def revisions(self) -> dict[str, Path]:
        found = {"main": self._folder} if self._folder.is_dir() else {}
        for sibling in sorted(self._folder.parent.glob(f"{self._folder.name}@*")):
            found[sibling.name.partition("@")[2]] = sibling
        return found

    def commit(self, revision: str) -> Commit | None:
        """By branch, tag or sha; None if there is none."""
        folders = self.revisions()
        folder = folders.get(self.refs.get(revision, revision))
        if folder:
            return self._scan(folder)
        if len(revision) == 40:
            for folder in folders.values():
                commit = self._scan(folder)
                if commit.sha == revision:
                    return commit
        return None

    def entry_by_sha256(self, sha256: str) -> Entry | None:
        for folder in self.revisions().values():
            for entry in self._scan(folder).entries.values():
                if entry.sha256 == sha256:
                    return entry
        return None

    def _scan(self, folder: Path) -> Commit:
        """Read the folder, or remember what was read when nothing changed since (by size and modification time)."""
        stats = {path: path.stat() for path in files_below(folder)}
        state = (folder, *((path, s.st_size, s.st_mtime_ns, s.st_ino) for path, s in stats.items()))
        with self._lock:
            if state not in self._read:
                entries = [self._entry(folder, path, status.st_size) for path, status in stats.items()]
                listing = "".join(f"{entry.path}\0{entry.git_oid}\n" for entry in entries)
                sha = hashlib.sha1(f"{self.repo_id}\n{listing}".encode(), usedforsecurity=False).hexdigest()
                self._read[state] = Commit(sha, {entry.path: entry for entry in entries})
            return self._read[state]

    def _entry(self, folder: Path, file: Path, size: int) -> Entry:
        path = file.relative_to(folder).as_posix()
        if size > LFS_FROM_BYTES or file.suffix in LFS_SUFFIXES:
            sha256 = self._hashes.sha256(file)
            return Entry(path, file, size, git_blob_oid(lfs_pointer(sha256, size)), sha256)
        return Entry(path, file, size, git_blob_oid(file.read_bytes()), None)


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
