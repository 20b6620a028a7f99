# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one error type of the collection, so that every failure has a code, details and a remedy."""

from __future__ import annotations

from typing import Any


class VllmHostError(Exception):
    """A failure that an operator can act on.

    Args:
        code: stable, snake_case; documented in docs/troubleshooting.md and asserted on by tests.
        message: what happened, where, and what to do; never contains a secret.
        details: JSON-serialisable facts for machines (file, key, expected, found, ...).
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, Any] = details

    def as_result(self) -> dict[str, Any]:
        """Arguments for ``AnsibleModule.fail_json``."""
        return {"msg": self.message, "failure": {"code": self.code, "details": self.details}}
