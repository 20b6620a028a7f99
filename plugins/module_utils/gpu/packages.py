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
    r"(lib)?nvidia-.+|libnvsdm.*|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libxnvctrl.*|cuda-drivers.*|firmware-nvidia-.+|"
    r"(xserver-xorg-video|libgl1|libegl|libglx|libgles)-nvidia.*"
)
# Small tools of the driver that work with any release of it; repositories may have them in one version only (Debian 13 has
# nvidia-modprobe 570.133.07 beside driver 550.163.01). They follow the driver where they can, and are else left to apt.
_TOOLS = {"nvidia-modprobe", "nvidia-persistenced", "nvidia-settings", "nvidia-xconfig"}
# What other parts of the host need from the driver's release, under names that may or may not have the branch in them: the fabric of
# machines with NVSwitch (without it CUDA fails with error 802), its libraries, and multi-node NVLink. They move with the driver.
_COMPANION = re.compile(r"(nvidia-fabricmanager|nvidia-imex|libnvidia-nscq|libnvsdm)(?:-\d{3})?")
# Ubuntu's firmware packages have the whole release in their name, and each depends on nothing: nvidia-firmware-580-580.95.05.
_RELEASE_IN_NAME = re.compile(r"-(\d{3}\.\d{2,3}(?:\.\d+)*)$")
# Meta packages that bring each new kernel, and the ones that bring its headers: Debian's and Ubuntu's, and Proxmox's.
_KERNEL_META = re.compile(
    r"linux-image-(?!unsigned-|\d)(?P<flavour>.+)|(?P<proxmox>(proxmox|pve)-(default-)?kernel(-\d+\.\d+)?)"
)
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


def parse_madison(text: str, repository: str = "") -> dict[str, list[str]]:
    """Versions that the configured repositories offer, newest first, from ``apt-cache madison``.

    Args:
        text: lines of ``name | version | where``.
        repository: URL that the driver's packages must come from; empty takes them from anywhere. The driver of another
            repository may have the same names and releases (Ubuntu's and NVIDIA's have), and the two must not be mixed.
    """
    offered: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, version, where = [*(part.strip() for part in line.split("|")), "", ""][:3]
        if not where.endswith("Packages"):
            continue
        if repository and belongs(name, version) and where.split()[0].rstrip("/") != repository.rstrip("/"):
            continue
        if version not in offered.setdefault(name, []):
            offered[name].append(version)
    return offered


def names_to_ask(installed: list[Facts], wanted: list[str], release: str, others: list[str]) -> list[str]:
    """Every name whose offers :func:`plan` has to know."""
    drivers = [one["name"] for one in installed if belongs(one["name"], one["version"])]
    successors = [name for one in [*wanted, *drivers] for name in _successors(one, release)]
    headers = [_headers_of(one["name"]) for one in installed]
    return sorted({*wanted, *others, *drivers, *successors, *filter(None, headers)})


def plan(
    installed: list[Facts],
    offered: dict[str, list[str]],
    wanted: list[str],
    release: str,
    others: list[str],
    follow_kernel: bool = False,
) -> Facts:
    """How to come to one release of the driver.

    Args:
        installed: what :func:`parse_dpkg` gives.
        offered: what :func:`parse_madison` gives, of all of :func:`names_to_ask`.
        wanted: packages that must be of that release. One that no repository has in any release of a driver
            (``linux-modules-nvidia-580-server-open-generic``, which follows the kernel's version) may be of any version, and
            ``nvidia-fabricmanager`` is taken under the name that it has there.
        release: a branch or an exact release.
        others: packages that must be there in any version (kernel headers, say).
        follow_kernel: also want the headers of the kernels to come, for each meta package that brings such kernels.

    Returns:
        ``release``: the exact one that will be installed; ``install``: ``name=version`` for apt, the whole set, empty if it is in
        place; ``remove``: driver packages without that release; ``free``: held ones that apt may keep or remove as it needs;
        ``hold``: those that are to be held and are not; ``held``: those that are; ``broken``: driver packages left half-way by
        dpkg; ``installed``: name to version of the driver's packages now.

    Raises:
        VllmHostError: ``driver_not_offered`` when a wanted package is not offered in that release; ``fabric_manager_not_offered``
            when that is wanted or installed, and not offered in it; ``headers_not_offered`` when one of ``others`` is neither
            there nor offered.
    """
    drivers = {one["name"]: one for one in installed if belongs(one["name"], one["version"])}
    companions = [name for name in [*wanted, *drivers] if _COMPANION.fullmatch(name)]
    parts = [name for name in wanted if name not in companions and _is_part(_known(name, drivers, offered))]
    chosen = _exact_release(drivers, offered, parts, release)
    moving = [name for name in [*parts, *drivers] if name not in companions and _may_stay(name, chosen)]
    moving += _companions(companions, drivers, offered, chosen)
    targets = {name: _target(_known(name, drivers, offered), chosen) for name in moving}
    names = sorted(name for name in targets if targets[name])
    without = sorted(name for name in drivers if not targets.get(name))
    present = {one["name"]: one["version"] for one in installed if one["status"][:2] in _WHOLE}
    missing = sorted(
        {*others, *(name for name in wanted if name not in parts and name not in companions)} - set(present)
    )
    _all_offered(missing, offered)
    if follow_kernel:
        missing += _headers_to_come(present, offered)
    moves = [name for name in names if name not in drivers or drivers[name]["version"] != targets[name]]
    broken = sorted(name for name, one in drivers.items() if one["status"][:2] not in _WHOLE)
    held = [name for name in names if drivers.get(name, {}).get("status", "")[:1] == "h"]
    return {
        "release": chosen,
        "install": [f"{name}={targets[name]}" for name in names] + missing if moves or missing or broken else [],
        "remove": [name for name in without if name not in _TOOLS],
        "free": [name for name in without if name in _TOOLS and drivers[name]["status"][:1] == "h"],
        "hold": [name for name in names if name not in held],
        "held": held,
        "broken": broken,
        "installed": {name: one["version"] for name, one in sorted(drivers.items())},
    }


def _is_part(versions: list[str]) -> bool:
    """Whether a wanted package is part of a driver; one that nobody offers is taken for one, and complained of."""
    return not versions or any(release_of(version) for version in versions)


def _may_stay(name: str, release: str) -> bool:
    """False for packages whose name says that they are of another release."""
    found = _RELEASE_IN_NAME.search(name)
    return not found or found.group(1) == release


def _successors(name: str, release: str) -> list[str]:
    """What a companion may be called in a release, with the branch and without; empty for other packages."""
    found = _COMPANION.fullmatch(name)
    return [f"{found.group(1)}-{release.split('.')[0]}", found.group(1)] if found else []


def _companions(names: list[str], drivers: dict[str, Facts], offered: dict[str, list[str]], release: str) -> list[str]:
    """What companions are called in exactly that release. Only the fabric manager is worth stopping for."""
    found = []
    for name in names:
        successors = _successors(name, release)
        fitting = [one for one in successors if _newest(_known(one, drivers, offered), release)]
        if fitting and fitting[0] not in found:
            found.append(fitting[0])
        elif not fitting and name.startswith("nvidia-fabricmanager"):
            raise VllmHostError(
                "fabric_manager_not_offered",
                f"This machine's NVSwitches need the fabric manager in exactly the driver's release, and the repositories offer neither "
                f"{' nor '.join(successors)} in release {release}. Set drivers_version to a release that has it, or drivers_source to a "
                "repository that has; if the machine needs none, remove the package.",
                package=name,
            )
    return found


def _headers_of(name: str) -> str:
    """The meta package with the headers of the kernels that a meta package brings; empty for other packages."""
    found = _KERNEL_META.fullmatch(name)
    if not found:
        return ""
    proxmox = found.group("proxmox")
    return proxmox.replace("kernel", "headers") if proxmox else f"linux-headers-{found.group('flavour')}"


def _headers_to_come(present: dict[str, str], offered: dict[str, list[str]]) -> list[str]:
    """Headers for each meta package of kernels, in its own version where that is offered: a newer one would bring a newer kernel."""
    found = []
    for name, version in sorted(present.items()):
        headers = _headers_of(name)
        if headers and headers not in present and offered.get(headers):
            found.append(f"{headers}={version}" if version in offered[headers] else headers)
    return found


def _exact_release(drivers: dict[str, Facts], offered: dict[str, list[str]], wanted: list[str], release: str) -> str:
    """The newest release of the branch that the first wanted package comes in; all others must at least know the branch."""
    if not wanted:
        raise VllmHostError(
            "driver_not_offered",
            "None of the packages in drivers_packages is part of a driver: name the user-space packages too, or leave it empty.",
            release=release,
            offered={},
        )
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
