# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deploying an instance as a transaction: what does not become healthy is taken back.

An instance is three files (unit, engine configuration, environment) and a record of what it claims. What became healthy last is kept in
``/var/lib/vllm/deployments/<instance>/current``, the good one before it in ``previous``: the first is what a failed deploy goes back to, the
second what ``playbooks/rollback.yml`` goes back to. The unit names release and view by their paths, so these come back with it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Protocol

from ..errors import VllmHostError
from .environment_file import parse_environment_file
from .staged_files import Content, not_written, put_in_place, write_aside

DEPLOYMENTS = Path("/var/lib/vllm/deployments")
CONFIGURATION = Path("/etc/vllm")
UNITS = Path("/etc/systemd/system")

# What only the next start reads: the plan corrects its forecast after a start, and that is no reason for another one.
_TIME_OUTS = re.compile(
    r"^(?:TimeoutStartSec|StartLimitIntervalSec|VLLM_ENGINE_READY_TIMEOUT_S)=.*$|(?<= )--timeout=\S+", re.MULTILINE
)


_INSTANCE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


def require_instances(*names: str) -> None:
    """Nothing for names that instances may have: they become names of files and folders, which are also removed.

    Raises:
        VllmHostError: ``instance_invalid``.
    """
    for name in names:
        if not _INSTANCE.fullmatch(name):
            raise VllmHostError(
                "instance_invalid",
                f"{name[:100]!r} is no name of an instance: use lower case letters, digits and dashes, at most 40. Nothing was changed.",
                instance=name[:100],
            )


def unit_name(instance: str) -> str:
    return f"vllm-{instance}.service"


@dataclass(frozen=True)
class Deployment:
    """What one instance consists of.

    Args:
        instance: its name.
        unit, config, environment: texts of ``vllm-<instance>.service``, ``<instance>.yaml``, ``<instance>.env``.
        record: what it claims and runs, JSON-serialisable: ``gpus`` (indices; empty means all), ``device``, ``host``, ``port``, ``model``,
            ``release``, ``view``, ``url``.
    """

    instance: str
    unit: str
    config: str
    environment: str
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Content]:
        """By the name that they have in the store."""
        return {
            "unit": Content(self.unit),
            "config.yaml": Content(self.config, 0o644),
            "environment": Content(self.environment, 0o600, secret=True),
            "record.json": Content(json.dumps(self.record, indent=2, sort_keys=True) + "\n"),
        }


@dataclass(frozen=True)
class Places:
    """Where things are on the host."""

    deployments: Path = DEPLOYMENTS
    configuration: Path = CONFIGURATION
    units: Path = UNITS

    def live(self, instance: str) -> dict[str, Path]:
        """The files that systemd and vLLM read."""
        return {
            "unit": self.units / unit_name(instance),
            "config.yaml": self.configuration / f"{instance}.yaml",
            "environment": self.configuration / f"{instance}.env",
        }

    def saved(self, instance: str, generation: str) -> Path:
        return self.deployments / instance / generation


class Service(Protocol):
    """Changes of a unit's state. ``start`` returns the seconds until it was ready, or raises ``service_not_ready``."""

    def is_running(self, unit: str) -> bool:
        """Whether systemd holds it for running."""

    def start(self, unit: str) -> float:
        """Start it anew and wait until it is ready."""

    def stop(self, unit: str) -> None:
        """Stop it; start nothing."""

    def enable(self, unit: str) -> bool:
        """Have it started with the host; True if it was not before."""

    def remove(self, unit: str) -> None:
        """Stop it and no longer start it with the host."""

    def reload(self) -> None:
        """Have systemd read the unit files again."""


@dataclass(frozen=True)
class Difference:
    """What would change: ``before`` and ``after`` as texts for a diff, secrets hidden.

    Args:
        changed: something is to be done. restart: the service must be started anew; False when only time-outs of the start differ.
    """

    before: str
    after: str
    changed: bool
    restart: bool


def difference(deployment: Deployment, places: Places, running: bool) -> Difference:
    """Compare with what is on the host."""
    before: list[str] = []
    after: list[str] = []
    same = alike = True
    for name, path in places.live(deployment.instance).items():
        wanted = deployment.files[name]
        found = _read(path)
        same = same and found == wanted.text
        alike = alike and _TIME_OUTS.sub("", found or "") == _TIME_OUTS.sub("", wanted.text)
        if found is not None:
            before.append(f"--- {path}\n{_shown(found, wanted.text, wanted.secret)}")
        after.append(f"--- {path}\n{_shown(wanted.text, found or '', wanted.secret)}")
    if not running:
        before.append("the service is not running\n")
        after.append("the service is running\n")
    return Difference("".join(before), "".join(after), not (same and running), not (alike and running))


def apply(deployment: Deployment, places: Places, service: Service, replaces: Sequence[str] = ()) -> float:
    """Put the files in place, start, and keep the result as the good one; return the seconds until it was ready.

    The instances that it ``replaces`` are stopped for the start and removed when it is healthy. If it does not become
    healthy, the last good files are put back and started (or removed, when there were none), and ``deploy_failed`` is
    raised with the cause, and with ``details.restored`` saying what runs now.
    """
    unit = unit_name(deployment.instance)
    live = places.live(deployment.instance)
    # What was deployed before but is not in the store (by hand, or a store that was lost) is worth going back to as well.
    fallback = _saved_files(places.saved(deployment.instance, "current")) or _live_files(live)
    others = [unit_name(name) for name in replaces if service.is_running(unit_name(name))]
    # All that needs room on the disk is written before anything is stopped or changed.
    record = _write_record(deployment, places)
    try:
        staged = write_aside(live, deployment.files)
    except VllmHostError:
        _forget(record)
        raise
    try:
        for other in others:
            service.stop(other)
        put_in_place(staged)
        service.reload()
        seconds = service.start(unit)
    except VllmHostError as error:
        _forget(record)
        restored = _go_back(deployment.instance, fallback, places, service)
        for other in others:
            _start_again(other, service, restored)
        raise VllmHostError(
            "deploy_failed",
            f"{error.message} {restored['message']}",
            cause=error.details.get("cause"),
            log=error.details.get("log"),
            reason=error.code,
            restored=restored,
        ) from error
    service.enable(unit)
    _promote(record, deployment.instance, places)
    for name in replaces:
        remove(name, places, service)
    return seconds


def apply_to_next_start(deployment: Deployment, places: Places, service: Service) -> None:
    """Put the files in place for the next start and leave the service running: for a difference without ``restart``."""
    current = places.saved(deployment.instance, "current")
    live = write_aside(places.live(deployment.instance), deployment.files)
    saved = write_aside({name: current / name for name in deployment.files}, deployment.files)
    put_in_place({**live, **saved})
    service.reload()


def roll_back(instance: str, places: Places, service: Service, dry: bool = False) -> dict[str, Any]:
    """Deploy the good one before the current one, as a transaction too; return its record with ``seconds``.

    With ``dry`` it is only looked whether that is possible.
    """
    previous = places.saved(instance, "previous")
    files = _saved_files(previous)
    if not files:
        raise VllmHostError(
            "nothing_to_roll_back_to",
            f"The instance '{instance}' has no earlier deployment that was healthy: {previous} does not exist.",
            instance=instance,
        )
    record = read_record(previous / "record.json")
    missing = [path for path in (record.get("release"), record.get("view")) if path and not Path(path).exists()]
    if missing:
        raise VllmHostError(
            "rollback_incomplete",
            f"The earlier deployment of '{instance}' needs {' and '.join(missing)}, which is gone: deploy it from the inventory.",
            missing=missing,
        )
    if dry:
        return {**record, "seconds": 0.0}
    texts = {name: content.text for name, content in files.items()}
    deployment = Deployment(instance, texts["unit"], texts["config.yaml"], texts["environment"], record)
    return {**record, "seconds": apply(deployment, places, service)}


def exists(instance: str, places: Places) -> bool:
    """Whether anything of an instance is on the host."""
    return any(path.exists() for path in [*places.live(instance).values(), places.deployments / instance])


def remove(instance: str, places: Places, service: Service) -> None:
    """Stop an instance and take its files and its store away."""
    service.remove(unit_name(instance))
    for path in places.live(instance).values():
        path.unlink(missing_ok=True)
    shutil.rmtree(places.deployments / instance, ignore_errors=True)
    service.reload()


def records(places: Places) -> dict[str, dict[str, Any]]:
    """What each installed instance claims, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(places.deployments.glob("*/current/record.json")):
        instance = path.parent.parent.name
        if places.live(instance)["unit"].exists():
            found[instance] = read_record(path)
    return found


def read_record(path: Path) -> dict[str, Any]:
    """What an instance claims; {} where nothing was written.

    Raises:
        VllmHostError: ``record_unreadable``.
    """
    try:
        record = json.loads(_read(path) or "{}")
    except (OSError, ValueError, RecursionError) as error:
        record = error
    if not isinstance(record, dict):
        raise VllmHostError(
            "record_unreadable",
            f"{path} is damaged, so it is not known what this instance claims. Deploy it anew, or remove it by playbooks/teardown.yml.",
            path=str(path),
        )
    return record


def gpu_conflicts(gpus: list[int], device: str, others: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Other instances that claim GPUs of this one: ``{instance, gpus}``; an empty list of GPUs claims all."""
    if device == "cpu":
        return []
    conflicts: list[dict[str, Any]] = []
    for name, record in others.items():
        if record.get("device") == "cpu":
            continue
        theirs = record.get("gpus") or []
        if not gpus or not theirs:
            conflicts.append({"instance": name, "gpus": theirs or gpus})
        elif set(gpus) & set(theirs):
            conflicts.append({"instance": name, "gpus": sorted(set(gpus) & set(theirs))})
    return conflicts


def _go_back(instance: str, fallback: dict[str, Content], places: Places, service: Service) -> dict[str, Any]:
    unit = unit_name(instance)
    service.stop(unit)
    live = places.live(instance)
    if not fallback:
        service.remove(unit)
        for path in live.values():
            path.unlink(missing_ok=True)
        service.reload()
        return {
            "deployment": None,
            "healthy": False,
            "message": "There was no earlier deployment to go back to: the unit was removed again.",
        }
    try:
        put_in_place(write_aside(live, fallback))
        service.reload()
        seconds = service.start(unit)
    except VllmHostError as error:
        return {
            "deployment": "last good",
            "healthy": False,
            "message": f"The last good deployment does not start either: {error.message}",
        }
    return {
        "deployment": "last good",
        "healthy": True,
        "seconds": seconds,
        "message": "The last good deployment was put back and is healthy.",
    }


def _start_again(unit: str, service: Service, restored: dict[str, Any]) -> None:
    """Start an instance that was to be replaced, and say how that went in ``restored``."""
    try:
        service.start(unit)
    except VllmHostError as error:
        restored["message"] += f" {unit}, which was to be replaced, does not start again: {error.message}"
    else:
        restored["message"] += f" {unit}, which was to be replaced, runs again."


def _write_record(deployment: Deployment, places: Places) -> Path:
    """A new folder of the store with a deployment that is not known to be good yet; see :func:`_promote`."""
    store = places.deployments / deployment.instance
    aside: Optional[Path] = None
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=store))
        put_in_place(write_aside({name: aside / name for name in deployment.files}, deployment.files))
    except (OSError, VllmHostError) as error:
        if aside:
            _forget(aside)
        raise error if isinstance(error, VllmHostError) else not_written(store, error) from error
    return aside


def _forget(record: Path) -> None:
    """Remove a folder of the store, and the store of an instance that has no other."""
    shutil.rmtree(record, ignore_errors=True)
    with contextlib.suppress(OSError):
        record.parent.rmdir()


def _promote(record: Path, instance: str, places: Places) -> None:
    """Make a healthy deployment the ``current`` one; what was current becomes ``previous`` unless it is the same."""
    current, previous = places.saved(instance, "current"), places.saved(instance, "previous")
    if current.exists():
        if _saved_files(current) != _saved_files(record):
            shutil.rmtree(previous, ignore_errors=True)
            current.replace(previous)
        else:
            shutil.rmtree(current)
    record.replace(current)


def _live_files(live: Mapping[str, Path]) -> dict[str, Content]:
    """Files on the host, empty unless they are all there."""
    found = {name: _read(path) for name, path in live.items()}
    if any(text is None for text in found.values()):
        return {}
    modes = Deployment("", "", "", "").files
    return {name: Content(text or "", modes[name].mode, modes[name].secret) for name, text in found.items()}


def _saved_files(folder: Path) -> dict[str, Content]:
    return _live_files({name: folder / name for name in ("unit", "config.yaml", "environment")})


def _shown(found: str, other: str, secret: bool) -> str:
    """A file for a diff; of a secret one only the names, and whether the value is the same as in ``other``."""
    if not secret:
        return found.encode("utf-8", "replace").decode()
    values, others = parse_environment_file(found), parse_environment_file(other)
    return "".join(
        f"{name}=({'same' if others.get(name) == value else 'another'} value)\n" for name, value in values.items()
    )


def _read(path: Path) -> Optional[str]:
    """Text of a file, byte for byte, also where somebody's hand left something else than UTF-8; None where there is none."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
