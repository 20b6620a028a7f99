# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A commit of a repository into the store: look, decide, fetch what is missing, prove it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import VllmHostError
from .folder import Folder
from .hub import Hub, HubUnreachable, is_offline
from .manifest import Manifest, ManifestFile, sync_folder, utc_now, write_manifest
from .progress import Progress
from .retry import Gate, RetryPolicy
from .store import Store
from .transfer import FILE_MODE, Source, Stopped, fetch_file, hash_file
from .tree import SHA1, TreeFile, select
from .xet import over_xet

# These end the run at once: they would meet every other file as well.
FATAL = frozenset({"disk_full", "token_refused", "repo_gated", "repo_not_found", "access_denied", "rate_limited"})
FEW_ATTEMPTS = 2  # to resolve a branch whose last commit is complete on disk
NAMED_FILES = 8  # so many files are listed by name in a message


@dataclass(frozen=True)
class FetchRequest:
    """What to fetch and how; the options of the module checkpoint_fetch, which documents them."""

    repo_id: str
    revision: str
    store: str
    endpoint: str = ""
    source: str = ""
    xet: bool = False
    token: str = field(default="", repr=False)
    allow_patterns: list[str] = field(default_factory=list)
    ignore_patterns: list[str] = field(default_factory=list)
    workers: int = 8
    verify: str = "size"
    timeout_s: float = 30.0
    space_margin_bytes: int = 1 << 30
    policy: RetryPolicy = RetryPolicy()


@dataclass
class Plan:
    """What is there and what is not.

    Attributes:
        wanted: the files of the commit that were asked for.
        missing: those of them that have to be fetched.
        manifest: of the snapshot as it is now; its ``files`` are exactly what was found right.
        settled: nothing has to be written at all.
    """

    commit: str
    tree: list[TreeFile]
    wanted: list[TreeFile]
    missing: list[TreeFile]
    manifest: Manifest
    before: Manifest | None
    settled: bool
    warnings: list[str] = field(default_factory=list)

    @property
    def bytes_total(self) -> int:
        return sum(file.size for file in self.wanted)

    @property
    def bytes_missing(self) -> int:
        return sum(file.size for file in self.missing)


@dataclass
class FetchResult:
    path: str
    commit: str
    bytes_total: int
    bytes_downloaded: int
    bytes_resumed: int
    bytes_to_download: int
    files: list[dict[str, Any]]
    changed: bool
    warnings: list[str]


def fetch(
    request: FetchRequest,
    check_mode: bool = False,
    gate: Gate | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> FetchResult:
    """Converge the snapshot.

    Args:
        check_mode: only ask the Hub and look at the disk; write nothing.
        gate: set its ``stopped`` to end early; what was received is kept.
        watch: called about once a second while bytes move.

    Raises:
        VllmHostError: see the codes in the functions below. Stopped.
    """
    gate = gate or Gate()
    store = Store(Path(request.store), request.repo_id)
    hub = open_source(request, gate)
    try:
        plan = make_plan(request, store, hub, gate)
        if plan.settled and request.verify == "full" and not check_mode:
            # Nothing changed but the dates of the proof.
            with store.locked(f"checkpoint_fetch {request.repo_id}"):
                write_manifest(store.snapshot(plan.commit), plan.manifest)
        if check_mode or plan.settled:
            return _result(store, plan, changed=not plan.settled, to_download=plan.bytes_missing)
        with store.locked(f"checkpoint_fetch {request.repo_id}"):
            if store.manifest(plan.commit) != plan.before:
                # Somebody else has fetched since the first look.
                plan = look(request, store, plan.commit, plan.tree, gate, plan.warnings)
            progress = Progress(
                plan.bytes_total,
                plan.bytes_total - plan.bytes_missing,
                len(plan.wanted),
                len(plan.wanted) - len(plan.missing),
            )
            watch(progress)
            _converge(request, store, hub, plan, progress, watch)
        return _result(store, plan, changed=True, progress=progress, notes=hub.notes)
    finally:
        hub.close()


def open_source(request: FetchRequest, gate: Gate) -> Source:
    if request.source:
        return Folder(Path(request.source), request.repo_id, request.policy, gate)
    hub = Hub(request.repo_id, request.endpoint, request.token, request.policy, request.timeout_s, gate)
    return over_xet(hub) if request.xet else hub


def settled(request: FetchRequest) -> FetchResult | None:
    """The result if nothing has to be written, found without reading a shard; None if there is work (or a proof) to do."""
    if request.verify == "full":
        return None
    result = fetch(request, check_mode=True)
    return None if result.changed else result


def make_plan(request: FetchRequest, store: Store, hub: Source, gate: Gate) -> Plan:
    """Ask the Hub what the commit holds, and the disk what is there.

    A commit never changes: one that was listed before and is complete needs no Hub. When the Hub is down, a complete snapshot will do.

    Raises:
        VllmHostError: ``snapshot_incomplete``: the Hub is down, and files are missing; ``no_files_match``; what the Hub refuses.
    """
    pinned = request.revision if SHA1.fullmatch(request.revision) else None
    known = pinned or store.read_ref(request.revision)
    tree = store.read_tree(known) if known else None
    plan = look(request, store, known, tree, gate) if known and tree is not None else None
    will_do = plan is not None and not plan.missing
    if plan and pinned and will_do:
        return plan
    try:
        if is_offline() and not request.source:
            raise HubUnreachable("hub_offline", "HF_HUB_OFFLINE is set.", reason="HF_HUB_OFFLINE is set")
        commit = hub.commit(request.revision, attempts=FEW_ATTEMPTS if will_do else request.policy.attempts)
        if plan and commit == known:
            return plan
        return look(request, store, commit, hub.tree(commit), gate)
    except HubUnreachable as down:
        if plan is None:
            raise
        return _without_hub(request, store, plan, down)


def _without_hub(request: FetchRequest, store: Store, plan: Plan, down: HubUnreachable) -> Plan:
    if plan.missing:
        raise VllmHostError(
            "snapshot_incomplete",
            f"{store.snapshot(plan.commit)} lacks {_named(plan.missing)}, and {down.message}",
            missing=[file.path for file in plan.missing],
            cause=down.as_result()["failure"],
        ) from down
    plan.warnings.append(
        f"revision {request.revision!r} could not be resolved ({down.details['reason']}); "
        f"the commit that it last meant, {plan.commit}, is complete and is used"
    )
    return plan


def look(
    request: FetchRequest, store: Store, commit: str, tree: list[TreeFile], gate: Gate, warnings: Sequence[str] = ()
) -> Plan:
    """Compare the snapshot on disk with the tree, as far as ``verify`` says. Reads no file under ``size`` that a manifest vouches for."""
    wanted = select(tree, request.allow_patterns, request.ignore_patterns)
    if not wanted:
        raise VllmHostError(
            "no_files_match",
            f"none of the {len(tree)} files of {request.repo_id} matches allow_patterns {request.allow_patterns} and "
            f"ignore_patterns {request.ignore_patterns}.",
        )
    wanted_paths = {file.path for file in wanted}
    snapshot = store.snapshot(commit)
    before = store.manifest(commit)
    manifest = Manifest(request.repo_id, before.revision if before else request.revision, commit)
    missing = []
    for file in tree:
        vouched = before.files.get(file.path) if before else None
        proved = _prove(
            snapshot / file.path, file, vouched, request.verify if file.path in wanted_paths else "size", gate
        )
        if proved:
            manifest.files[file.path] = proved
        elif vouched or file.path in wanted_paths:
            # What was there once and is lost or damaged comes back, even if this run did not ask for it.
            missing.append(file)
    manifest.complete = not missing
    settled = (
        before is not None
        and manifest.complete
        and before.complete
        and set(before.files) == set(manifest.files)
        and commit in (request.revision, store.read_ref(request.revision))
        and store.read_tree(commit) is not None
    )
    return Plan(commit, tree, wanted, missing, manifest, before, settled, list(warnings))


def _prove(path: Path, file: TreeFile, vouched: ManifestFile | None, verify: str, gate: Gate) -> ManifestFile | None:
    """The manifest's entry for a file that is right, as far as asked; None for one that has to be fetched."""
    known = vouched if vouched and (vouched.digest, vouched.size) == (file.digest, file.size) else None
    if known and verify == "never":
        return known
    try:
        if path.lstat().st_size != file.size:
            return None
    except OSError:
        return None
    if known and verify == "size":
        return known
    if hash_file(path, file, gate.stopped.is_set) != file.digest:
        return None
    return _entry(file)


def _entry(file: TreeFile) -> ManifestFile:
    return ManifestFile(file.path, file.size, file.sha256, None if file.sha256 else file.git_oid, utc_now())


def _converge(
    request: FetchRequest, store: Store, hub: Source, plan: Plan, progress: Progress, watch: Callable[[Progress], None]
) -> None:
    """Fetch all that is missing, whatever becomes of single files; then raise what went wrong."""
    _require_space(request, store, plan)
    snapshot = store.snapshot(plan.commit)
    snapshot.mkdir(parents=True, exist_ok=True)
    store.partial.mkdir(exist_ok=True)
    store.write_tree(plan.commit, plan.tree)
    # From here until the end the snapshot is incomplete for everybody, also after kill -9.
    write_manifest(snapshot, plan.manifest)
    for file in plan.missing:
        source = _elsewhere(request, store, plan.commit, file)
        if source:
            _link(source, store.part(file), snapshot / file.path)
            _record(snapshot, plan, file, progress)
            progress.found(file.size)
    failed = _fetch_all(request, store, hub, plan, progress, watch)
    if failed:
        raise _failure(plan, failed)
    plan.manifest.complete = True
    write_manifest(snapshot, plan.manifest)
    store.write_ref(request.revision, plan.commit)
    _drop_parts(store)


def _fetch_all(
    request: FetchRequest, store: Store, hub: Source, plan: Plan, progress: Progress, watch: Callable[[Progress], None]
) -> dict[str, VllmHostError]:
    """Workers over the files, the largest first; path -> error for those that failed."""
    snapshot = store.snapshot(plan.commit)
    groups: dict[str, list[TreeFile]] = {}
    for file in sorted(plan.missing, key=lambda file: -file.size):
        if file.path not in plan.manifest.files:
            groups.setdefault(file.digest, []).append(file)
    failed: dict[str, VllmHostError] = {}
    lock = threading.Lock()

    def work(files: list[TreeFile]) -> None:
        """One content, under all the names that it has in this commit."""
        first, *others = files
        try:
            fetch_file(hub, first, plan.commit, store.part(first), snapshot / first.path, progress)
            for other in others:
                _link(snapshot / first.path, store.part(other), snapshot / other.path)
                progress.found(other.size)
            with lock:
                for file in files:
                    _record(snapshot, plan, file, progress)
        except VllmHostError as error:
            # Without its traceback, which would keep the file's buffer.
            failed[first.path] = VllmHostError(error.code, error.message, **error.details)
            if error.code in FATAL:
                hub.gate.stopped.set()

    with ThreadPoolExecutor(max(1, request.workers), thread_name_prefix="fetch") as pool:
        running: set[Future[None]] = {pool.submit(work, files) for files in groups.values()}
        try:
            while running:
                done = {future for future in running if future.done()}
                running -= done
                for future in done:
                    if not isinstance(future.exception(), Stopped):
                        future.result()
                watch(progress)
                if running:
                    wait(running, 1.0, FIRST_COMPLETED)
        except BaseException:
            hub.gate.stopped.set()
            raise
    if hub.gate.stopped.is_set() and not failed:
        raise Stopped
    return failed


def _record(snapshot: Path, plan: Plan, file: TreeFile, progress: Progress) -> None:
    plan.manifest.files[file.path] = _entry(file)
    write_manifest(snapshot, plan.manifest)
    progress.file_done()


def _elsewhere(request: FetchRequest, store: Store, commit: str, file: TreeFile) -> Path | None:
    """Where another snapshot of this repository holds the same content: two commits mostly share their shards."""
    for other in store.commits():
        manifest = store.manifest(other) if other != commit else None
        for entry in manifest.files.values() if manifest else ():
            path = store.snapshot(other) / entry.path
            if entry.digest != file.digest or not path.is_file() or path.stat().st_size != file.size:
                continue
            if request.verify != "full" or hash_file(path, file) == file.digest:
                return path
    return None


def _link(source: Path, aside: Path, target: Path) -> None:
    """The same content under a second name, made ``aside`` first; a copy where the filesystem has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        shutil.copyfile(source, aside)
        aside.chmod(FILE_MODE)
    aside.replace(target)
    sync_folder(target.parent)


def _require_space(request: FetchRequest, store: Store, plan: Plan) -> None:
    """Raises ``disk_space`` before the first byte if what is missing, less what parts already occupy, does not fit."""
    contents = {file.digest: file for file in plan.missing}
    contents = {digest: file for digest, file in contents.items() if not _elsewhere(request, store, plan.commit, file)}
    occupied = 0
    for file in contents.values():
        try:
            occupied += min(store.part(file).stat().st_blocks * 512, file.size)
        except OSError:
            continue
    needed = sum(file.size for file in contents.values()) - occupied
    free = shutil.disk_usage(store.folder).free
    if needed and needed + request.space_margin_bytes > free:
        raise VllmHostError(
            "disk_space",
            f"{store.folder}: {_gb(needed)} still have to be fetched and {_gb(request.space_margin_bytes)} are to stay free, but only {_gb(free)} "
            "are. Make room, or choose another store; nothing was fetched.",
            path=str(store.folder),
            bytes_needed=needed,
            bytes_free=free,
        )


def _drop_parts(store: Store) -> None:
    """Nothing is on its way any more: whatever is left was given up by earlier runs."""
    for part in store.partial.iterdir():
        part.unlink()


def _failure(plan: Plan, failed: dict[str, VllmHostError]) -> VllmHostError:
    """One error for the run: the fatal one if there is one, else the first, with all others named."""
    first = next((error for error in failed.values() if error.code in FATAL), next(iter(failed.values())))
    if len(failed) == 1 or first.code in FATAL:
        return VllmHostError(
            first.code, first.message, **first.details, failed={path: e.code for path, e in failed.items()}
        )
    return VllmHostError(
        first.code,
        f"{len(failed)} files could not be fetched: {_shortened(sorted(failed))}. All others are in place. The first: {first.message}",
        **first.details,
        failed={path: error.message for path, error in failed.items()},
    )


def _result(
    store: Store,
    plan: Plan,
    changed: bool,
    progress: Progress | None = None,
    notes: set[str] | None = None,
    to_download: int = 0,
) -> FetchResult:
    return FetchResult(
        path=str(store.snapshot(plan.commit)),
        commit=plan.commit,
        bytes_total=plan.bytes_total,
        bytes_downloaded=progress.bytes_downloaded if progress else 0,
        bytes_resumed=progress.bytes_resumed if progress else 0,
        bytes_to_download=to_download,
        files=[{"path": f.path, "size": f.size, "digest": f.digest} for f in plan.wanted],
        changed=changed,
        warnings=plan.warnings + sorted(notes or ()),
    )


def _named(files: list[TreeFile]) -> str:
    return f"{len(files)} files ({_shortened([file.path for file in files])})"


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_FILES} more" if len(names) > NAMED_FILES else ""
    return ", ".join(names[:NAMED_FILES]) + more


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
