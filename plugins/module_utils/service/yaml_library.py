# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PyYAML, which the tools environment has and another Python of the host may lack."""

from __future__ import annotations

from typing import Any

from ..errors import VllmHostError


def import_yaml() -> Any:
    """The ``yaml`` module; raises VllmHostError ``yaml_missing``."""
    try:
        import yaml
    except ImportError as error:
        raise VllmHostError(
            "yaml_missing", "This Python has no PyYAML: run the module with the interpreter of the role tools."
        ) from error
    return yaml
