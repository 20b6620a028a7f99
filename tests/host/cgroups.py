"""A control group of its own for each test host, in every hierarchy, so that hosts do not see each other's units.

Works on machines with the first version of control groups, the second one, and both at once.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from .errors import HostError


def folders(name: str) -> dict[str, Path]:
    """Controllers ('memory', 'name=systemd', '' for the second version) and the folder that host `name` has there."""
    mounts = _mounts()
    found: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _number, controllers, own = line.split(":", 2)
        if controllers in mounts:
            # Version 2 allows processes only in leaves: a sibling of everything, at the top. Version 1: below our own group, so
            # that a limit on this session holds for its test hosts too.
            parent = mounts[controllers] if not controllers else mounts[controllers] / own.lstrip("/")
            found[controllers] = parent / f"gpuhost-{name}"
    return found


def make(name: str, memory_bytes: int | None) -> list[Path]:
    """Make the groups of a host (limiting its memory if asked to) and return their folders."""
    made = folders(name)
    for controllers, folder in made.items():
        folder.mkdir(exist_ok=True)
        if "cpuset" in controllers.split(","):  # starts out empty in version 1, and then takes no process
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (folder / setting).write_text((folder.parent / setting).read_text())
    if memory_bytes is not None:
        _limit_memory(made, memory_bytes)
    return list(made.values())


def processes(recorded: list[Path]) -> set[int]:
    """Numbers of all processes in the groups."""
    found: set[int] = set()
    for top in recorded:
        for listing in top.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):  # gone meanwhile
                found.update(int(word) for word in listing.read_text().split())
    return found


def remove(recorded: list[Path]) -> None:
    """Remove the groups, deepest first. Their processes have ended; the kernel may need a moment to notice."""
    for top in recorded:
        for _attempt in range(50):
            if not top.exists():
                break
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                _rmdir(folder)
            if _rmdir(top):
                break
            time.sleep(0.05)


def _limit_memory(made: dict[str, Path], memory_bytes: int) -> None:
    for folder in made.values():
        for setting in ("memory.limit_in_bytes", "memory.max"):
            if (folder / setting).exists():
                (folder / setting).write_text(str(memory_bytes))
                return
    raise HostError("this machine gives no memory controller to test hosts: leave --memory out")


def _mounts() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        kind, _source, options = right.split(" ", 2)
        if kind == "cgroup2":
            found[""] = Path(left.split()[4])
        elif kind == "cgroup":
            names = [
                word for word in options.split(",") if word not in ("rw", "ro", "relatime", "xattr", "clone_children")
            ]
            found[",".join(names)] = Path(left.split()[4])
    return found


def _rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
