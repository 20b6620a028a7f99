# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the row of releases_data for a vLLM release, and say so when it is only the nearest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional

from ..errors import VllmHostError
from .releases_data import FIRST_KNOWN, LAST_KNOWN, RELEASES

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?!\d)[\w.+-]*")


@dataclass(frozen=True)
class Release:
    """One row of releases_data, and what must be said about its use.

    Attributes:
        version: as asked for.
        since: the release of the last change that applies; the other attributes are described in releases_data.
        note: None when the row is known to hold, else the sentence that a report must carry.
    """

    version: str
    since: str
    hybrid_need: str
    printed_tokens: str
    group_padding: float
    counts_batches_in_flight: bool
    null_block: bool
    hybrid_prefix_caching: bool
    mamba_mode: str
    prefill_checkpoint: bool
    hybrid_mla_block: int
    aligns_mixed_types: bool
    big_gpu_tier: bool
    gpu_memory_utilization: float
    note: Optional[str]


def parse_version(version: str) -> tuple[int, int, int]:
    """``0.32.0``, ``v0.32`` or ``0.33.0rc1+cu130`` to (0, 32, 0).

    Raises:
        VllmHostError: ``bad_value`` when it is no version.
    """
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise VllmHostError(
            "bad_value",
            f"vllm_version must be a release such as 0.32.0, not {str(version)[:100]!r}.",
            key="vllm_version",
            found=repr(version)[:100],
        )
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def release_text(version: Any) -> str:
    """A release as the user gave it, when it is one beyond doubt: YAML reads 0.30 without quotes as the number 0.3.

    Raises:
        VllmHostError: ``bad_value``, for a number and for what a number looks like that became text on the way (``0.3``).
    """
    number = isinstance(version, (int, float))
    if number or (isinstance(version, str) and re.fullmatch(r"\s*\d(\.\d)?\s*", version)):
        raise VllmHostError(
            "bad_value",
            f"vllm_version is {'the number ' if number else ''}{version}, not a release: YAML drops the zero at the end of a number. Quote"
            " it, with all three parts: vllm_version: '0.30.0'.",
            key="vllm_version",
            found=repr(version),
        )
    if not isinstance(version, str):
        parse_version(version)
    return str(version).strip()


def find_release(version: str) -> Release:
    """The row that holds for a release; beyond the known ones the nearest, with a note.

    Raises:
        VllmHostError: ``bad_value`` when ``version`` is no version.
    """
    wanted = parse_version(version)
    row = dict(RELEASES[0])
    for change in RELEASES:
        if parse_version(change["since"]) <= wanted:
            row.update(change)
    note = None
    if wanted < parse_version(FIRST_KNOWN):
        note = (
            f"vLLM {version} is older than any release whose KV-cache arithmetic is known here ({FIRST_KNOWN} to {LAST_KNOWN}):"
            f" the rules of {FIRST_KNOWN} were used."
        )
    elif wanted > parse_version(LAST_KNOWN):
        note = (
            f"vLLM {version} is newer than any release whose KV-cache arithmetic is known here ({FIRST_KNOWN} to {LAST_KNOWN}):"
            f" the rules of {LAST_KNOWN} were used."
        )
    return Release(version=version, note=note, **row)
