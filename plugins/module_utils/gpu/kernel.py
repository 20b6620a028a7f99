# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's side of the GPUs, read from /proc, /sys and /dev under a root (so that tests can bring their own).

Nothing here writes, and nothing needs NVML: it also describes a host whose driver is missing or broken.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, Optional

from .problems_data import OPEN_MODULES_ONLY

Facts = dict[str, Any]

NVIDIA = "0x10de"
_PCI_DEVICES = "sys/bus/pci/devices"
# 1 byte of class and 1 of subclass: VGA and 3D controllers (PCI ID database, class 03).
_DISPLAY_CLASSES = ("0x0300", "0x0302")
# NVIDIA's and Ubuntu's packages build nvidia.ko. Debian's own (nvidia-open-kernel-dkms, nvidia-kernel-dkms) give the file another
# name, so that flavours and branches can lie side by side; once loaded it is "nvidia" like the others.
_MODULE_FILES = ("nvidia", "nvidia-current-open", "nvidia-current")
# A bridge of no other kind: how NVIDIA's driver finds its NVSwitches (open-gpu-kernel-modules, linux_nvswitch.c).
_NVSWITCH_CLASS = "0x0680"
# EFI global variable namespace (UEFI specification, 3.3).
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def kernel_module(root: Path = Path("/"), run_tools: bool = True) -> Facts:
    """The driver in the kernel.

    Returns:
        ``loaded``; ``version`` of the loaded module; ``flavour``: ``open`` or ``proprietary``; ``installed_version`` and
        ``installed_flavour``: of the module on disk for the running kernel (None where there is none, or no modinfo, as in
        most containers); ``uvm_loaded``, ``nouveau_loaded``; ``secure_boot`` (None where the firmware does not say).
    """
    version, flavour = parse_proc_version(_read(root / "proc/driver/nvidia/version"))
    installed_version, installed_license = _modinfo() if run_tools else (None, None)
    return {
        "loaded": version is not None or (root / "sys/module/nvidia").is_dir(),
        "version": version or _read(root / "sys/module/nvidia/version").strip() or None,
        "flavour": flavour,
        "installed_version": installed_version,
        "installed_flavour": flavour_of_license(installed_license),
        "uvm_loaded": (root / "sys/module/nvidia_uvm").is_dir(),
        "nouveau_loaded": (root / "sys/module/nouveau").is_dir(),
        "secure_boot": secure_boot(root),
    }


def parse_proc_version(text: str) -> tuple[Optional[str], Optional[str]]:
    """Version and flavour from /proc/driver/nvidia/version.

    The open flavour says "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04", the proprietary one
    "NVIDIA UNIX x86_64 Kernel Module  580.159.04".
    """
    found = re.search(r"^NVRM version:\s*(.*?)\s{2,}(\d+(?:\.\d+)+)", text, re.MULTILINE)
    if not found:
        return None, None
    return found.group(2), "open" if "Open Kernel Module" in found.group(1) else "proprietary"


def flavour_of_license(text: Optional[str]) -> Optional[str]:
    """``Dual MIT/GPL`` is the open module, ``NVIDIA`` the proprietary one (their MODULE_LICENSE)."""
    if not text:
        return None
    return "proprietary" if text.strip() == "NVIDIA" else "open"


def _modinfo() -> tuple[Optional[str], Optional[str]]:
    tool = shutil.which("modinfo") or shutil.which("modinfo", path="/usr/sbin:/sbin")
    if not tool:
        return None, None
    try:
        for name in _MODULE_FILES:
            version, license_text = (_modinfo_field(tool, field, name) for field in ("version", "license"))
            if version or license_text:
                return version, license_text
    except (OSError, subprocess.TimeoutExpired):
        pass
    return None, None


def _modinfo_field(tool: str, field: str, name: str) -> Optional[str]:
    done = subprocess.run([tool, "-F", field, name], capture_output=True, text=True, timeout=5, check=False)
    return done.stdout.strip() or None


def secure_boot(root: Path = Path("/")) -> Optional[bool]:
    """Whether the firmware enforces signatures: the variable is 4 bytes of attributes and 1 byte of value."""
    content = _read_bytes(root / _SECURE_BOOT)
    return content[4] == 1 if len(content) >= 5 else None


def device_nodes(root: Path = Path("/")) -> Facts:
    """The character devices that CUDA opens: ``gpus`` (paths), ``control``, ``uvm``, ``uvm_tools`` (whether they exist)."""
    folder = root / "dev"
    gpus = [path for path in folder.glob("nvidia[0-9]*") if re.fullmatch(r"nvidia\d+", path.name)]
    return {
        "gpus": [f"/dev/{path.name}" for path in sorted(gpus, key=lambda path: int(path.name[6:])) if _is_device(path)],
        "control": _is_device(folder / "nvidiactl"),
        "uvm": _is_device(folder / "nvidia-uvm"),
        "uvm_tools": _is_device(folder / "nvidia-uvm-tools"),
    }


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def pci_gpus(root: Path = Path("/")) -> list[Facts]:
    """NVIDIA GPUs on the PCI bus, whether or not a driver serves them, in bus order.

    Each: ``pci_id``, ``device_id`` (such as ``2bb5``), ``driver`` (bound kernel driver), ``numa_node`` (None where the
    machine has one), ``iommu_group``, ``iommu_type`` (``identity`` passes addresses through, ``DMA`` and ``DMA-FQ``
    translate), ``bar1_bytes`` (the largest memory window), ``acs_redirecting`` (bridges above it that send peer traffic up
    to the root complex; None where their configuration space cannot be read), ``needs_open_modules`` (whether the
    proprietary kernel module refuses it, by its device id), ``link_width`` and ``link_width_max`` (lanes now, and of the card
    itself), ``slot_width_max`` (lanes of the port above it; None in most virtual machines).
    """
    found = []
    for folder in _devices_of_nvidia(root, _DISPLAY_CLASSES):
        device_id = _read(folder / "device").strip()[2:] or None
        group = _link_name(folder / "iommu_group")
        node = _number(_read(folder / "numa_node"))
        found.append(
            {
                "pci_id": folder.name,
                "device_id": device_id,
                "driver": _link_name(folder / "driver"),
                "numa_node": node if node is not None and node >= 0 else None,
                "iommu_group": _number(group or ""),
                "iommu_type": _read(folder / "iommu_group/type").strip() or None,
                "bar1_bytes": largest_window(_read(folder / "resource")),
                "acs_redirecting": _acs_redirecting(folder),
                "needs_open_modules": needs_open_modules(device_id),
                "link_width": _lanes(folder / "current_link_width"),
                "link_width_max": _lanes(folder / "max_link_width"),
                "slot_width_max": _lanes(_resolved(folder).parent / "max_link_width"),
            }
        )
    return found


def nvswitches(root: Path = Path("/")) -> Optional[int]:
    """NVSwitches on the PCI bus that are this machine's; None where the bus is not visible.

    Up to Hopper they are PCI devices. Those of Blackwell are not, there NVML's fabric state tells alone. In a virtual machine with a
    part of the GPUs there are none, and another one has them (vfio-pci).
    """
    if not _children(root / _PCI_DEVICES):
        return None
    switches = _devices_of_nvidia(root, (_NVSWITCH_CLASS,))
    return sum(_link_name(folder / "driver") != "vfio-pci" for folder in switches)


def _devices_of_nvidia(root: Path, classes: tuple[str, ...]) -> list[Path]:
    """Folders of NVIDIA's PCI devices of these classes, in bus order."""
    return [
        folder
        for folder in sorted(_children(root / _PCI_DEVICES))
        if _read(folder / "vendor").strip() == NVIDIA and _read(folder / "class").strip().startswith(classes)
    ]


def is_running(name: str, root: Path = Path("/")) -> bool:
    """Whether a process of this name is there; the kernel keeps 15 characters of it."""
    return any(
        _read(folder / "comm").strip() == name[:15] for folder in _children(root / "proc") if folder.name.isdigit()
    )


def _lanes(file: Path) -> Optional[int]:
    """A PCIe link's width; the kernel writes 0 for a link that is down and 255 for one that it does not know."""
    lanes = _number(_read(file))
    return lanes if lanes is not None and 1 <= lanes <= 32 else None


def needs_open_modules(device_id: Optional[str]) -> bool:
    """Whether a PCI device id (such as ``2bb5``) is known to be of a GPU that only the open kernel modules start."""
    if not device_id or not re.fullmatch(r"[0-9a-f]{4}", device_id):
        return False
    number = int(device_id, 16)
    return any(first <= number <= last for first, last in OPEN_MODULES_ONLY)


def iommu_enabled(root: Path = Path("/")) -> bool:
    return bool(_children(root / "sys/class/iommu"))


def largest_window(resource: str) -> Optional[int]:
    """Bytes of the largest memory BAR, from a device's ``resource`` file: lines of start, end and flags, in hexadecimal.

    Only the first six lines are BARs. A BAR that the firmware could not place is all zeros.
    """
    sizes = []
    for line in resource.splitlines()[:6]:
        start, end, _flags = (int(part, 16) for part in line.split())
        if end > start:
            sizes.append(end - start + 1)
    return max(sizes, default=None)


def _acs_redirecting(device: Path) -> Optional[list[str]]:
    """PCI ids of the bridges above a device whose ACS redirects peer-to-peer requests or completions."""
    bridges = [
        part
        for part in _resolved(device).parts[:-1]
        if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part)
    ]
    redirecting = []
    for bridge in bridges:
        config = _read_bytes(device.parent / bridge / "config")
        if len(config) <= 256:  # an ordinary user, and some sandboxes, see only the first part
            return None
        control = acs_control(config)
        if control is not None and control & ACS_REDIRECT:
            redirecting.append(bridge)
    return redirecting


# PCI Express base specification, ACS Control Register: request redirect, completion redirect.
ACS_REDIRECT = 0b0000_1100
_ACS_CAPABILITY = 0x000D


def acs_control(config: bytes) -> Optional[int]:
    """The ACS control register in a PCI configuration space, or None without that capability.

    Extended capabilities start at 0x100; each header is 16 bits of id, 4 of version and 12 of the next one's offset.
    """
    offset = 0x100
    for _step in range(48):  # more than fit into 4 KiB: a broken list must not loop
        if offset < 0x100 or offset + 8 > len(config):
            return None
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS_CAPABILITY:
            return int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset = header >> 20
    return None


_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")


def parse_xids(lines: list[str]) -> list[Facts]:
    """Xid events of a kernel log, counted: ``pci_id`` (as sysfs spells it), ``xid``, ``count``, ``last`` (its text)."""
    events: dict[tuple[str, int], Facts] = {}
    for line in lines:
        found = _XID.search(line)
        if not found:
            continue
        bus = found.group(1).lower()
        pci_id = bus if "." in bus else f"{bus}.0"
        event = events.setdefault(
            (pci_id, int(found.group(2))), {"pci_id": pci_id, "xid": int(found.group(2)), "count": 0, "last": None}
        )
        event["count"] += 1
        event["last"] = found.group(3)
    return list(events.values())


# One message of two lines; the journal gives each as a line, /dev/kmsg the line break as \x0a.
_REFUSED = re.compile(
    r"NVRM: The NVIDIA GPU ([0-9a-f:.]+) \(PCI ID: [0-9a-f:]+\)(?:\s|\\x0a)*(?:NVRM: )?installed in this system "
    r"requires use of the NVIDIA open",
    re.IGNORECASE,
)


def parse_refused(lines: list[str]) -> list[str]:
    """PCI ids of the GPUs that the proprietary module refused, by a kernel log: those that need the open modules."""
    return sorted({found.lower() for found in _REFUSED.findall("\n".join(lines))})


def kernel_log() -> Optional[list[str]]:
    """This boot's lines of the NVIDIA driver in the kernel log; None where it cannot be read (as in most containers)."""
    journalctl = shutil.which("journalctl")
    if journalctl:
        command = [journalctl, "--dmesg", "--boot", "--output=cat", "--no-pager", "--lines=500", "--grep=NVRM"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, errors="replace")
        except (OSError, subprocess.TimeoutExpired):
            return _ring_buffer()
        if done.stdout:
            return done.stdout.splitlines()
    return _ring_buffer()


def _ring_buffer() -> Optional[list[str]]:
    """Lines of the driver in /dev/kmsg; reading stops at its end instead of waiting for more."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    lines = []
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten while we read: the next read gives the oldest that is left
                continue
            if not record:
                break
            if b"NVRM" in record:
                lines.append(record.decode(errors="replace"))
    except OSError:
        return lines or None
    finally:
        os.close(descriptor)
    return lines


def process_owner(pid: int, root: Path = Path("/")) -> Facts:
    """``name``, ``uid`` and systemd ``unit`` of a process; each None where it is gone or belongs to another PID namespace."""
    folder = root / "proc" / str(pid)
    uid = re.search(r"^Uid:\s+(\d+)", _read(folder / "status"), re.MULTILINE)
    unit = re.findall(r"/([^/\n]+\.service)", _read(folder / "cgroup"))
    return {
        "name": _read(folder / "comm").strip() or None,
        "uid": int(uid.group(1)) if uid else None,
        "unit": unit[-1] if unit else None,
    }


def _read(path: Path) -> str:
    return _read_bytes(path).decode(errors="replace")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _children(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except OSError:
        return path


def _link_name(path: Path) -> Optional[str]:
    try:
        return path.readlink().name
    except OSError:
        return None


def _number(text: str) -> Optional[int]:
    try:
        return int(text.strip())
    except ValueError:
        return None
