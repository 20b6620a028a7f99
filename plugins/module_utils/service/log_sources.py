# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Triage of a file and of a unit's journal."""

from __future__ import annotations

from pathlib import Path

from ..errors import VllmHostError
from .journal import journal_lines
from .log_triage import STARTING, Triage, triage
from .systemd import unit_state

_LINES_OF_EARLIER_STARTS = 50_000


def triage_file(path: Path) -> Triage:
    """Read a log file; raises ``log_unreadable``."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return triage(lines)
    except OSError as error:
        raise VllmHostError("log_unreadable", f"{path} cannot be read: {error.strerror}.", path=str(path)) from error


def triage_unit(unit: str, whole_boot: bool = False) -> Triage:
    """Read the journal of a unit's last start, or of this boot.

    A unit that systemd restarts again and again has said little in its present start: then the starts before are read too, and
    ``previous_cause`` holds what ended the last one. Raises ``unit_not_found``.
    """
    state = unit_state(unit)
    if state.load in ("", "not-found"):
        raise VllmHostError(
            "unit_not_found", f"There is no unit {unit} on this host: is the instance's name right?", unit=unit
        )
    if whole_boot or not state.invocation:
        with journal_lines(unit) as lines:
            return triage(lines)
    with journal_lines(unit, state.invocation) as lines:
        last = triage(lines)
    if last.verdict == STARTING and state.restarts:
        with journal_lines(unit, newest=_LINES_OF_EARLIER_STARTS) as lines:
            return triage(lines)
    return last
