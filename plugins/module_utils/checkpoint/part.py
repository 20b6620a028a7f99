# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file on its way: ``partial/<digest>.part``, whose length says from where to go on.

Large aligned writes go past the page cache (O_DIRECT) where the filesystem allows: on the reference machine the same bytes
take a fifth of the time of buffered writes with fsync (docs/benchmarks/checkpoint_fetch.md). Space is reserved without
changing the length, so after kill -9 or a power loss the length is what was really written, whole blocks of it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import time
from pathlib import Path
from typing import Any

from ..errors import VllmHostError
from .manifest import sync_folder

BLOCK = 4096  # alignment that O_DIRECT needs on every disk in use
BUFFER_BYTES = 8 << 20
LONGEST_IN_MEMORY_S = 0.5  # bounds what a kill can lose over a slow line
FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h
NO_SUPPORT = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class PartFile:
    """Append-only, hashed as it grows. Use as a context manager; leaving it keeps what was written.

    Args:
        path: of the part.
        size: bytes of the finished file.
        hasher: a fresh hash object for it.
    """

    def __init__(self, path: Path, size: int, hasher: Any) -> None:
        self.path = path
        self.size = size
        self._fresh = hasher.copy
        self._hasher = hasher
        # Anonymous memory begins at a page, as O_DIRECT needs it.
        self._view = memoryview(mmap.mmap(-1, max(BLOCK, min(BUFFER_BYTES, -(-size // BLOCK) * BLOCK))))
        self._filled = 0
        self._written = 0
        self._flushed_at = 0.0
        self._descriptor = -1

    def __enter__(self) -> PartFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self.path, flags | os.O_DIRECT, 0o600)
        except OSError as error:
            if error.errno not in NO_SUPPORT:
                raise
            self._descriptor = os.open(self.path, flags, 0o600)
        try:
            self._take_up()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """Keep the whole blocks that are still in the buffer, so that little is fetched twice."""
        try:
            self._flush(whole_blocks=True)
        except (OSError, VllmHostError):
            pass  # a full disk: what was written before is kept
        finally:
            os.close(self._descriptor)

    @property
    def offset(self) -> int:
        """Bytes received so far."""
        return self._written + self._filled

    @property
    def digest(self) -> str:
        return str(self._hasher.hexdigest())

    def space(self) -> memoryview:
        """Where the next bytes go; ``received`` then says how many came.

        Raises:
            VllmHostError: ``disk_full``.
        """
        if self._filled == len(self._view):
            self._flush(whole_blocks=False)
        return self._view[self._filled :]

    def received(self, count: int) -> None:
        """Take up what was put into ``space``; hashed now, while the processor still has it at hand.

        Raises:
            VllmHostError: ``disk_full``.
        """
        self._hasher.update(self._view[self._filled : self._filled + count])
        self._filled += count
        if self._filled > BLOCK and time.monotonic() - self._flushed_at > LONGEST_IN_MEMORY_S:
            self._flush(whole_blocks=True)

    def start_again(self) -> None:
        """Forget everything that was received."""
        self._filled = self._written = 0
        self._hasher = self._fresh()
        os.ftruncate(self._descriptor, 0)
        self._reserve()

    def complete(self) -> None:
        """Write the rest and make it durable; ``digest`` is then final."""
        self._flush(whole_blocks=False)
        os.fsync(self._descriptor)

    def move_to(self, target: Path, mode: int) -> None:
        """Give the finished file its name, durably."""
        os.fchmod(self._descriptor, mode)
        self.path.replace(target)
        sync_folder(target.parent)

    def _take_up(self) -> None:
        """Go on after the last whole block of an earlier run: hash what is there, reserve the rest."""
        there = os.fstat(self._descriptor).st_size
        kept = there // BLOCK * BLOCK if there <= self.size else 0
        if kept != there:
            os.ftruncate(self._descriptor, kept)
        self._hasher = self._fresh()
        while self._written < kept:
            view = self._view[: min(len(self._view), kept - self._written)]
            count = os.preadv(self._descriptor, [view], self._written)
            if count <= 0:
                raise OSError(errno.EIO, "the part became shorter while it was read", str(self.path))
            self._hasher.update(view[:count])
            self._written += count
        self._reserve()

    def _reserve(self) -> None:
        """Reserve the blocks of the whole file, so that a full disk shows now and the file is not scattered."""
        if self.size < BUFFER_BYTES:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        offset, length = ctypes.c_int64(0), ctypes.c_int64(self.size)
        if libc.fallocate64(self._descriptor, FALLOC_FL_KEEP_SIZE, offset, length) != 0:
            number = ctypes.get_errno()
            if number == errno.ENOSPC:
                raise self._disk_full()
            if number not in NO_SUPPORT:
                raise OSError(number, os.strerror(number), str(self.path))

    def _flush(self, whole_blocks: bool) -> None:
        """Write the buffer; with ``whole_blocks`` an incomplete last block stays in it."""
        self._flushed_at = time.monotonic()
        count = self._filled // BLOCK * BLOCK if whole_blocks else self._filled
        done = 0
        while done < count:
            done += self._pwrite(self._view[done:count], self._written + done)
        self._written += count
        self._filled -= count
        if self._filled:
            self._view[: self._filled] = bytes(self._view[count : count + self._filled])

    def _pwrite(self, view: memoryview, offset: int) -> int:
        aligned = len(view) // BLOCK * BLOCK
        try:
            if aligned and offset % BLOCK == 0:
                return os.pwrite(self._descriptor, view[:aligned], offset)
            self._leave_direct_mode()  # the last bytes of the file do not fill a block
            return os.pwrite(self._descriptor, view, offset)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._disk_full() from error
            if error.errno == errno.EINVAL and self._leave_direct_mode():
                return os.pwrite(self._descriptor, view, offset)
            raise

    def _leave_direct_mode(self) -> bool:
        """Switch to buffered writes; False if they already are."""
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return bool(flags & os.O_DIRECT)

    def _disk_full(self) -> VllmHostError:
        return VllmHostError(
            "disk_full",
            f"the filesystem of {self.path.parent} is full. What was fetched so far is kept: make room and run again.",
            path=str(self.path.parent),
        )
