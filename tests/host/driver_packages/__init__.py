"""Driver repositories for test hosts: packages of the real names and relations, as NVIDIA's, with the fake NVML in them.

``python -m tests.host.driver_packages`` fills paths.DRIVER_PACKAGES: `repository/` (an apt repository for Debian, signed with `key.asc`),
`folder/` (the same .deb files and nothing else), `other-key.asc` (a key that did not sign it), `nvidia/ubuntu2404/x86_64/` (laid out as
NVIDIA's own server, with its public key), and `debian/` (the driver as Debian has it). Cached by a hash of all inputs.
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
from typing import Any

from tests.host import paths
from tests.host.command import run
from tests.host.image import FAKE_NVML, build_fake_nvml
from tests.host.locks import locked

HERE = Path(__file__).resolve().parent
RELEASES = ("580.95.05", "580.105.08", "590.44.01")
ONE_OF_EACH_BRANCH = ("580.105.08", "590.44.01")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SMI = {"usr/bin/nvidia-smi": (HERE / "nvidia-smi").read_bytes()}
MODPROBE = {"usr/bin/nvidia-modprobe": (HERE / "nvidia-modprobe").read_bytes()}
DAEMON = {"usr/lib/systemd/system/nvidia-persistenced.service": (HERE / "nvidia-persistenced.service").read_bytes()}
UBUNTUS_DAEMON = {**DAEMON, next(iter(DAEMON)): (HERE / "nvidia-persistenced.ubuntu.service").read_bytes()}
# The daemon opens it, and Ubuntu's package with the daemon does not depend on it.
CONFIGURATION = {f"{LIBRARIES}/libnvidia-cfg.so.1": b""}
UDEV = {
    "usr/lib/udev/rules.d/71-nvidia.rules": b'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", TAG+="systemd", '
    b'ENV{SYSTEMD_WANTS}="nvidia-persistenced.service"\n'
}
# As debhelper writes it: an upgrade restarts what runs, and goes on if that fails.
RESTART_DAEMON = "systemctl daemon-reload || true\nsystemctl try-restart nvidia-persistenced.service || true"


@dataclass(frozen=True)
class Package:
    """A binary package: relations as dpkg writes them, files by path, scripts. ``instead_of``: what it provides, conflicts with and replaces."""

    name: str
    version: str
    depends: str = ""
    recommends: str = ""
    conflicts: str = ""
    instead_of: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    postinst: str = ""
    postrm: str = ""


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


def debian_packages(release: str, library: bytes) -> Iterator[Package]:
    """A whole driver of one release. Names and relations: NVIDIA's repository for Debian (compute only, both kernel flavours)."""
    version = f"{release}-1"
    same = f"(= {version})"
    # This one exists up to branch 580 only, so that a switch to 590 has something to remove.
    legacy = release.startswith("580.")
    extra = f", libnvidia-pkcs11-openssl3 {same}" if legacy else ""
    yield Package("libnvidia-ml1", version, **_library_files(release, library))
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
        files=SMI,
        postinst="test ! -e /etc/fail-the-postinst",
    )
    yield Package("nvidia-kernel-support", version, depends=f"nvidia-modprobe {same}")
    yield Package("nvidia-modprobe", version, files=MODPROBE)
    for flavour, name, other in (
        ("open", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"),
        ("proprietary", "nvidia-kernel-dkms", "nvidia-kernel-open-dkms"),
    ):
        depends = f"nvidia-kernel-support {same}"
        yield Package(name, version, depends=depends, conflicts=other, **_module_files(release, flavour))
    yield Package("libnvidia-cfg1", version, files=CONFIGURATION)
    depends = f"libnvidia-cfg1 {same}"
    yield Package("nvidia-persistenced", version, depends=depends, files=DAEMON, postinst=RESTART_DAEMON)
    if legacy:
        yield Package("libnvidia-pkcs11-openssl3", version)


def debians_own_packages(release: str, library: bytes) -> Iterator[Package]:
    """The same as Debian has it: other names, and one tool whose version never is the driver's."""
    version = f"{release}-2"
    yield Package("libnvidia-ml1", version, **_library_files(release, library))
    yield Package("libnvidia-ptxjitcompiler1", version)
    yield Package("libcuda1", version, depends=f"libnvidia-ptxjitcompiler1 (= {version})")
    yield Package("nvidia-smi", version, depends="libnvidia-ml1", files=SMI)
    yield Package("libnvidia-cfg1", version, files=CONFIGURATION)
    yield Package(
        "nvidia-persistenced", f"{release}-1", depends="libnvidia-cfg1", files=DAEMON, postinst=RESTART_DAEMON
    )
    yield Package("nvidia-modprobe", "570.133.07-1", files=MODPROBE)
    yield Package("nvidia-kernel-support", version, depends="nvidia-modprobe")
    yield Package("nvidia-open-kernel-dkms", version, depends="nvidia-kernel-support", **_module_files(release, "open"))


def ubuntu_packages(release: str, library: bytes) -> Iterator[Package]:
    """The same for Ubuntu: up to branch 580 its names have the branch in them, and stand in for each other; from 590 on they have not.

    Relations: github.com/NVIDIA/ubuntu-packaging-nvidia-driver, debian/templates/control.in.
    """
    version = f"{release}-0ubuntu1"
    branch = release.split(".")[0]
    legacy = int(branch) < 590
    suffix = f"-{branch}" if legacy else ""
    compute = f"libnvidia-compute{suffix}"
    common = f"nvidia-kernel-common{suffix}"
    files = _library_files(release, library)
    if legacy:
        yield Package(compute, version, instead_of="nvidia-opencl-icd", **files)
        utils = "nvidia-utils, nvidia-smi"
        yield Package(f"nvidia-utils{suffix}", version, depends=compute, instead_of=utils, files=SMI)
        yield Package(
            f"nvidia-compute-utils{suffix}",
            version,
            depends=compute,
            instead_of="nvidia-persistenced",
            files=UBUNTUS_DAEMON,
            postinst=RESTART_DAEMON,
        )
    else:
        files["files"].update(SMI)
        yield Package(compute, version, instead_of="nvidia-opencl-icd", **files)
        yield Package("nvidia-persistenced", version, depends=compute, files=DAEMON, postinst=RESTART_DAEMON)
    unit = (HERE / "nvidia-fabricmanager.service").read_text().replace("@release@", release).encode()
    fabric = {
        "usr/lib/systemd/system/nvidia-fabricmanager.service": unit,
        "usr/bin/nv-fabricmanager": b"#!/bin/sh\nsleep infinity\n",
    }
    instead = "fabricmanager" if legacy else ""
    yield Package(f"nvidia-fabricmanager{suffix}", version, instead_of=instead, files=fabric)
    instead = "libnvidia-cfg1-any" if legacy else ""
    yield Package(f"libnvidia-cfg1{suffix}", version, instead_of=instead, files=CONFIGURATION)
    instead = "nvidia-kernel-common" if legacy else ""
    firmware = f"nvidia-firmware{suffix}-{release}" if legacy else "nvidia-firmware"
    yield Package(firmware, version)
    yield Package(common, version, depends=f"nvidia-modprobe, {firmware}", instead_of=instead, files=UDEV)
    yield Package("nvidia-modprobe", version, files=MODPROBE)
    yield Package(
        f"nvidia-dkms{suffix}-open",
        version,
        depends=f"{common} (>= {release})",
        instead_of="nvidia-dkms-kernel",
        **_module_files(release, "open"),
    )


def _library_files(release: str, library: bytes) -> dict[str, Any]:
    return {
        "files": {f"{LIBRARIES}/libnvidia-ml.so.{release}": library},
        "links": {f"{LIBRARIES}/libnvidia-ml.so.1": f"libnvidia-ml.so.{release}"},
        "postinst": "ldconfig",
    }


def _module_files(release: str, flavour: str) -> dict[str, Any]:
    """DKMS's part: a module for the running kernel that the real modinfo can read."""
    source = f"usr/src/nvidia-{release}"
    built = "/lib/modules/$(uname -r)/updates/dkms"
    build = f"mkdir -p {built}\ncp /{source}/nvidia.ko {built}/\ndepmod 2>/dev/null\n"
    load = f"/usr/bin/python3 - {flavour} {release} <<'PROGRAM'\n{(HERE / 'load-module').read_text()}PROGRAM"
    return {
        "files": {
            f"{source}/dkms.conf": f'PACKAGE_VERSION="{release}"\n'.encode(),
            f"{source}/nvidia.ko": _module(release, flavour),
        },
        "postinst": build + load,
        "postrm": f'case "$1" in remove|purge) rm -f {built}/nvidia.ko; depmod 2>/dev/null ;; esac',
    }


def _module(release: str, flavour: str) -> bytes:
    """An object file with no code, and with what a kernel module says of itself."""
    said = ("name=nvidia", f"version={release}", f"license={'Dual MIT/GPL' if flavour == 'open' else 'NVIDIA'}")
    text = "\\0".join(said)
    with tempfile.TemporaryDirectory() as name:
        source = Path(name, "nvidia.c")
        source.write_text(f'__attribute__((used, section(".modinfo"))) static const char said[] = "{text}";\n')
        run(os.environ.get("CC", "gcc"), "-c", "-o", source.with_suffix(".ko"), source)
        return source.with_suffix(".ko").read_bytes()


def _others() -> Iterator[Package]:
    """What a host needs beside the driver, and what must be left alone although its name looks like the driver's."""
    yield Package("linux-headers-amd64", "6.1.140-1")
    yield Package("linux-headers-generic", "6.8.0-85.85")
    yield Package("forbids-branch-590", "1.0", conflicts="libcuda1 (>= 590)")
    yield Package("nvidia-container-toolkit", "1.17.8-1")
    yield Package(
        "cuda-toolkit-12-9", "12.9.1-1", files={"usr/local/cuda-12.9/bin/nvcc": b"#!/bin/sh\necho release 12.9\n"}
    )


def _build(target: Path) -> None:
    folder, ubuntu, debian = target / "folder", target / "nvidia/ubuntu2404/x86_64", target / "debian"
    for place in (folder, ubuntu, debian):
        place.mkdir(parents=True)
        for package in _others():
            _write_deb(package, place)
    for release in RELEASES:
        library = _library(release, target)
        sets = {folder: debian_packages(release, library)}
        if release in ONE_OF_EACH_BRANCH:
            sets |= {ubuntu: ubuntu_packages(release, library), debian: debians_own_packages(release, library)}
        for place, driver in sets.items():
            for package in driver:
                _write_deb(package, place)
    shutil.copytree(folder, target / "repository", copy_function=os.link)
    with _keys(target) as environment:
        for repository in (target / "repository", ubuntu, debian):
            _sign(repository, environment)
    os.link(target / "key.asc", ubuntu / "3bf863cc.pub")  # as NVIDIA's server names it


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
            "Conflicts": ", ".join(filter(None, (package.conflicts, package.instead_of))),
            "Provides": package.instead_of,
            "Replaces": package.instead_of,
            "Description": "stand-in of the test hosts",
        }
        control = root / "DEBIAN"
        control.mkdir()
        (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items() if value))
        for script, text in (("postinst", package.postinst), ("postrm", package.postrm)):
            if text:
                (control / script).write_text(f"#!/bin/sh\nset -e\n{text}\n")
                (control / script).chmod(0o755)
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
