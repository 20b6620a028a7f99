"""Test hosts: each an overlay on a shared image, booted by systemd-nspawn and reached over SSH.

A host is one folder under paths.HOSTS: `host.json` says all about it, `upper` holds what it changed, `root` is where its overlay
is mounted, beside them its SSH keys, inventory and console log. Nothing else is recorded anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import cgroups, network
from .command import run
from .errors import HostError
from .image import Image, ensure_image
from .layers import find_layer
from .locks import locked
from .paths import HOSTS
from .processes import children, is_alive, kill_and_wait, start_time, started_with
from .signals import undivided

REGISTRY_LOCK = HOSTS / ".lock"  # held while addresses are given out and while the bridge comes or goes
SOCKETS = Path("/run/gpuhost-testhost")
BOOT_TIMEOUT_S = 90
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass
class Host:
    """A test host as recorded in its `host.json`."""

    name: str
    release: str
    address: str
    image: str
    layers: list[str] = field(default_factory=list)
    binds: list[str] = field(default_factory=list)  # SRC:DST, read-only
    memory_bytes: int | None = None
    cgroups: list[str] = field(default_factory=list)
    supervisor: int = 0  # process number and start time of supervise.py
    supervisor_started: str = ""
    ready: bool = False
    user: str = "root"

    @property
    def folder(self) -> Path:
        return HOSTS / self.name

    @property
    def control_socket(self) -> Path:
        """Where SSH clients of this host meet; not in `folder`, whose path may be too long for a socket."""
        return SOCKETS / f"{self.name}.ssh"

    @property
    def status(self) -> str:
        """running; starting (or left behind by a create that was killed); dead."""
        if not is_alive(self.supervisor, self.supervisor_started):
            return "dead"
        return "running" if self.ready else "starting"

    def record(self) -> None:
        aside = self.folder / ".host.json"
        aside.write_text(json.dumps(asdict(self), indent=2) + "\n")
        aside.rename(self.folder / "host.json")

    def describe(self) -> dict[str, object]:
        """What a user of the host needs, as `testhost create` prints it."""
        return {
            "name": self.name,
            "status": self.status,
            "release": self.release,
            "address": self.address,
            "user": self.user,
            "key": str(self.folder / "key"),
            "known_hosts": str(self.folder / "known_hosts"),
            "inventory": str(self.folder / "inventory.yml"),
            "layers": self.layers,
        }

    def ssh_options(self) -> list[str]:
        return [
            f"-oUserKnownHostsFile={self.folder / 'known_hosts'}",
            "-oGlobalKnownHostsFile=none",
            "-oIdentitiesOnly=yes",
            "-oServerAliveInterval=30",
            f"-oControlPath={self.control_socket}",
        ]

    def ssh(self, *words: str, tty: bool = False) -> list[str]:
        """The command line that runs `words` (or a login shell) on the host."""
        identity = ["-i", str(self.folder / "key"), *(["-t"] if tty else [])]
        return ["ssh", "-q", *self.ssh_options(), *identity, f"{self.user}@{self.address}", *words]


def load(name: str) -> Host:
    """The host of that name; HostError if there is none."""
    try:
        return Host(**json.loads((HOSTS / name / "host.json").read_text()))
    except FileNotFoundError:
        raise HostError(f"there is no test host {name!r}; `testhost list` shows those that are there") from None


def all_hosts() -> list[Host]:
    hosts = []
    for path in sorted(HOSTS.glob("*/host.json")):
        with contextlib.suppress(HostError):  # destroyed since the look at the folder
            hosts.append(load(path.parent.name))
    return hosts


def create(
    name: str,
    release: str,
    *,
    binds: Sequence[str] = (),
    layers: Sequence[str] = (),
    gpus: Path | None = None,
    memory_bytes: int | None = None,
) -> Host:
    """Make, boot and wait for a host. Whatever goes wrong (Ctrl-C included), nothing of it stays behind."""
    if not NAME.fullmatch(name):
        raise HostError(
            f"{name!r} is no name for a host: a letter, then up to 39 letters, digits or dashes, all lower case"
        )
    binds = [_absolute_bind(bind) for bind in binds]
    if gpus is not None:
        _check_gpus(gpus)
    image = ensure_image(release)
    lower = [find_layer(layer, image.name) for layer in layers]
    host = None
    try:
        with undivided():
            host = _register(name, release, image.name, binds, layers, memory_bytes)
        _prepare(host, image, lower, gpus)
        _start(host)
        _wait_until_running(host)
        host.ready = True
        host.record()
    except BaseException:
        if host is not None:
            with undivided():
                destroy(host)
        raise
    return host


def destroy(host: Host) -> None:
    """End the host and remove all it has: process, mounts, control groups, folder; the bridge goes with the last host."""
    if (
        host.control_socket.exists()
    ):  # else the next host of this name or address would be looked for in a dead connection
        run("ssh", "-q", f"-oControlPath={host.control_socket}", "-O", "exit", host.address, check=False)
        host.control_socket.unlink(missing_ok=True)
    _kill(host)
    network.unplug(host.address)
    _unmount(host.folder / "root")
    cgroups.remove([Path(folder) for folder in host.cgroups])
    with locked(REGISTRY_LOCK):
        shutil.rmtree(host.folder)
        if not any(HOSTS.glob("*/host.json")):
            network.remove_unused()


def stop(host: Host, timeout_s: float = 60) -> None:
    """Power the host off in an orderly way and wait for its end."""
    leader = _leader(host)
    if leader:
        run("nsenter", "-t", leader, "-a", "systemctl", "poweroff", check=False)
    deadline = time.monotonic() + timeout_s
    while is_alive(host.supervisor, host.supervisor_started):
        if time.monotonic() > deadline:
            raise HostError(
                f"{host.name} did not power off within {timeout_s:.0f} s; see {host.folder / 'console.log'}"
            )
        time.sleep(0.05)
    _unmount(host.folder / "root")


def set_gpus(host: Host, gpus: Path) -> None:
    """Give a running host other fake GPUs: seen at the next nvmlInit."""
    _check_gpus(gpus)
    run(
        "scp",
        "-q",
        *host.ssh_options(),
        "-i",
        host.folder / "key",
        gpus,
        f"{host.user}@{host.address}:/etc/.fake-nvml.json",
    )
    run(*host.ssh("mv /etc/.fake-nvml.json /etc/fake-nvml.json && /usr/local/lib/testhost/fake-gpus"))


def _register(
    name: str, release: str, image: str, binds: Sequence[str], layers: Sequence[str], memory_bytes: int | None
) -> Host:
    """Claim name and address, and see to the bridge, in one step."""
    with locked(REGISTRY_LOCK):
        if (HOSTS / name).exists():
            raise HostError(
                f"there is already a test host {name!r}: `testhost destroy {name}` first, or choose another name"
            )
        network.ensure()
        address = network.free_address(host.address for host in all_hosts())
        host = Host(name, release, address, image, list(layers), list(binds), memory_bytes)
        SOCKETS.mkdir(mode=0o700, exist_ok=True)
        host.folder.mkdir(parents=True)
        host.record()
    return host


def _prepare(host: Host, image: Image, lower: Sequence[Path], gpus: Path | None) -> None:
    """Keys, inventory, and the overlay with what is this host's own."""
    folder = host.folder
    for key, comment in (("key", f"user of {host.name}"), ("host_key", host.name)):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", folder / key)
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"{host.address},{host.name} {host_key}\n")
    (folder / "inventory.yml").write_text(inventory(host))
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()

    # Written through the mount, not into the upper folder, so that folders keep the modes they have in the image.
    stack = ":".join(str(path) for path in (*reversed(lower), image.extras, image.base))
    options = f"lowerdir={stack},upperdir={folder / 'upper'},workdir={folder / 'work'},volatile"
    root = folder / "root"
    run("mount", "-t", "overlay", f"gpuhost-{host.name}", "-o", options, root)
    prefix = network.SUBNET.prefixlen
    settings = f"ADDRESS={host.address}\nPREFIX={prefix}\nMAC={network.mac_address(host.address)}\n"
    _write(root / "etc/testhost/network.env", settings)
    _write(root / "etc/hostname", f"{host.name}\n")
    _write(root / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{host.address} {host.name}\n")
    _write(
        root / "etc/machine-id", secrets.token_hex(16) + "\n"
    )  # without one, systemd takes it for a first boot: slow
    _write(root / "root/.ssh/authorized_keys", (folder / "key.pub").read_text(), 0o600)
    _write(root / "etc/ssh/ssh_host_ed25519_key", (folder / "host_key").read_text(), 0o600)
    _write(root / "etc/ssh/ssh_host_ed25519_key.pub", (folder / "host_key.pub").read_text())
    if gpus is not None:
        _write(root / "etc/fake-nvml.json", gpus.read_text())


def inventory(host: Host, group: str = "vllm") -> str:
    """An Ansible inventory (YAML) with this one host in `group`; host key checking stays on."""
    variables = {
        "ansible_host": host.address,
        "ansible_user": host.user,
        "ansible_ssh_private_key_file": str(host.folder / "key"),
        "ansible_ssh_common_args": " ".join(host.ssh_options()),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    lines = ["all:", "  children:", f"    {group}:", "      hosts:", f"        {host.name}:"]
    lines += [f"          {name}: {json.dumps(value)}" for name, value in variables.items()]
    return "\n".join(lines) + "\n"


def _start(host: Host) -> None:
    folder = host.folder
    groups = cgroups.make(host.name, host.memory_bytes)
    host.cgroups = [str(group) for group in groups]
    host.record()
    argv = ["systemd-nspawn", "--quiet", f"--directory={folder / 'root'}", f"--hostname={host.name}"]
    argv += [f"--machine={network.machine_name(host.address)}", "--register=no", "--keep-unit"]
    argv += [f"--network-bridge={network.BRIDGE}", "--console=read-only", "--link-journal=no"]
    argv += ["--resolv-conf=off", "--timezone=off", *(f"--bind-ro={bind}" for bind in host.binds), "--boot"]
    environment = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"} if host.release != "bookworm" else {}
    start = {"argv": argv, "env": environment, "cgroups": host.cgroups}
    (folder / "start.json").write_text(json.dumps(start, indent=2) + "\n")
    with undivided(), (folder / "console.log").open("wb") as console:
        supervisor = subprocess.Popen(
            [sys.executable, "-I", Path(__file__).with_name("supervise.py"), folder],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            cwd="/",
        )
        host.supervisor = supervisor.pid
        host.supervisor_started = start_time(supervisor.pid)
        host.record()


def _wait_until_running(host: Host) -> None:
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    said = ""
    while time.monotonic() < deadline:
        if not is_alive(host.supervisor, host.supervisor_started):
            raise HostError(f"{host.name} ended while it booted:\n{_console_tail(host)}")
        probe = run(*host.ssh("systemctl is-system-running --wait"), check=False, timeout=BOOT_TIMEOUT_S)
        said = probe.stdout.strip()
        if said == "running":
            return
        if said == "degraded":
            failed = run(*host.ssh("systemctl --failed --no-legend --plain; journalctl -b -p err -n 30 --no-pager"))
            raise HostError(f"{host.name} came up with failed units:\n{failed.stdout}")
        time.sleep(0.1)
    raise HostError(f"{host.name} is not up after {BOOT_TIMEOUT_S} s ({said or 'no SSH'}):\n{_console_tail(host)}")


def _console_tail(host: Host) -> str:
    return (host.folder / "console.log").read_text(errors="replace")[-3000:]


def _leader(host: Host) -> int:
    """The guest's PID 1 as this machine numbers it; 0 if it does not run."""
    if not is_alive(host.supervisor, host.supervisor_started):
        return 0
    for nspawn in children(host.supervisor):
        for leader in children(nspawn):
            return leader
    return 0


def _kill(host: Host) -> None:
    """Kill the supervisor, so that nothing starts again, then all that is in the host's control groups; wait for each."""
    groups = [Path(folder) for folder in host.cgroups]
    running = {host.supervisor: host.supervisor_started}
    # An SSH client of a command that was killed would wait for an answer long after the host is gone.
    running |= started_with("ssh", bytes(host.folder / "key"))
    while running:
        for pid, started in running.items():
            if not kill_and_wait(pid, started):
                raise HostError(
                    f"process {pid} of {host.name} does not end; nothing was removed. Try again, or look at it first"
                )
        # Not only systemd-nspawn and its children: a guest outlives an nspawn that was killed.
        running = {pid: started for pid in cgroups.processes(groups) if (started := start_time(pid))}


def _unmount(root: Path) -> None:
    if not os.path.ismount(root):
        return
    for _attempt in range(100):
        if run("umount", root, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise HostError(f"{root} is still in use: {run('umount', root, check=False).stderr.strip()}")


def _absolute_bind(bind: str) -> str:
    source, _colon, target = bind.partition(":")
    if not source or not Path(source).exists() or not target.startswith("/"):
        raise HostError(f"--ro {bind}: wanted SRC:DST with a SRC that exists and an absolute DST")
    return f"{Path(source).resolve()}:{target}"


def _check_gpus(path: Path) -> None:
    try:
        json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise HostError(f"{path} is no JSON description of fake GPUs: {error}") from None


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if path.parent.name == ".ssh" else 0o755)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)
