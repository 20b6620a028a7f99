# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan looks at on the machine where it runs: the checkpoint's metadata, wherever they are, and the disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ..checkpoint.store import Store
from ..checkpoint.tree import SHA1
from ..errors import VllmHostError
from .attention_backends import AMX
from .budget_options import read_checkpoint
from .checkpoint_metadata import CheckpointMetadata, read_local_checkpoint
from .deployment_plan import Disk

#: Failures of a Hub with which a checkpoint that is already here will do.
_HUB_DOWN = ("hub_unreachable", "hub_failed", "hub_offline")


def look_at_checkpoint(params: Mapping[str, Any], store: str) -> CheckpointMetadata:
    """Metadata of the model: from the store if its commit is complete there, else from the Hub.

    Args:
        params: the source options of the module.
        store: the root of the checkpoints; empty to look at the Hub only.

    Raises:
        VllmHostError: of the readers. When the Hub is down, what the store has will do.
    """
    repo_id, revision = params["repo_id"], params["revision"]
    if not repo_id or not store:
        return read_checkpoint(params)
    place = Store(Path(store), repo_id)
    if SHA1.fullmatch(revision) and _is_complete(place, revision):
        return _from_store(place, revision)
    try:
        return read_checkpoint(params)
    except VllmHostError as error:
        known = place.read_ref(revision) or ""
        if error.code not in _HUB_DOWN or not _is_complete(place, known):
            raise
        note = f"the Hub does not answer; {repo_id} is planned from commit {known[:12]}, which is here"
        found = _from_store(place, known)
        return replace(found, notes=(*found.notes, note))


def look_at_disk(params: Mapping[str, Any], store: str, checkpoint: CheckpointMetadata) -> Disk:
    """Free space where the checkpoint would go, and what of it is there."""
    if not params["repo_id"]:
        return Disk(present_bytes=checkpoint.bytes_total)
    if not store:
        return Disk()
    place = Store(Path(store), params["repo_id"])
    free = shutil.disk_usage(_nearest_folder(Path(store))).free
    return Disk(store, free, min(checkpoint.bytes_total, _present_bytes(place, checkpoint.commit)))


def look_at_processor(device: str, store: str, cpuinfo: str = "/proc/cpuinfo") -> tuple[str, ...]:
    """What the processor has that changes vLLM's choice of attention on a CPU; nothing when this is not the host that will serve."""
    if device != "cpu" or not store:
        return ()
    try:
        flags = Path(cpuinfo).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    return (AMX,) if "amx_tile" in flags else ()


def look_at_memory(device: str, store: str, meminfo: str = "/proc/meminfo") -> Optional[int]:
    """Memory of the host that will serve on its CPU; None when this is not that host, or it does not say."""
    if device != "cpu" or not store:
        return None
    try:
        found = re.search(
            r"^MemTotal: +([0-9]{1,15}) kB$", Path(meminfo).read_text(encoding="ascii", errors="replace"), re.M
        )
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _is_complete(place: Store, commit: str) -> bool:
    """Every file of the commit's list is there with its size."""
    files = place.read_tree(commit) if commit else None
    if not files or place.manifest(commit) is None:
        return False
    folder = place.snapshot(commit)
    return all((folder / file.path).is_file() and (folder / file.path).stat().st_size == file.size for file in files)


def _from_store(place: Store, commit: str) -> CheckpointMetadata:
    found = read_local_checkpoint(str(place.snapshot(commit)))
    files = place.read_tree(commit) or []
    return replace(found, origin=place.repo_id, commit=commit, bytes_total=sum(file.size for file in files))


def _present_bytes(place: Store, commit: str) -> int:
    folders = [place.snapshot(commit), place.partial]
    return sum(
        item.stat().st_blocks * 512 if folder == place.partial else item.stat().st_size
        for folder in folders
        if folder.is_dir()
        for item in folder.rglob("*")
        if item.is_file() and not item.name.startswith(".")
    )


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
