"""awx.awx, taken out of the PyPI package ``ansible``, which bundles it; kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.host.paths import CACHE

ANSIBLE = "ansible==12.3.0"  # bundles awx.awx 24.6.1
WANTED = "ansible_collections/awx/awx/"


def awx_collection() -> Path:
    """A folder for ``collections_path`` with awx.awx and nothing else; downloads 54 MB the first time.

    Raises CalledProcessError when the package cannot be downloaded.
    """
    folder = CACHE / "awx" / ANSIBLE.replace("==", "-")
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        download = [sys.executable, "-m", "pip", "download", "-q", "--no-input", "--no-deps", "-d", scratch, ANSIBLE]
        subprocess.run(download, check=True, capture_output=True, timeout=600)
        (wheel,) = Path(scratch).glob("*.whl")
        part = Path(scratch) / "collections"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(part, [name for name in archive.namelist() if name.startswith(WANTED)])
        try:
            part.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(part)
    return folder
