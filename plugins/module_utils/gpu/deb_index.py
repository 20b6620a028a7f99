# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An apt index of a folder of .deb files, as dpkg-scanpackages makes it (which a plain host does not have)."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from ..errors import VllmHostError

POOL = "pool"  # the link beside the index through which apt reaches the files


def index(folder: Path) -> tuple[str, int]:
    """The text of a ``Packages`` file, sorted by path, and the number of packages in it.

    Raises:
        VllmHostError: ``no_packages`` (no folder, or no .deb in it), ``bad_package`` (dpkg-deb cannot read one).
    """
    files = sorted(folder.rglob("*.deb"))
    if not files:
        raise VllmHostError(
            "no_packages",
            f"{folder} has no .deb files (or does not exist): copy the driver's packages there, then set drivers_folder to it.",
            folder=str(folder),
        )
    return "\n".join(_entry(folder, file) for file in files), len(files)


def _entry(folder: Path, file: Path) -> str:
    done = subprocess.run(["dpkg-deb", "--field", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise VllmHostError(
            "bad_package", f"{file} is no readable package ({done.stderr.strip()}): copy it again.", file=str(file)
        )
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    path = f"./{POOL}/{file.relative_to(folder)}"
    return f"{done.stdout.strip()}\nFilename: {path}\nSize: {file.stat().st_size}\nSHA256: {digest.hexdigest()}\n"
