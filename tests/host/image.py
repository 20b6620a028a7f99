"""What every test host starts from: an image by mmdebstrap, and the extras that make it a test host, both shared read-only.

Each is a folder named by a hash of all that goes into it: a changed package list or guest file makes a new one, an unchanged
one is found again. The extras (guest files, fake NVML) are their own small folder, stacked on the image by each host's overlay,
so that work on the fake NVML does not build images anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .command import run
from .errors import HostError
from .locks import locked
from .paths import IMAGES

RELEASES = ("bookworm", "trixie")
HERE = Path(__file__).resolve().parent
GUEST = HERE / "guest"
FAKE_NVML = HERE / "fake_nvml"

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "python3",
    "python3-venv",
    "python3-apt",
    "iproute2",
    "ca-certificates",
    "sudo",
    "curl",
    "kmod",
    "procps",
    "psmisc",
    "openssh-server",
    "libnuma1",
    "libgomp1",
)
MMDEBSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    f"--include={','.join(PACKAGES)}",
    "--aptopt=APT::Install-Recommends false",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Image:
    """The read-only folders that a host's overlay starts from."""

    base: Path  # the root file system of one release
    extras: Path  # stacked on it

    @property
    def name(self) -> str:
        """Names the release and its packages, not the extras: what was saved on an image outlives a change of these."""
        return self.base.name


def image(release: str) -> Image:
    """Where the image of `release` (bookworm, trixie) is, or would be, as the sources of this checkout make it."""
    if release not in RELEASES:
        raise HostError(f"release {release!r} is not known here; choose one of {', '.join(RELEASES)}")
    base = _digest([release.encode(), *(word.encode() for word in MMDEBSTRAP)])
    sources = (*_files(GUEST), *_files(FAKE_NVML))
    extras = _digest(word for path in sources for word in (path.name.encode(), path.read_bytes()))
    return Image(IMAGES / f"{release}-{base}", IMAGES / f"extras-{extras}")


def ensure_image(release: str) -> Image:
    """The image, built if it is not there yet. Parallel callers wait for the first one's build."""
    wanted = image(release)
    _ensure(wanted.base, lambda root: _build_base(release, root))
    _ensure(wanted.extras, _build_extras)
    return wanted


def _ensure(folder: Path, build: Callable[[Path], None]) -> None:
    """Have `build` make the folder aside, and move it into place when it is whole."""
    if folder.is_dir():
        return
    with locked(IMAGES / f".{folder.name}.lock"):
        if folder.is_dir():
            return
        for left_behind in IMAGES.glob(f".{folder.name}.*-aside"):  # by a build that was killed: we hold the lock
            shutil.rmtree(left_behind)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix="-aside", dir=IMAGES))
        try:
            build(aside / "root")
            (aside / "root").rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _build_base(release: str, root: Path) -> None:
    # In namespaces of its own that end with us: however that comes about, no process and no mount of the build is left.
    contained = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run(*contained, *MMDEBSTRAP, release, root, *_sources(release), timeout=900)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()  # each host gets its own


def _build_extras(root: Path) -> None:
    tools = root / "usr/local/lib/testhost"
    tools.mkdir(parents=True)
    for name in ("setup", "fake-gpus"):
        shutil.copy(GUEST / name, tools / name)
    for folder in ("etc/ssh/sshd_config.d", "etc/systemd/system/sysinit.target.wants", "usr/lib/x86_64-linux-gnu"):
        (root / folder).mkdir(parents=True)
    shutil.copy(GUEST / "sshd.conf", root / "etc/ssh/sshd_config.d/testhost.conf")
    units = root / "etc/systemd/system"
    shutil.copy(GUEST / "testhost-setup.service", units)
    (units / "sysinit.target.wants/testhost-setup.service").symlink_to("../testhost-setup.service")
    for unit in (GUEST / "masked-units").read_text().split():
        (units / unit).symlink_to("/dev/null")
    build_fake_nvml(root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    shutil.copy(FAKE_NVML / "default.json", tools)
    for path in (root, *root.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)  # whatever the umask: they show through in every host


def _sources(release: str) -> list[str]:
    """This machine's own Debian sources, said for `release`; empty (mmdebstrap's default mirrors) when it has none."""
    own = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = own.get("VERSION_CODENAME", "").strip('"')
    if own.get("ID", "").strip('"') != "debian" or not codename:
        return []
    suites: dict[tuple[str, str], list[str]] = {}
    listing = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    for line in listing.stdout.splitlines():
        uri, suite, component = line.split()
        if suite == codename or suite.startswith(f"{codename}-"):
            suites.setdefault((uri, release + suite[len(codename) :]), []).append(component)
    signed = f" [signed-by={KEYRING}]" if KEYRING.exists() else ""
    return [f"deb{signed} {uri} {suite} {' '.join(components)}" for (uri, suite), components in suites.items()]


def build_fake_nvml(library: Path, defaults: Path = FAKE_NVML) -> None:
    """Compile the fake NVML into `library` with this machine's C compiler; `defaults` is the folder of its default.json."""
    flags = ("-std=c11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    data = f"-Wa,-I,{defaults}"  # where the assembler finds default.json
    run(os.environ.get("CC", "gcc"), *flags, soname, data, "-o", library, *sorted(FAKE_NVML.glob("*.c")))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]
