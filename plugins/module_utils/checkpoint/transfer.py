# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One file from the Hub into its place: resumed, retried, proved, and only then named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Union

from ..errors import VllmHostError
from .folder import Folder
from .hub import Hub, Trouble
from .part import PartFile
from .tree import TreeFile
from .xet import XetHub

FILE_MODE = 0o444
MOST_MISMATCHES = 3  # a file that is wrong three times over will not become right


Source = Union[Hub, XetHub, Folder]


class Stopped(Exception):
    """The run was told to stop; what was received is kept."""


class Tally:
    """Called with bytes as they come; ``forget`` when they turn out to be of no use."""

    def received(self, count: int) -> None:
        """Bytes that came just now."""

    def resumed(self, count: int) -> None:
        """Bytes that an earlier run left."""

    def forget(self, count: int) -> None:
        """Bytes counted before that are to come again."""


def fetch_file(hub: Source, file: TreeFile, commit: str, part_path: Path, target: Path, tally: Tally) -> None:
    """Download one file to ``target``.

    A row of failures without a single byte of progress ends it; any byte renews the budget. Bytes that end at another digest than the
    tree's are thrown away and fetched again.

    Raises:
        VllmHostError: ``transfer_failed``, ``content_mismatch``, ``disk_full``, or what the Hub refuses.
        Stopped: the gate was told to stop.
    """
    failures = mismatches = 0
    location: str | None = None
    with PartFile(part_path, file.size, file.hasher()) as part:
        tally.resumed(part.offset)
        while True:
            before = part.offset
            try:
                if part.offset < file.size:
                    location = _receive(hub, file, commit, part, location, tally)
            except Trouble as trouble:
                # Progress renews the budget; a signed URL is only good as long as it works.
                failures = 0 if part.offset > before else failures + trouble.counts
                location = None
                if trouble.restart:
                    tally.forget(part.offset)
                    part.start_again()
                if failures >= hub.policy.attempts:
                    raise VllmHostError(
                        "transfer_failed",
                        f"{file.path}: {trouble.reason}; {failures} attempts in a row without a byte. What was received is kept: "
                        "run again when the cause is gone.",
                        file=file.path,
                        received=part.offset,
                        reason=trouble.reason,
                    ) from None
                if not hub.gate.wait(hub.policy.pause_s(failures) if failures else 0.0):
                    raise Stopped from None
                continue
            part.complete()
            if part.digest == file.digest:
                place(part, target)
                return
            mismatches += 1
            found = part.digest
            tally.forget(part.offset)
            part.start_again()
            location = None
            if mismatches == MOST_MISMATCHES:
                part_path.unlink()
                raise mismatch(file, found)


def _receive(
    hub: Source, file: TreeFile, commit: str, part: PartFile, location: str | None, tally: Tally
) -> str | None:
    """Append what one answer gives; returns the URL that gave it.

    Raises:
        Trouble: before the file's end.
    """
    if not hub.gate.wait():
        raise Stopped
    with hub.content(file, commit, part.offset, location) as content:
        if content.start != part.offset:
            # Asked for a range, given the whole file.
            tally.forget(part.offset)
            part.start_again()
        while count := content.read_into(part.space()):
            part.received(count)
            tally.received(count)
            if hub.gate.stopped.is_set():
                raise Stopped
        if part.offset != file.size:
            raise Trouble(f"the answer ended after {part.offset} of {file.size} bytes")
        return content.location


def place(part: PartFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part.move_to(target, FILE_MODE)


def mismatch(file: TreeFile, found: str) -> VllmHostError:
    kind = "sha256" if file.sha256 else "git blob id"
    return VllmHostError(
        "content_mismatch",
        f"{file.path}: {kind} is {found}, but the commit's tree says {file.digest}; fetched {MOST_MISMATCHES} times. "
        "The endpoint or something on the way to it damages files: use another one.",
        file=file.path,
        expected=file.digest,
        found=found,
    )


def hash_file(path: Path, file: TreeFile, stopped: Callable[[], bool] = lambda: False) -> str:
    """Digest of a file in the store, of the kind that its tree entry has.

    Raises:
        Stopped: when told so on the way.
    """
    hasher = file.hasher()
    with path.open("rb", buffering=0) as stream:
        buffer = bytearray(4 << 20)
        view = memoryview(buffer)
        while count := stream.readinto(buffer):
            hasher.update(view[:count])
            if stopped():
                raise Stopped
    return str(hasher.hexdigest())
