# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's Debian packages as one set: which belong to it, which releases are offered, what a switch installs and removes.

A driver is 10 to 40 packages with exact dependencies on each other. Switching some of them leaves "held broken packages";
so the whole installed set moves to one release, and what that release does not have goes.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import VllmHostError

Facts = dict[str, Any]

# Names of the driver's packages in NVIDIA's, Debian's and Ubuntu's repositories. Others start with the same words
# (nvidia-container-toolkit, libnvidia-container1, nvidia-cuda-toolkit), but their versions are not a driver release.
_NAMES = re.compile(
    r"(lib)?nvidia-.+|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libxnvctrl.*|cuda-drivers.*|firmware-nvidia-.+|"
    r"(xserver-xorg-video|libgl1|libegl|libglx|libgles)-nvidia.*"
)
# Small tools of the driver that work with any release of it; repositories may have them in one version only (Debian 13 has
# nvidia-modprobe 570.133.07 beside driver 550.163.01). They follow the driver where they can, and are else left to apt.
_TOOLS = {"nvidia-modprobe", "nvidia-persistenced", "nvidia-settings", "nvidia-xconfig"}
# A driver release after an epoch: three digits of branch, then two or three of build ("580.159.04-1", "1:580.95.05-0ubuntu1").
_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d{2,3}(?:\.\d+)*)(?!\d)")
# dpkg's status letters: want (i install, h hold), status (i installed), no error.
_WHOLE = {"ii", "hi"}


def release_of(version: str) -> str:
    """The driver release in a package version: ``1:580.159.04-1`` gives ``580.159.04``; empty for other versions."""
    found = _RELEASE.match(version)
    return found.group(1) if found else ""


def in_release(version: str, release: str) -> bool:
    """Whether a package version belongs to a branch (``580``) or is an exact release (``580.159.04``)."""
    own = release_of(version)
    return own == release or own.startswith(f"{release}.")


def belongs(name: str, version: str) -> bool:
    """Whether a package is part of a driver."""
    return bool(_NAMES.fullmatch(name)) and bool(release_of(version))


def parse_dpkg(text: str) -> list[Facts]:
    """``name``, ``version``, ``status`` from lines of ``${db:Status-Abbrev}|${Package}|${Version}``; of foreign architectures once."""
    packages = {}
    for line in text.splitlines():
        status, name, version = (part.strip() for part in line.split("|"))
        if version and status[:1] in "ihr" and status[1:2] not in ("n", "c"):
            packages[name] = {"name": name, "version": version, "status": status}
    return list(packages.values())


def parse_madison(text: str) -> dict[str, list[str]]:
    """Versions that the configured repositories offer, newest first, from ``apt-cache madison``."""
    offered: dict[str, list[str]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[2].endswith("Packages") and parts[1] not in offered.setdefault(parts[0], []):
            offered[parts[0]].append(parts[1])
    return offered


def plan(
    installed: list[Facts], offered: dict[str, list[str]], wanted: list[str], release: str, others: list[str]
) -> Facts:
    """How to come to one release of the driver.

    Args:
        installed: what :func:`parse_dpkg` gives.
        offered: what :func:`parse_madison` gives, of all names in ``wanted`` and ``others`` and of the installed driver packages.
        wanted: packages that must be of that release.
        release: a branch or an exact release.
        others: packages that must be there in any version (kernel headers, say).

    Returns:
        ``release``: the exact one that will be installed; ``install``: ``name=version`` for apt, the whole set, empty if it is in
        place; ``remove``: driver packages without that release; ``free``: held ones that apt may keep or remove as it needs;
        ``hold``: those that are to be held and are not; ``broken``: driver packages left half-way by dpkg; ``installed``: name to
        version of the driver's packages now.

    Raises:
        VllmHostError: ``driver_not_offered`` when a wanted package is not offered in that release; ``headers_not_offered`` when
            one of ``others`` is neither there nor offered.
    """
    drivers = {one["name"]: one for one in installed if belongs(one["name"], one["version"])}
    chosen = _exact_release(drivers, offered, wanted, release)
    targets = {name: _target(_known(name, drivers, offered), chosen) for name in [*wanted, *drivers]}
    names = sorted(name for name in targets if targets[name])
    without = sorted(name for name in drivers if not targets[name])
    present = {one["name"] for one in installed if one["status"][:2] in _WHOLE}
    missing = sorted(set(others) - present)
    _all_offered(missing, offered)
    moves = [name for name in names if name not in drivers or drivers[name]["version"] != targets[name]]
    broken = sorted(name for name, one in drivers.items() if one["status"][:2] not in _WHOLE)
    return {
        "release": chosen,
        "install": [f"{name}={targets[name]}" for name in names] + missing if moves or missing or broken else [],
        "remove": [name for name in without if name not in _TOOLS],
        "free": [name for name in without if name in _TOOLS and drivers[name]["status"][:1] == "h"],
        "hold": [name for name in names if drivers.get(name, {}).get("status", "")[:1] != "h"],
        "broken": broken,
        "installed": {name: one["version"] for name, one in sorted(drivers.items())},
    }


def _exact_release(drivers: dict[str, Facts], offered: dict[str, list[str]], wanted: list[str], release: str) -> str:
    """The newest release of the branch that the first wanted package comes in; all others must at least know the branch."""
    refused = [name for name in wanted if not any(in_release(v, release) for v in _known(name, drivers, offered))]
    if refused:
        there = {name: sorted({release_of(v) for v in offered.get(name, [])} - {""}) for name in refused}
        detail = "; ".join(f"{name}: {', '.join(there[name]) or 'not offered at all'}" for name in refused)
        raise VllmHostError(
            "driver_not_offered",
            f"Driver {release} is not offered by the configured repositories ({detail}). Set drivers_branch or drivers_version to what "
            "is there, or drivers_source to a repository that has it (Debian's own driver needs the components contrib, non-free and "
            "non-free-firmware).",
            release=release,
            offered=there,
        )
    newest = _newest(_known(wanted[0], drivers, offered), release)
    return release_of(newest)


def _all_offered(missing: list[str], offered: dict[str, list[str]]) -> None:
    unknown = [name for name in missing if not offered.get(name)]
    if unknown:
        raise VllmHostError(
            "headers_not_offered",
            f"The repositories do not offer {', '.join(unknown)}, for which the kernel modules are to be built. If the running kernel is "
            "older than the repositories' one, upgrade it and reboot; else name the right packages in drivers_kernel_headers.",
            packages=unknown,
        )


def _target(versions: list[str], release: str) -> str:
    """The version to move a package to: of that very release, else the newest of its branch, else empty.

    Some tools of a branch keep versions of their own (Debian's nvidia-persistenced 535.171 beside driver 535.247).
    """
    return _newest(versions, release) or _newest(versions, release.split(".")[0])


def _newest(versions: list[str], release: str) -> str:
    fitting = [version for version in versions if in_release(version, release)]
    return max(fitting, key=lambda version: [int(part) for part in release_of(version).split(".")], default="")


def _known(name: str, drivers: dict[str, Facts], offered: dict[str, list[str]]) -> list[str]:
    """Versions that can be had: those offered, newest first, and the one that is installed (a repository may have dropped it)."""
    own = [drivers[name]["version"]] if name in drivers else []
    return [*offered.get(name, []), *own]
