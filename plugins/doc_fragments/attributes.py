# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Attributes shared by the modules: C(attributes), C(attributes.info_module)."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
  diff_mode:
    description: Returns details on what has changed (or would change) when in diff mode.
  idempotent:
    description: When run twice in a row with the same arguments, the second invocation indicates that nothing changed.
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode); this module never changes the target.
    support: full
  diff_mode:
    description: This module never changes the target, so there is no difference to show.
    support: N/A
  idempotent:
    description: This module never changes the target.
    support: full
"""
