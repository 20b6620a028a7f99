# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vLLM unit under systemd, as ``deployment`` starts, stops and removes it."""

from __future__ import annotations

import time

from ..errors import VllmHostError
from .ready import failure
from .systemd import journal, systemctl, unit_state


class SystemdService:
    """Implements ``deployment.Service``."""

    def is_running(self, unit: str) -> bool:
        return unit_state(unit).running

    def start(self, unit: str) -> float:
        """Start anew and wait: the unit's ExecStartPost returns when it is healthy. Returns seconds."""
        begun = time.time()
        # The start limit is for a service that fails by itself; whoever deploys has a reason to try again.
        systemctl("reset-failed", unit)
        refused = systemctl("restart", unit)
        seconds = time.time() - begun
        if refused:
            state = unit_state(unit)
            log = journal(unit, since=f"@{begun:.0f}")
            self.stop(unit)
            raise failure(unit, f"did not become healthy ({state.result})", seconds, log)
        return round(seconds, 1)

    def stop(self, unit: str) -> None:
        systemctl("stop", unit)
        systemctl("reset-failed", unit)

    def enable(self, unit: str) -> bool:
        """Start at boot; whether that is new."""
        if unit_state(unit).enabled == "enabled":
            return False
        systemctl("enable", unit)
        return True

    def remove(self, unit: str) -> None:
        systemctl("disable", "--now", unit)
        systemctl("reset-failed", unit)

    def reload(self) -> None:
        refused = systemctl("daemon-reload")
        if refused:
            raise VllmHostError("systemd_refused", f"systemctl daemon-reload failed: {refused}")
