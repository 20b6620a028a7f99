# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host's driver is left alone, installed, matched to the container's host, or refused; and whether to reboot."""

from __future__ import annotations

from typing import Any

from .problems import at_least, other_flavour

Facts = dict[str, Any]


def decide(
    facts: Facts, branch: str, version: str = "", kernel_modules: str = "auto", downgrade: bool = False
) -> Facts:
    """What to do about the driver.

    Args:
        facts: what ``gpu_info`` returns.
        branch: release branch that is wanted, such as ``580``; a newer one that works is left alone unless ``downgrade``.
        version: exact release that is wanted, such as ``580.159.04``; empty for the newest of the branch.
        kernel_modules: ``auto`` (the kernel side is ours except in a container), ``install`` (ours in any case, as for an
            image that is built in a container), ``skip`` (never ours).

    Returns:
        ``action``: ``none``, ``everything`` (kernel modules and user space), ``user_space`` or ``refuse``; ``release``: what
        to install, a branch or an exact release; ``exact``: which of the two; ``reasons``: sentences.
    """
    branch, version = str(branch), str(version)  # YAML makes numbers of them
    container = facts["container"]
    if container == "wsl":
        return _refuse("In WSL the driver is that of Windows: install it there, nothing here.")
    if kernel_modules == "install" or (kernel_modules == "auto" and container == "none"):
        return _whole_driver(facts, branch, version, kernel_modules, downgrade)
    decision = _user_space(facts, version, container)
    release = facts["kernel_module"]["version"]
    if decision["action"] != "refuse" and release and not version and not at_least(release, branch):
        decision["reasons"].append(f"branch {branch} is wanted, and must be installed {_elsewhere(container)} first")
    return decision


def _whole_driver(facts: Facts, branch: str, version: str, kernel_modules: str, downgrade: bool) -> Facts:
    reasons = _shortcomings(facts, branch, version, downgrade)
    if not reasons:
        return _leave_alone(f"driver {_release(facts)} works")
    if kernel_modules != "install" and not facts["pci_gpus"] and not facts["gpus"]:
        return _refuse("There is no NVIDIA GPU on the PCI bus, so no driver is installed: check the inventory.")
    return {"action": "everything", "release": version or branch, "exact": bool(version), "reasons": reasons}


def _shortcomings(facts: Facts, branch: str, version: str, downgrade: bool) -> list[str]:
    """Why the driver of a machine does not do; empty if it does."""
    nvml, release = facts["nvml"], _release(facts)
    problems = {problem["id"]: problem["found"] for problem in facts["problems"]}
    reasons = []
    if nvml["state"] in ("library_missing", "driver_not_loaded", "version_mismatch", "error"):
        reasons.append(f"NVML does not start: {nvml['state']}")
    if nvml["state"] == "client_missing" and not release:
        reasons.append("no driver is loaded")
    if "driver_library_mismatch" in problems and nvml["state"] == "ok":
        reasons.append(problems["driver_library_mismatch"])
    if "proprietary_on_blackwell" in problems:  # seen on the PCI bus too, where NVML starts and counts no GPU
        reasons.append(problems["proprietary_on_blackwell"])
    if release and version and release != version:
        reasons.append(f"driver {release} is there, {version} is wanted")
    elif release and not at_least(release, branch):
        reasons.append(f"driver {release} is older than branch {branch}")
    elif release and downgrade and not version and release.split(".")[0] != branch:
        reasons.append(f"driver {release} is not of branch {branch}, and a downgrade is allowed")
    return reasons


def _user_space(facts: Facts, version: str, container: str) -> Facts:
    """The kernel side is another's: ours is the library, of exactly that release."""
    where = _elsewhere(container)
    kernel = facts["kernel_module"]
    release = kernel["version"]
    if not release:
        if facts["nvml"]["state"] == "ok":
            return _leave_alone(f"NVML works; the kernel module of {facts['driver_version']} is not visible from here")
        return _refuse(
            f"The kernel module nvidia is not loaded, and it must be {where}: install and load the driver there, pass "
            "/dev/nvidia* in, then run this again. Only the matching user-space library is installed here."
        )
    if any(problem["id"] == "proprietary_on_blackwell" for problem in facts["problems"]):
        return _refuse(
            f"The kernel module {release} is the proprietary flavour, which Blackwell GPUs refuse: install the open kernel "
            f"modules {where}. Nothing installed here would help."
        )
    if version and version != release:
        return _refuse(
            f"drivers_version asks for {version}, but the kernel module {where} is {release}, and the two must be equal: "
            f"leave drivers_version empty, or change the driver there to {version} first."
        )
    library = facts["nvml"]["library_version"]
    if facts["nvml"]["state"] == "client_missing":
        return _leave_alone(
            f"the kernel module is {release}; whether the library fits is seen once the tools (pynvml) are installed"
        )
    if library == release:
        return _leave_alone(f"user-space library and kernel module are both {release}")
    if library is None and facts["nvml"]["state"] == "ok":
        return _leave_alone(f"NVML works with kernel module {release}")
    reason = f"the kernel module {where} is {release}, the user-space library here is {library or 'missing'}: it must be {release}"
    return {"action": "user_space", "release": release, "exact": True, "reasons": [reason]}


def _elsewhere(container: str) -> str:
    return (
        "on the host of this container" if container != "none" else "outside this role (drivers_kernel_modules is skip)"
    )


def reboot(
    facts: Facts, installed: str, allowed: bool, local: bool, tried: bool = False, options_changed: bool = False
) -> Facts:
    """Whether the running kernel needs a reboot for the driver that is installed now.

    Args:
        facts: what ``gpu_info`` returns after the packages are in place and loading the module was tried.
        installed: release of the installed packages; empty if unknown.
        allowed: drivers_reboot.
        local: the play runs on the very machine that would be rebooted.
        tried: the machine was booted since packages and settings last changed. Where the module is not loaded all the same (Secure
            Boot, no module for this kernel), or still the other flavour of it (two are installed), each run would else reboot it
            in vain.
        options_changed: the options of the modules changed since they were loaded.

    Returns:
        ``needed``, ``do`` (needed and nothing forbids it), ``why`` (sentences: why needed, then what forbids it; or what is wrong with the
        loaded module although a reboot would not help).
    """
    kernel = facts["kernel_module"]
    if kernel["version"] and installed and kernel["version"] != installed:
        why = [f"kernel module {kernel['version']} is loaded, {installed} is installed"]
    else:
        why = _other_module(kernel)
        if why and tried:
            return {
                "needed": False,
                "do": False,
                "why": [*why, "a boot since the installation did not help, see `dmesg`"],
            }
    if not why and options_changed:
        why = ["the options of the kernel modules changed since they were loaded"]
    needed = bool(why)
    forbidden = []
    if facts["container"] != "none":
        forbidden.append("this is a container: reboot its host")
    elif local:
        forbidden.append("the play runs on this very host: reboot it yourself, then run the play again")
    elif not allowed:
        forbidden.append("drivers_reboot is false: set it to true, or reboot yourself and run the play again")
    return {"needed": needed, "do": needed and not forbidden, "why": why + (forbidden if needed else [])}


def _other_module(kernel: Facts) -> list[str]:
    """What is wrong with the module that is loaded, its release apart."""
    if not kernel["loaded"]:
        return [
            "nouveau holds the GPUs" if kernel["nouveau_loaded"] else "the kernel module nvidia could not be loaded"
        ]
    if other_flavour(kernel):
        flavours = f"{kernel['flavour']} flavour is loaded, the {kernel['installed_flavour']} one is installed"
        return [f"kernel module {kernel['version']} of the {flavours}"]
    return []


def _release(facts: Facts) -> str:
    return facts["driver_version"] or facts["kernel_module"]["version"] or ""


def _leave_alone(reason: str) -> Facts:
    return {"action": "none", "release": "", "exact": False, "reasons": [reason]}


def _refuse(reason: str) -> Facts:
    return {"action": "refuse", "release": "", "exact": False, "reasons": [reason]}
