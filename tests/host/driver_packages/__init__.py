"""A driver repository for test hosts: packages of the real names and dependencies, as NVIDIA's for Debian, with the fake NVML in them.

``python -m tests.host.driver_packages`` fills paths.DRIVER_PACKAGES: `repository/` (an apt repository signed with `key.asc`),
`folder/` (the same .deb files and nothing else) and `other-key.asc` (a key that did not sign it). Cached by a hash of all inputs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.host import paths
from tests.host.command import run
from tests.host.image import FAKE_NVML, build_fake_nvml
from tests.host.locks import locked

HERE = Path(__file__).resolve().parent
RELEASES = ("580.95.05", "580.105.08", "590.44.01")
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Package:
    """A binary package: relations as dpkg writes them, files by path, a postinst."""

    name: str
    version: str
    depends: str = ""
    recommends: str = ""
    conflicts: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    postinst: str = ""


def ensure() -> Path:
    """Build what is not there yet; parallel callers wait for the first."""
    target = paths.DRIVER_PACKAGES
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = _digest()
    with locked(target.parent / ".driver-packages.lock"):
        stamp = target / ".complete"
        if stamp.is_file() and stamp.read_text() == digest:
            return target
        aside = Path(tempfile.mkdtemp(prefix=".driver-packages.", dir=target.parent))
        try:
            _build(aside)
            (aside / ".complete").write_text(digest)
            aside.chmod(0o755)
            shutil.rmtree(target, ignore_errors=True)
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted((*HERE.glob("*"), *FAKE_NVML.glob("*"))):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def packages(release: str, library: bytes) -> Iterator[Package]:
    """A whole driver of one release. Names and relations: NVIDIA's repository for Debian (compute only, both kernel flavours)."""
    version = f"{release}-1"
    same = f"(= {version})"
    script = (HERE / "nvidia-smi").read_bytes()
    # This one exists up to branch 580 only, so that a switch to 590 has something to remove.
    legacy = release.startswith("580.")
    extra = f", libnvidia-pkcs11-openssl3 {same}" if legacy else ""
    yield Package(
        "libnvidia-ml1",
        version,
        files={f"{LIBRARIES}/libnvidia-ml.so.{release}": library},
        links={f"{LIBRARIES}/libnvidia-ml.so.1": f"libnvidia-ml.so.{release}"},
        postinst="ldconfig",
    )
    yield Package("libnvidia-ptxjitcompiler1", version)
    yield Package(
        "libcuda1",
        version,
        depends=f"libnvidia-ptxjitcompiler1 {same}{extra}",
        recommends="nvidia-kernel-open-dkms",
    )
    yield Package(
        "nvidia-driver-cuda",
        version,
        depends=f"libcuda1 {same}, libnvidia-ml1 {same}",
        files={"usr/bin/nvidia-smi": script},
        postinst="test ! -e /etc/fail-the-postinst",
    )
    yield Package("nvidia-kernel-support", version)
    for flavour, name, other in (
        ("open", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"),
        ("proprietary", "nvidia-kernel-dkms", "nvidia-kernel-open-dkms"),
    ):
        yield Package(
            name,
            version,
            depends=f"nvidia-kernel-support {same}",
            conflicts=other,
            files={f"usr/src/nvidia-{release}/dkms.conf": f'PACKAGE_VERSION="{release}"\n'.encode()},
            postinst=f"/usr/bin/python3 - {flavour} {release} <<'PROGRAM'\n{(HERE / 'load-module').read_text()}PROGRAM",
        )
    yield Package(
        "nvidia-persistenced",
        version,
        files={
            "usr/lib/systemd/system/nvidia-persistenced.service": (HERE / "nvidia-persistenced.service").read_bytes()
        },
    )
    if legacy:
        yield Package("libnvidia-pkcs11-openssl3", version)


def _others() -> Iterator[Package]:
    """What a host needs beside the driver, and what must be left alone although its name looks like the driver's."""
    yield Package("linux-headers-amd64", "6.1.140-1")
    yield Package("nvidia-container-toolkit", "1.17.8-1")
    yield Package(
        "cuda-toolkit-12-9", "12.9.1-1", files={"usr/local/cuda-12.9/bin/nvcc": b"#!/bin/sh\necho release 12.9\n"}
    )


def _build(target: Path) -> None:
    folder = target / "folder"
    folder.mkdir()
    for release in RELEASES:
        for package in packages(release, _library(release, target)):
            _write_deb(package, folder)
    for package in _others():
        _write_deb(package, folder)
    shutil.copytree(folder, target / "repository", copy_function=os.link)
    with _keys(target) as environment:
        _sign(target / "repository", environment)


def _library(release: str, scratch: Path) -> bytes:
    """The fake NVML of a release: it starts only with a kernel module of the same one."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        defaults = json.loads((FAKE_NVML / "default.json").read_text())
        Path(name, "default.json").write_text(json.dumps({**defaults, "nvml_version": f"13.{release}"}))
        build_fake_nvml(Path(name, "libnvidia-ml.so.1"), Path(name))
        return Path(name, "libnvidia-ml.so.1").read_bytes()


def _write_deb(package: Package, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        root = Path(name)
        root.chmod(0o755)
        for path, content in package.files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(0o755 if "/bin/" in f"/{path}" else 0o644)
        for path, to in package.links.items():
            (root / path).symlink_to(to)
        fields = {
            "Package": package.name,
            "Version": package.version,
            "Architecture": "amd64",
            "Maintainer": "The gpuhost.vllm developers <none@invalid>",
            "Depends": package.depends,
            "Recommends": package.recommends,
            "Conflicts": package.conflicts,
            "Description": "stand-in of the test hosts",
        }
        control = root / "DEBIAN"
        control.mkdir()
        (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items() if value))
        if package.postinst:
            (control / "postinst").write_text(f"#!/bin/sh\nset -e\n{package.postinst}\n")
            (control / "postinst").chmod(0o755)
        run(
            "dpkg-deb",
            "--build",
            "--root-owner-group",
            "-Znone",
            root,
            folder / f"{package.name}_{package.version}_amd64.deb",
        )


@contextmanager
def _keys(target: Path) -> Iterator[dict[str, str]]:
    """GnuPG's environment with the key `driver` of `key.asc`; `other-key.asc` is of no use. The agent ends with it."""
    with tempfile.TemporaryDirectory(prefix="gnupg.", dir="/tmp") as home:  # a short path: the agent's socket is in it
        environment = {**os.environ, "GNUPGHOME": home}
        for user, file in (("driver", "key.asc"), ("other", "other-key.asc")):
            _gpg(environment, "--passphrase", "", "--quick-generate-key", user, "rsa3072", "sign", "never")
            (target / file).write_text(_gpg(environment, "--armor", "--export", user))
        try:
            yield environment
        finally:
            subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=False)


def _gpg(environment: dict[str, str], *arguments: str) -> str:
    command = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def _sign(repository: Path, environment: dict[str, str]) -> None:
    def archive(*arguments: str) -> str:
        return subprocess.run(
            ["apt-ftparchive", *arguments], cwd=repository, check=True, capture_output=True, text=True
        ).stdout

    (repository / "Packages").write_text(archive("packages", "."))
    release = archive(
        "-o",
        "APT::FTPArchive::Release::Origin=NVIDIA",
        "-o",
        "APT::FTPArchive::Release::Label=NVIDIA CUDA",
        "release",
        ".",
    )
    (repository / "Release").write_text(release)
    _gpg(
        environment,
        "--local-user",
        "driver",
        "--clearsign",
        "--output",
        str(repository / "InRelease"),
        str(repository / "Release"),
    )
