# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installed instance is, read from the host: its unit, its configuration and its release."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from ..errors import VllmHostError
from .systemd import unit_state
from .yaml_library import import_yaml

CONFIGURATION = Path("/etc/vllm")
DEPLOYMENTS = Path("/var/lib/vllm/deployments")
UNITS = Path("/etc/systemd/system")

_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)
_NO_SECRET = re.compile(r"tokens$|^max_|tokenizer|token_ids?$", re.IGNORECASE)
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}


@dataclass(frozen=True)
class ServiceInfo:
    """One instance.

    Args:
        unit, active: name of the unit; whether systemd holds it for running.
        url: where this host reaches the API. model: its name there. model_path: what is served. revision: commit of the checkpoint.
        options: of `vllm serve`, without secrets.
        release: folder of the virtual environment; release_id: its name.
        gpus: NVML indices; empty means all. device: `cuda` or `cpu`.
        restarts: how often systemd restarted it since its last deliberate start. start_id: of its last start (systemd's invocation).
        start_seconds: from that start until it was healthy, for which the unit's start waits.
    """

    instance: str
    unit: str
    active: bool
    url: str
    model: str
    model_path: str
    revision: str
    options: dict[str, Any]
    release: str
    release_id: str
    gpus: list[int]
    device: str
    restarts: int
    start_id: str
    start_seconds: Optional[float]

    def as_result(self) -> dict[str, Any]:
        return asdict(self)


def service_info(
    instance: str, configuration: Path = CONFIGURATION, deployments: Path = DEPLOYMENTS, units: Path = UNITS
) -> ServiceInfo:
    """Read an instance; raises ``instance_unknown`` or ``configuration_unreadable``."""
    unit = f"vllm-{instance}.service"
    unit_path, config_path = units / unit, configuration / f"{instance}.yaml"
    if not unit_path.is_file() or not config_path.is_file():
        known = sorted(path.stem for path in configuration.glob("*.yaml"))
        raise VllmHostError(
            "instance_unknown",
            f"There is no instance {instance} on this host ({unit_path} and {config_path}); "
            f"there {'are ' + ', '.join(known) if known else 'is none'}. Set vllm_instance, or run site.yml first.",
            instance=instance,
            known=known,
        )
    options = _options(config_path)
    state = unit_state(unit)
    record = _record(deployments / instance / "current" / "record.json")
    release = record.get("release") or _release_of(unit_path.read_text())
    model_path = str(options.get("model") or options.get("model_tag") or "")
    host = str(options.get("host") or "127.0.0.1")
    return ServiceInfo(
        instance=instance,
        unit=unit,
        active=state.running,
        url=record.get("url") or f"http://{_ANY_ADDRESS.get(host, host)}:{options.get('port', 8000)}",
        model=_served_name(options, model_path),
        model_path=model_path,
        revision=str(record.get("revision") or ""),
        options={name: value for name, value in options.items() if not _is_secret(name)},
        release=release,
        release_id=Path(release).name,
        gpus=[int(index) for index in record.get("gpus") or []],
        device=str(record.get("device") or "cuda"),
        restarts=state.restarts,
        start_id=state.invocation,
        start_seconds=state.start_seconds,
    )


def _options(path: Path) -> dict[str, Any]:
    yaml = import_yaml()
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        # The text of a YAML error quotes the file, which may hold secrets.
        raise VllmHostError(
            "configuration_unreadable", f"{path} is no YAML that can be read ({type(error).__name__}).", path=str(path)
        ) from None
    if not isinstance(document, dict):
        raise VllmHostError("configuration_unreadable", f"{path} holds no options.", path=str(path))
    return {str(name).replace("-", "_"): value for name, value in document.items()}


def _served_name(options: dict[str, Any], model_path: str) -> str:
    served = options.get("served_model_name")
    if isinstance(served, list):
        served = served[0] if served else None
    return str(served or model_path)


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _NO_SECRET.search(name)


def _record(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _release_of(unit: str) -> str:
    match = re.search(r"^ExecStart=(\S+)/bin/", unit, re.MULTILINE)
    return match[1] if match else ""
