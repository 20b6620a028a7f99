# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Views: what is served, made from a pristine snapshot without copying or touching its shards.

::

    <views>/
        <name>                      link to the view that is served next; switched by one rename
        <name>+<commit>-<state>-<digest>/
                                    a view: hard links to the snapshot's files (symbolic links where the file system is another
                                    one), real files for the patched JSON, and .view.json, written last
        .<name>.lock  .<name>+…     the running builder

A view is built aside and renamed into place, and it never changes afterwards: a server keeps the resolved path that it was
started with, whatever the name points to later. Its identity is a digest of what it is made of, so the same request finds it
again, and a shard that was fetched anew leads to another view.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..errors import VllmHostError
from .kv_declarations import PatchedFile, StripPlan
from .manifest import sync_folder, write_json_durably
from .snapshot_files import VIEW_NAME, Snapshot

SCHEMA = 1
RETIRED_SECONDS = 7 * 24 * 3600
"""How long a view that is no longer served stays for a rollback; it costs a few kilobytes."""
LOCK_SECONDS = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # file names end at 255 bytes
_NO_HARD_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES)


@dataclass(frozen=True)
class ViewRequest:
    """One view to be served under a name.

    Attributes:
        snapshot: what it is made of.
        views: the folder of views.
        name: under which it is served.
        state: ``stripped`` or ``original``.
        plan: what stripping changes; no files for ``original``.
    """

    snapshot: Snapshot
    views: Path
    name: str
    state: str
    plan: StripPlan

    @property
    def link(self) -> Path:
        return self.views / self.name

    @property
    def patched(self) -> dict[str, PatchedFile]:
        return {file.name: file for file in self.plan.files}

    @property
    def identity(self) -> str:
        """Folder name of the view: equal for equal content from equal files."""
        digest = hashlib.sha256(str(self.snapshot.folder).encode())
        for file in self.snapshot.files:
            patch = self.patched.get(file.path)
            status = file.status
            content = patch.after if patch else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            digest.update(repr((file.path, content)).encode("utf-8", "surrogatepass"))
        commit = (self.snapshot.commit or "folder")[:12]
        return f"{self.name}+{commit}-{self.state}-{digest.hexdigest()[:10]}"


@dataclass(frozen=True)
class ViewResult:
    """What was done, or would be.

    Attributes:
        path: the view itself, resolved: what a server is given.
        changed: the served name points somewhere else than before.
        previous: the view that was served before, None if there was none.
        pruned: views that were removed.
        damaged: files of an earlier build of this view that were found changed or gone; it was built again beside it.
    """

    path: Path
    changed: bool
    previous: Optional[Path]
    pruned: tuple[Path, ...] = ()
    damaged: tuple[str, ...] = ()


def ensure_view(request: ViewRequest, *, check: bool = False) -> ViewResult:
    """Make the view, if need be, and let the served name point to it.

    Args:
        check: only say what would be done.

    Raises:
        VllmHostError: ``view_name_invalid``, ``views_misplaced``, ``views_busy``, ``views_not_writable``, ``disk_full``, ``views_failed``.
    """
    _check_places(request)
    if check:
        target, damaged, _exists = _target(request)
        return ViewResult(target, target != _served(request.link), _served(request.link), (), damaged)
    try:
        request.views.mkdir(parents=True, exist_ok=True)
        with _locked(request):
            return _ensure_locked(request)
    except OSError as error:
        raise _explain(error, request) from error


def _ensure_locked(request: ViewRequest) -> ViewResult:
    _remove_unfinished(request)
    before = _served(request.link)
    target, damaged, exists = _target(request)
    if not exists:
        _build(request, target)
    if before != target:
        if before is not None:
            os.utime(before)  # the time of its retirement
        _switch(request.link, target)
    return ViewResult(target, before != target, before, _prune(request, target), damaged)


def _target(request: ViewRequest) -> tuple[Path, tuple[str, ...], bool]:
    """The view's place, what was found wrong with an earlier one there, and whether it exists and is whole."""
    damaged: tuple[str, ...] = ()
    identity = request.identity
    for attempt in range(1, 1000):
        place = request.views.resolve() / (identity if attempt == 1 else f"{identity}.{attempt}")
        if not place.exists():
            return place, damaged, False
        wrong = _defects(request, place)
        if not wrong:
            return place, (), True
        damaged = wrong
    raise VllmHostError(
        "views_misplaced",
        f"{request.views} holds a thousand damaged views of {identity}; remove them.",
        path=str(request.views),
    )


def _defects(request: ViewRequest, place: Path) -> tuple[str, ...]:
    """Files of a view that are not what the request means."""
    patched = request.patched
    wrong = [] if (place / VIEW_NAME).is_file() else [VIEW_NAME]
    for file in request.snapshot.files:
        entry = place / file.path
        try:
            if file.path in patched:
                sound = not entry.is_symlink() and entry.read_bytes() == patched[file.path].after.encode("utf-8")
            else:
                sound = os.path.samestat(entry.stat(), file.status)
        except OSError:
            sound = False
        if not sound:
            wrong.append(file.path)
    return tuple(wrong)


def _build(request: ViewRequest, target: Path) -> None:
    aside = request.views.resolve() / f".{target.name}"
    aside.mkdir()
    folders = {aside}
    links = 0
    for file in request.snapshot.files:
        entry = aside / file.path
        if entry.parent not in folders:
            entry.parent.mkdir(parents=True, exist_ok=True)
            folders.update(parent for parent in entry.parents if aside in parent.parents)
        patch = request.patched.get(file.path)
        if patch:
            _write_durably(entry, patch.after.encode("utf-8"), file.status)
        else:
            links += _link(file.real, entry, target / file.path)
    for folder in folders:
        folder.chmod(0o755)  # the server's user reads it, whatever our umask
        sync_folder(folder)
    write_json_durably(aside / VIEW_NAME, _description(request, links))
    aside.rename(target)
    sync_folder(target.parent)


def _link(source: Path, entry: Path, final: Path) -> int:
    """A hard link, or 1 for a symbolic link that is right once the view is in its place."""
    try:
        os.link(source, entry)
        return 0
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
    entry.symlink_to(os.path.relpath(source, final.parent))
    return 1


def _write_durably(path: Path, content: bytes, like: os.stat_result) -> None:
    """A new file with the mode and the owner of the one that it stands for."""
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fchmod(stream.fileno(), stat.S_IMODE(like.st_mode))
        if os.geteuid() == 0:
            os.fchown(stream.fileno(), like.st_uid, like.st_gid)
        os.fsync(stream.fileno())


def _description(request: ViewRequest, symbolic_links: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": request.name,
        "snapshot": str(request.snapshot.folder),
        "commit": request.snapshot.commit,
        "state": request.state,
        "edits": list(request.plan.edits) if request.plan.files else [],
        "patched": {
            name: hashlib.sha256(file.after.encode("utf-8")).hexdigest()
            for name, file in sorted(request.patched.items())
        },
        "files": len(request.snapshot.files),
        "symbolic_links": symbolic_links,
    }


def _switch(link: Path, target: Path) -> None:
    """Point the served name to another view in one step."""
    if link.is_dir() and not link.is_symlink():
        raise VllmHostError(
            "views_misplaced",
            f"{link} is a folder and not a link of checkpoint_patch. Move it away, or choose another name for the view.",
            path=str(link),
        )
    aside = link.with_name(f".{link.name}+link")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target.name)
    aside.replace(link)
    sync_folder(link.parent)


def _served(link: Path) -> Optional[Path]:
    """The view that the served name points to, None where there is none."""
    try:
        return link.resolve(strict=True) if link.is_symlink() else None
    except (OSError, RuntimeError):
        return None


def _prune(request: ViewRequest, served: Path) -> tuple[Path, ...]:
    """Remove views of this name that nobody was served from for a week, except the last one that was: it is what a rollback needs."""
    places = (place for place in request.views.resolve().glob(f"{request.name}+*") if place != served)
    retired = sorted((place.stat().st_mtime, place) for place in places if not place.is_symlink())
    oldest = time.time() - RETIRED_SECONDS
    doomed = [place for retired_at, place in retired[:-1] if retired_at < oldest]
    for place in doomed:
        aside = place.with_name(f".{place.name}")
        place.rename(aside)
        _remove(aside)
    return tuple(doomed)


def _remove_unfinished(request: ViewRequest) -> None:
    """What a builder left behind that was killed: the lock says that it is not running."""
    for leftover in request.views.resolve().glob(f".{request.name}+*"):
        _remove(leftover)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _locked(request: ViewRequest) -> Iterator[None]:
    """One builder a name; the kernel frees the lock of a builder that died."""
    path = request.views / f".{request.name}.lock"
    deadline = time.monotonic() + LOCK_SECONDS
    with path.open("a+", encoding="utf-8") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _busy(path) from None
                time.sleep(0.05)
        stream.truncate(0)
        json.dump({"pid": os.getpid()}, stream)
        stream.flush()
        yield


def _busy(lock: Path) -> VllmHostError:
    holder = "another process"
    with contextlib.suppress(OSError, ValueError, KeyError):
        holder = f"process {json.loads(lock.read_text(encoding='utf-8'))['pid']}"
    return VllmHostError(
        "views_busy",
        f"{lock.parent} is being changed by {holder} for more than {LOCK_SECONDS} s. Wait until it has finished and run again.",
        path=str(lock.parent),
    )


def require_view_name(name: str) -> None:
    """Raises ``view_name_invalid``."""
    if not _NAME.fullmatch(name):
        raise VllmHostError(
            "view_name_invalid",
            f"name {name[:200]!r} must be at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit.",
            name=name[:200],
        )


def _check_places(request: ViewRequest) -> None:
    require_view_name(request.name)
    views, snapshot = request.views.resolve(), request.snapshot.folder
    if views == snapshot or snapshot in views.parents or views in snapshot.parents:
        raise VllmHostError(
            "views_misplaced",
            f"the views ({views}) and the snapshot ({snapshot}) must not contain each other.",
            views=str(views),
            snapshot=str(snapshot),
        )


def _explain(error: OSError, request: ViewRequest) -> VllmHostError:
    where = f"{request.views} ({error.filename or error.strerror})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return VllmHostError(
            "disk_full",
            f"no space left in {where}; a view needs a few hundred kilobytes and an inode a file. Free some and run again: what is"
            " served did not change.",
            path=str(request.views),
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return VllmHostError(
            "views_not_writable",
            f"{where} cannot be written. Put the views on a writable file system, or run as root: what is served did not change.",
            path=str(request.views),
        )
    return VllmHostError(
        "views_failed",
        f"{where} failed with {error.strerror}. What is served did not change; look at the file system and run again.",
        path=str(request.views),
    )
