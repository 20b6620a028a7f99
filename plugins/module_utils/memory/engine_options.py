# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Option names before vLLM is there to judge them: a slip of the pen is refused, for it would be planned as if it were not there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from ..errors import VllmHostError
from .engine_options_data import EARLIER_OPTIONS, OPTIONS

KNOWN = OPTIONS | EARLIER_OPTIONS
#: As difflib counts it: gpu_memory_utilisation has 0.95, tensor_parallel 0.86, max_seqs 0.80; names of different options are mostly below.
LIKENESS = 0.8


def nearest_option(name: str) -> Optional[str]:
    """The option that an unknown name was probably meant to be."""
    found = difflib.get_close_matches(name[:100], sorted(KNOWN), n=1, cutoff=LIKENESS)
    return found[0] if found else None


def unknown_options(names: Iterable[str]) -> list[str]:
    """Names that no release known here has; ``no_x`` is known where ``x`` is."""
    return [name for name in names if name not in KNOWN and name.removeprefix("no_") not in KNOWN]


def _shown(name: str) -> str:
    """In one line of ASCII, whatever somebody wrote."""
    return name if re.fullmatch(r"[A-Za-z0-9_.]{1,100}", name) else ascii(name)[1:-1][:100]


def judge_options(engine_args: Mapping[str, Any], whose: str, force: bool) -> list[str]:
    """What to tell of names that are not known.

    Args:
        engine_args: options in the spelling of Python.
        whose: what holds them, as the user wrote it (``vllm_engine_args``).
        force: names that look like a slip are told as well, not refused.

    Raises:
        VllmHostError: ``engine_argument_unknown`` for a name that is nearly one of vLLM's.
    """
    unknown = unknown_options(engine_args)
    nearest = {name: nearest_option(name) for name in unknown}
    slips = {name: near for name, near in nearest.items() if near}
    if slips and not force:
        told = ", ".join(f"'{_shown(name)}' (did you mean '{near}'?)" for name, near in list(slips.items())[:5])
        raise VllmHostError(
            "engine_argument_unknown",
            f"vLLM has no engine argument {told}. Correct {whose}, or set plan_force: true if this release has one of that name.",
            unknown=[{"argument": name, "nearest": near} for name, near in slips.items()],
        )
    if not unknown:
        return []
    hints = {name: f" (did you mean {near}?)" for name, near in slips.items()}
    shown = ", ".join(_shown(name) + hints.get(name, "") for name in sorted(unknown)[:10])
    return [f"not known to the plan: {shown} ({whose}); the role serve refuses what the installed vLLM does not know"]
