# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a unit's journal as a stream."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import IO, cast

from ..errors import VllmHostError


@contextlib.contextmanager
def journal_lines(unit: str, invocation_id: str = "", newest: int = 0) -> Iterator[Iterator[str]]:
    """The messages of a unit, oldest first, without the journal's own prefix.

    Args:
        unit: name of the unit.
        invocation_id: only of this start, with what systemd says about it; empty for all of this boot.
        newest: at most that many of the newest lines; 0 for all.

    Raises:
        VllmHostError: ``journal_unreadable`` with what journalctl said.
    """
    # "_SYSTEMD_INVOCATION_ID" marks the lines of the unit's processes, "INVOCATION_ID" those of systemd about the unit.
    command = ["journalctl", "--no-pager", "--quiet", "--all", "--output=cat"]
    if newest:
        command.append(f"--lines={newest}")
    if invocation_id:
        command += [f"_SYSTEMD_INVOCATION_ID={invocation_id}", "+", f"INVOCATION_ID={invocation_id}"]
    else:
        command += ["--boot", f"--unit={unit}"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise VllmHostError("journal_unreadable", f"journalctl cannot be run: {error}", unit=unit) from error
    with process:
        yield cast(IO[str], process.stdout)
        said = cast(IO[str], process.stderr).read().strip()
    if process.returncode > 0 and said:  # negative: ended by closing its output early
        raise VllmHostError("journal_unreadable", f"journalctl cannot read the journal of {unit}: {said}", unit=unit)
