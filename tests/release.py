# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as others get it: the files that git has, as they are on disk now, built and installed where nothing else is.

python -m tests.release FOLDER    # makes FOLDER/collections with this collection, and FOLDER/ansible.cfg without settings of the checkout
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
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


def build(source: Path, out: Path) -> Path:
    """The tarball of a copy; raises CalledProcessError."""
    _galaxy("build", "--output-path", str(out), cwd=source, env=clean_environment(out))
    (tarball,) = out.glob("gpuhost-vllm-*.tar.gz")
    return tarball


def install(tarball: Path, collections: Path, env: dict[str, str]) -> None:
    """Into a folder of collections, without asking anybody; raises CalledProcessError."""
    _galaxy("install", str(tarball), "--offline", "--force", "-p", str(collections), cwd=tarball.parent, env=env)


def _galaxy(*arguments: str, cwd: Path, env: dict[str, str]) -> None:
    program = str(Path(sys.executable).with_name("ansible-galaxy"))
    subprocess.run([program, "collection", *arguments], cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        tarball = build(copy_committed(Path(scratch) / "source"), Path(scratch) / "built")
        install(tarball, folder / "collections", clean_environment(folder))


if __name__ == "__main__":
    main()
