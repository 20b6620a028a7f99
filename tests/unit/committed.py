# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the checkout that git has, copied elsewhere: what others get when they clone it, as far as it is on disk now."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.host.paths import CHECKOUT


def committed_files() -> list[str]:
    """Paths relative to the checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    return [path for path in listed.stdout.split("\0") if path and (CHECKOUT / path).is_file()]


def copy_committed(to: Path) -> Path:
    """``to``, with the files in it."""
    for path in committed_files():
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / path, target, follow_symlinks=False)
    return to


def clean_environment(home: Path, **variables: str) -> dict[str, str]:
    """An environment in which Ansible knows nothing of the checkout: neither its settings nor its collections."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHONPATH"))}
    (home / "ansible.cfg").parent.mkdir(parents=True, exist_ok=True)
    (home / "ansible.cfg").write_text("[defaults]\nlocalhost_warning = false\n")
    return {**ours, "HOME": str(home), "ANSIBLE_CONFIG": str(home / "ansible.cfg"), **variables}
