# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU's compute capability as people and NVML write it."""

from __future__ import annotations

import re
from typing import Any, Optional

_CAPABILITY = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?")


def parse_capability(text: Any) -> Optional[tuple[int, int]]:
    """``12.0`` or ``12`` to (12, 0); None for what is none, so that the caller says which of its options is wrong."""
    match = _CAPABILITY.fullmatch(str(text))
    return (int(match[1]), int(match[2] or 0)) if match else None
