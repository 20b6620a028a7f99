"""Playbooks run from inside a test of a scenario, against the scenario's hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
# Molecule asks for colours, in whose codes no test finds its words.
PLAIN = {"ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}
ERROR = "[ERROR]: Task failed"


@dataclass(frozen=True)
class Run:
    """A finished playbook.

    Args:
        ok: it ended with 0. changed, failed: of the recap's first host; -1 without a recap.
        text: all that it said, in one line, so that a message can be searched however it was wrapped.
    """

    ok: bool
    changed: int
    failed: int
    text: str

    @property
    def error(self) -> str:
        """The first error, as Ansible shows it to people; raises ValueError when there was none."""
        return self.text[self.text.index(ERROR) :]


def run_playbook(inventory: str | Path, playbook: str | Path, *options: str, **variables: Any) -> Run:
    """Run a playbook of the checkout with these options and extra variables, and wait for it."""
    command = ["ansible-playbook", f"--inventory={inventory}", *options]
    command += ["--extra-vars", json.dumps(variables), str(playbook)]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **PLAIN},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    recap = done.stdout.rpartition("PLAY RECAP")[2] if "PLAY RECAP" in done.stdout else ""
    changed, failed = (re.search(rf"{key}=(\d+)", recap) for key in ("changed", "failed"))
    return Run(
        ok=done.returncode == 0,
        changed=int(changed[1]) if changed else -1,
        failed=int(failed[1]) if failed else -1,
        text=" ".join(f"{done.stdout}\n{done.stderr}".split()),
    )
