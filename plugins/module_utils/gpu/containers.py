# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kind of container this is, if any: there the kernel, and so the driver's kernel side, belongs to the host."""

from __future__ import annotations

from pathlib import Path

# What container managers write to /run/systemd/container or to `container=` in the environment of process 1, by the
# convention of https://systemd.io/CONTAINER_INTERFACE; our name for it.
_NAMES = {
    "lxc": "lxc",
    "lxc-libvirt": "lxc",
    "systemd-nspawn": "nspawn",
    "docker": "docker",
    "podman": "podman",
    "oci": "oci",
    "rkt": "other",
    "wsl": "wsl",
}
# Files that engines leave where no such variable is set.
_MARKERS = {".dockerenv": "docker", "run/.containerenv": "podman"}


def container_kind(root: Path = Path("/")) -> str:
    """``lxc``, ``nspawn``, ``docker``, ``podman``, ``oci``, ``wsl``, ``other``, or ``none`` on a machine of its own."""
    told = _read(root / "run/systemd/container").strip() or _environment_of_init(root)
    if told:
        return _NAMES.get(told, "other")
    for marker, kind in _MARKERS.items():
        if (root / marker).exists():
            return kind
    return "none"


def _environment_of_init(root: Path) -> str:
    """The value of ``container`` in process 1's environment; empty if unset, or unreadable without root."""
    for item in _read(root / "proc/1/environ").split("\0"):
        name, _separator, value = item.partition("=")
        if name == "container":
            return value
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
