"""Trees of /proc, /sys, /dev and /run like those of a GPU host."""

from __future__ import annotations

from pathlib import Path

OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (builder@host)\nGCC version:  gcc 14\n"
)
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 23 10:11:16 UTC 2025\nGCC version:  gcc 14\n"
ACS_ID = 0x000D


def write(root: Path, path: str, content: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content)


def load_module(root: Path, version: str = "580.95.05", text: str = OPEN, uvm: bool = True) -> None:
    write(root, "proc/driver/nvidia/version", text.format(version))
    write(root, "sys/module/nvidia/version", f"{version}\n")
    if uvm:
        (root / "sys/module/nvidia_uvm").mkdir(parents=True)


def config_space(acs_control: int | None) -> bytes:
    """4 KiB of PCI Express configuration space: an AER capability first, then ACS if asked for."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | (1 << 16) | ((0x150 if acs_control is not None else 0) << 20)).to_bytes(4, "little")
    if acs_control is not None:
        space[0x150:0x154] = (ACS_ID | (1 << 16)).to_bytes(4, "little")
        space[0x156:0x158] = acs_control.to_bytes(2, "little")
    return bytes(space)


def add_nvswitch(root: Path, index: int) -> Path:
    """An NVSwitch of an HGX H100, as sysfs shows it."""
    folder = f"sys/bus/pci/devices/0000:{0x80 + index:02x}:00.0"
    write(root, f"{folder}/vendor", "0x10de\n")
    write(root, f"{folder}/class", "0x068000\n")
    write(root, f"{folder}/device", "0x22a3\n")
    return root / folder


def add_gpu(
    root: Path,
    index: int,
    acs_control: int | None = None,
    iommu: str | None = None,
    bar1: int = 2**37,
    device: str = "2bb5",
    width: int = 16,
    slot: int = 16,
) -> str:
    """A GPU below a bridge below a root port, as sysfs shows it; returns its PCI id."""
    bridge, gpu = f"0000:00:{index + 1:02x}.0", f"0000:{index + 1:02x}:00.0"
    folder = f"sys/devices/pci0000:00/{bridge}/{gpu}"
    flat = root / "sys/bus/pci/devices"
    flat.mkdir(parents=True, exist_ok=True)
    write(root, f"{folder}/vendor", "0x10de\n")
    write(root, f"{folder}/class", "0x030200\n")
    write(root, f"{folder}/device", f"0x{device}\n")
    write(root, f"{folder}/numa_node", f"{index % 2}\n")
    lines = [
        "0x00 0x00 0x00",
        f"{2**40:#x} {2**40 + bar1 - 1:#x} 0x14220c",
        *["0x0 0x0 0x0"] * 4,
        "0x0 0xffffffffffff 0x0",
    ]
    write(root, f"{folder}/resource", "\n".join(lines) + "\n")
    write(root, f"{folder}/config", config_space(None))
    write(root, f"sys/devices/pci0000:00/{bridge}/config", config_space(acs_control))
    write(root, f"sys/devices/pci0000:00/{bridge}/vendor", "0x8086\n")
    write(root, f"sys/devices/pci0000:00/{bridge}/class", "0x060400\n")
    for file, lanes in (("current_link_width", width), ("max_link_width", 16)):
        write(root, f"{folder}/{file}", f"{lanes}\n")
    write(root, f"sys/devices/pci0000:00/{bridge}/max_link_width", f"{slot}\n")
    if iommu:
        write(root, f"sys/kernel/iommu_groups/{index}/type", f"{iommu}\n")
        (root / folder / "iommu_group").symlink_to(root / f"sys/kernel/iommu_groups/{index}")
    for name in (bridge, gpu):
        path = f"sys/devices/pci0000:00/{bridge}" if name == bridge else folder
        (flat / name).symlink_to(root / path)
    return gpu
