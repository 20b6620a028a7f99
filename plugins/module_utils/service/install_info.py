# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a virtual environment holds what its wheels said, read from the files alone: nothing of it is imported or run.

Each distribution's ``RECORD`` (PyPA, "Recording installed projects") lists its files with hashes. A file that differs is modified, one
that is gone is missing, and one that no distribution owns is foreign: a patch, a leftover loader, a ``.pth`` that runs code.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from ..errors import VllmHostError
from .cuda_architectures import Fit, architectures_of, fits

_CHUNK = 1 << 20
_SMALL_BATCH = 256  # files a task of the pool: most are small, and a task of its own would cost more than the file

# What environments are created with, owned by no distribution.
_ENVIRONMENT_FILES = frozenset({"_virtualenv.py", "_virtualenv.pth"})
# Written by an installer beside a distribution's files, not always recorded.
_INSTALLER_FILES = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json"})
# The compiled parts that every model needs, relative to site-packages. Others (FlashAttention 3, FlashMLA) are built for some GPUs only, and
# vLLM chooses among them. vLLM 0.23.0's wheel: _C 7.5 to 12.0, _vllm_fa3_C 9.0 alone [read].
_GPU_LIBRARIES = ("vllm/_C*.so", "vllm/_moe_C*.so")


@dataclass(frozen=True)
class Distribution:
    """One installed distribution and where it came from."""

    name: str
    version: str
    editable: bool
    origin: str  # URL of direct_url.json; empty for an index or a wheelhouse


@dataclass(frozen=True)
class InstallInfo:
    """What is installed, and whether it is whole.

    Args:
        version, torch, triton, flashinfer, transformers: versions of the distributions; empty when not installed.
        cuda: CUDA version that torch was built for; empty for a CPU build.
        python: version of the environment's interpreter.
        modified_files, missing_files, foreign_files: paths relative to the environment, sorted.
        editable: distributions that run from a source tree. mixed: sentences about installs that contradict each other.
        cuda_architectures: compute capabilities that vLLM's libraries hold code for, such as `9.0`; `12.0+PTX` can be translated
            for newer GPUs. gpu_fit: for each compute capability asked for, whether there is code for it.
        clean: nothing modified, missing or foreign, nothing editable or mixed, and code for every GPU.
        files, bytes: how much was compared.
    """

    venv: str
    version: str
    torch: str
    cuda: str
    triton: str
    flashinfer: str
    transformers: str
    python: str
    modified_files: tuple[str, ...]
    missing_files: tuple[str, ...]
    foreign_files: tuple[str, ...]
    editable: tuple[str, ...]
    mixed: tuple[str, ...]
    cuda_architectures: tuple[str, ...]
    gpu_fit: tuple[Fit, ...]
    distributions: int
    files: int
    bytes: int

    @property
    def clean(self) -> bool:
        wrong = (self.modified_files, self.missing_files, self.foreign_files, self.editable, self.mixed)
        return not any(wrong) and all(fit.supported for fit in self.gpu_fit)

    def as_result(self) -> dict[str, Any]:
        """JSON-serialisable, for a module's result."""
        result = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {**result, "clean": self.clean}


@dataclass(frozen=True)
class _Recorded:
    path: Path
    algorithm: str
    digest: str  # urlsafe base64 without padding
    owner: str


def inspect_install(venv: Path, compute_capabilities: Sequence[str] = (), workers: Optional[int] = None) -> InstallInfo:
    """Compare an environment with its records.

    Args:
        venv: root of the environment.
        compute_capabilities: of the GPUs that it shall run on, such as ``["12.0"]``.
        workers: threads that hash; default one a CPU, 16 at most.

    Raises:
        VllmHostError: ``venv_missing`` if there is no environment, ``vllm_not_installed`` if it does not hold vLLM.
    """
    site = _site_packages(venv)
    dist_infos = sorted(site.glob("*.dist-info"))
    distributions = [_distribution(folder) for folder in dist_infos]
    versions = {_canonical(d.name): d.version for d in distributions}
    version = versions.get("vllm") or next((v for n, v in versions.items() if n.startswith("vllm-")), "")
    if not version and not (site / "vllm").is_dir():
        raise VllmHostError("vllm_not_installed", f"{venv} holds no vLLM: build the release again.", venv=str(venv))
    recorded, listed, mixed = _records(site, dist_infos)
    modified, missing, size = _compare(recorded, workers or min(16, os.cpu_count() or 1))
    libraries = [path for pattern in _GPU_LIBRARIES for path in sorted(site.glob(pattern))]
    architectures = architectures_of(libraries)
    return InstallInfo(
        venv=str(venv),
        version=version,
        torch=versions.get("torch", ""),
        cuda=_cuda_of_torch(site),
        triton=versions.get("triton", ""),
        flashinfer=versions.get("flashinfer-python", ""),
        transformers=versions.get("transformers", ""),
        python=_python_version(venv),
        modified_files=_relative(venv, modified),
        missing_files=_relative(venv, missing),
        foreign_files=_relative(venv, _foreign(site, listed)),
        editable=tuple(f"{d.name} from {d.origin}" for d in distributions if d.editable),
        mixed=(*_duplicates(distributions), *mixed, *_version_conflict(site, version)),
        cuda_architectures=tuple(architectures),
        gpu_fit=tuple(fits(architectures, compute_capabilities)),
        distributions=len(distributions),
        files=len(recorded),
        bytes=size,
    )


# --- what is there ----------------------------------------------------------------------------------------------------


def _site_packages(venv: Path) -> Path:
    found = sorted(venv.glob("lib/python3*/site-packages"))
    if not found:
        raise VllmHostError(
            "venv_missing", f"{venv} is no virtual environment: it has no lib/python3*/site-packages.", venv=str(venv)
        )
    return found[-1]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distribution(folder: Path) -> Distribution:
    stem = folder.name[: -len(".dist-info")]
    name, dash, version = stem.rpartition("-")
    try:
        for line in (folder / "METADATA").read_text(encoding="utf-8", errors="replace").splitlines():
            if not line:
                break  # the description follows
            key, colon, value = line.partition(": ")
            if key == "Name":
                name = value.strip()
            elif key == "Version":
                version = value.strip()
    except OSError:
        pass  # reported as missing by its RECORD
    try:
        direct = json.loads((folder / "direct_url.json").read_bytes())
    except (OSError, ValueError):
        direct = {}
    # Credentials never leave the host, not even those of a URL.
    origin = re.sub(r"//[^/@]*@", "//", str(direct.get("url", "")))
    return Distribution(name, version, bool(direct.get("dir_info", {}).get("editable")), origin)


def _python_version(venv: Path) -> str:
    try:
        match = re.search(r"^version(?:_info)?\s*=\s*(\S+)", (venv / "pyvenv.cfg").read_text(), re.M)
    except OSError:
        return ""
    return match[1] if match else ""


def _cuda_of_torch(site: Path) -> str:
    try:
        match = re.search(r"^cuda\b.*=\s*'([^']*)'", (site / "torch" / "version.py").read_text(), re.M)
    except OSError:
        return ""
    return match[1] if match else ""


# --- records ----------------------------------------------------------------------------------------------------------


def _records(site: Path, dist_infos: Iterable[Path]) -> tuple[list[_Recorded], set[str], list[str]]:
    """All recorded files with a hash, the set of all recorded paths, and sentences about files with two owners."""
    recorded: dict[str, _Recorded] = {}
    listed: set[str] = set()
    conflicts: dict[tuple[str, str], int] = {}
    for folder in dist_infos:
        owner = folder.name[: -len(".dist-info")]
        try:
            rows = list(csv.reader((folder / "RECORD").read_text(encoding="utf-8").splitlines()))
        except OSError:
            continue  # without RECORD its files have no owner: all of them are foreign
        for row in rows:
            if not row:
                continue
            path = os.path.normpath(f"{site}/{row[0]}")  # as text: pathlib is slow for 35,000 files
            listed.add(path)
            algorithm, equals, digest = (row[1] if len(row) > 1 else "").partition("=")
            if not digest or "/__pycache__/" in path:
                continue  # compiled again by the installer, even where a wheel ships it (numpy 1.26 does)
            other = recorded.get(path)
            if other is not None and other.digest != digest:
                conflicts[(other.owner, owner)] = conflicts.get((other.owner, owner), 0) + 1
            recorded[path] = _Recorded(Path(path), algorithm, digest, owner)
    sentences = [
        f"{a} and {b} both own {n} file{'s' * (n > 1)}, with different content"
        for (a, b), n in sorted(conflicts.items())
    ]
    return list(recorded.values()), listed, sentences


def _compare(recorded: Sequence[_Recorded], workers: int) -> tuple[list[Path], list[Path], int]:
    """(modified, missing, bytes read); large files one by one, small ones in batches."""
    sized: list[tuple[int, _Recorded]] = []
    missing: list[Path] = []
    for record in recorded:
        try:
            sized.append((record.path.stat().st_size, record))
        except OSError:
            missing.append(record.path)
    sized.sort(key=lambda pair: -pair[0])  # the largest first, so that no thread ends with one alone
    large = [[record] for size, record in sized if size >= _CHUNK]
    small = [record for size, record in sized if size < _CHUNK]
    batches = large + [small[i : i + _SMALL_BATCH] for i in range(0, len(small), _SMALL_BATCH)]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        modified = [path for differing in pool.map(_differing, batches) for path in differing]
    return modified, missing, sum(size for size, _record in sized)


def _differing(batch: Sequence[_Recorded]) -> list[Path]:
    return [record.path for record in batch if _digest(record.path, record.algorithm) != record.digest]


def _digest(path: Path, algorithm: str) -> str:
    try:
        state = hashlib.new(algorithm)
        with path.open("rb", buffering=0) as stream:
            while True:
                chunk = stream.read(_CHUNK)
                if not chunk:
                    break
                state.update(chunk)
    except (OSError, ValueError):
        return ""  # unreadable, or a hash that this Python does not know: not proven, so not equal
    return base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode()


# --- what should not be there -----------------------------------------------------------------------------------------


def _foreign(site: Path, listed: set[str]) -> Iterator[Path]:
    for root, folders, files in os.walk(site):
        folders[:] = [name for name in folders if name != "__pycache__"]
        in_metadata = root.endswith(".dist-info")
        for name in files:
            path = f"{root}/{name}"
            if path in listed or (in_metadata and name in _INSTALLER_FILES):
                continue
            if root == str(site) and name in _ENVIRONMENT_FILES:
                continue
            yield Path(path)


def _duplicates(distributions: Iterable[Distribution]) -> Iterator[str]:
    versions: dict[str, list[str]] = {}
    for distribution in distributions:
        versions.setdefault(_canonical(distribution.name), []).append(distribution.version)
    for name, several in sorted(versions.items()):
        if len(several) > 1:
            yield f"{name} is installed {len(several)} times: {', '.join(sorted(several))}"


def _version_conflict(site: Path, version: str) -> Iterator[str]:
    """vLLM's own idea of its version against its metadata: they differ when one install was laid over another."""
    try:
        text = (site / "vllm" / "_version.py").read_text()
    except OSError:
        return
    match = re.search(r"^__version__ = (?:version = )?'([^']+)'", text, re.M)
    if match and version and match[1].partition("+")[0] != version.partition("+")[0]:
        yield f"vllm's metadata says {version}, its code says {match[1]}"


def _relative(venv: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(sorted(os.path.relpath(path, venv) for path in paths))
