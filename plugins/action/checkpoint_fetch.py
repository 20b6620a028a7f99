# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for a transfer that runs on the host by itself, and show on the controller how far it is.

Each look is one short run of the module. A lost connection ends neither the transfer nor the waiting: the next look tries again.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.checkpoint.progress import progress_line

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
LONGEST_SILENCE_S = 600.0  # the host may be unreachable for so long before the task gives up

display = Display()


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = dict(self._task.args)
        if self._task.check_mode or not boolean(options.get("background", False), strict=False):
            result.update(self._look(options, task_vars))
            return result
        interval = float(options.get("progress_interval", 30))
        host = (task_vars or {}).get("inventory_hostname", "")
        pause, shown = FIRST_PAUSE_S, time.monotonic()
        while True:
            look = self._patient_look(options, task_vars)
            if look.get("failed") or look.get("finished", True):
                result.update(look)
                return result
            options["job"] = look["job"]
            if look.get("progress") and time.monotonic() - shown >= interval:
                shown = time.monotonic()
                display.display(progress_line(look["progress"], host))
            line_due = max(FIRST_PAUSE_S, shown + interval - time.monotonic())
            time.sleep(min(pause, interval, line_due))
            pause = min(pause * 1.5, LONGEST_PAUSE_S)

    def _patient_look(self, options: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        lost_at: float | None = None
        while True:
            try:
                return self._look(options, task_vars)
            except AnsibleConnectionFailure:
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now
                    display.display("Connection lost; the transfer goes on without it. Trying again.")
                if now - lost_at > LONGEST_SILENCE_S:
                    raise
                time.sleep(LONGEST_PAUSE_S)
                self._connection.reset()

    def _look(self, options: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return dict(self._execute_module("gpuhost.vllm.checkpoint_fetch", module_args=options, task_vars=task_vars))
