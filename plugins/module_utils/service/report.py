# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verification report as a document: what runs, whether it is right, what was forecast and what came, what changed.

`build_report()` takes what the modules returned and sums it up; `report_html` makes the page. The document is the JSON file itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

SCHEMA = 1
GIB = 1 << 30

PASSED, WARNINGS, FAILED = "passed", "warnings", "failed"

# Checks of the report beside those of the probe.
OWN_CHECKS = ("service", "install", "log")


def build_report(found: Mapping[str, Any]) -> dict[str, Any]:
    """The document.

    Args:
        found: what was learned, each part as its module or role returned it, or empty:
            `instance`, `host`, `generated_at` (ISO 8601), `quick` (bool), `required_checks`, `expected_tokens_per_second`,
            `service` (vllm_service_info), `plan` (fact vllm_plan), `view` (fact vllm_view), `gpus` (gpu_info), `install`
            (vllm_install_info), `log` (vllm_log_triage), `probe` (vllm_probe), `bench` (vllm_bench), `previous` (text of the JSON file before this one).
    """
    found = _writable(found)
    previous = read_previous(str(found.get("previous") or ""))
    log = found.get("log") or {}
    service = found.get("service") or {}
    plan = found.get("plan") or {}
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "instance": found["instance"],
        "host": found["host"],
        "generated_at": found["generated_at"],
        "quick": bool(found.get("quick")),
        "service": _service(service, plan, found.get("view") or {}, log),
        "kv_cache": _kv_cache(plan, log, found.get("view") or {}, previous),
        "memory": _memory(found.get("gpus") or {}, service, log),
        "forecast": _forecast(plan, service, log, previous),
        "install": found.get("install") or {},
        "log": {key: log.get(key) for key in ("verdict", "cause", "findings", "measured", "lines")} if log else {},
        "probe": found.get("probe") or {},
        "bench": {"points": (found.get("bench") or {}).get("points") or []},
        "host_problems": list((found.get("gpus") or {}).get("problems") or []),
        "driver": {key: (found.get("gpus") or {}).get(key) for key in ("driver_version", "cuda_version", "container")},
    }
    failures, warnings = _judge(report, found)
    report["failures"], report["warnings"] = failures, warnings
    report["verdict"] = FAILED if failures else WARNINGS if warnings else PASSED
    report["changes"] = list(changes(previous, report)) if previous else []
    # What a task that writes the report calls "changed": a check that is not required may pass today and fail tomorrow.
    report["news"] = not previous or any(change["matters"] for change in report["changes"])
    report["first"] = not previous
    return report


def read_previous(text: str) -> dict[str, Any]:
    """An earlier document; {} for none, a damaged one or one of another schema: a report must not fail for its predecessor."""
    try:
        document = _writable(json.loads(text))
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            return {}
        # What is read of it later.
        substance(document), _side_facts(document), dict(document.get("kv_cache") or {})
        for row in document.get("forecast") or []:
            str(row["id"]), float(row["forecast"] or 0)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}
    return document


def _writable(part: Any) -> Any:
    """The same with nothing in it that JSON or UTF-8 cannot hold: a number that is none is null, half a character a question mark."""
    if isinstance(part, float):
        return part if math.isfinite(part) else None
    if isinstance(part, str):
        return part.encode("utf-8", "replace").decode()
    if isinstance(part, Mapping):
        return {_writable(key): _writable(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_writable(value) for value in part]
    return part


def substance(report: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two reports of the same deployment differ: facts and verdicts, not the date, seconds or speeds."""
    service, install, log = (report.get(part) or {} for part in ("service", "install", "log"))
    facts: dict[str, Any] = {"failed": report.get("verdict") == FAILED}
    for name in ("model", "commit", "checkpoint_state", "release", "url", "active"):
        facts[name] = service.get(name)
    for name, value in (service.get("options") or {}).items():
        facts[f"option {name}"] = value
    facts["KV cache dtype"] = (report.get("kv_cache") or {}).get("dtype")
    facts["KV cache tokens"] = (log.get("measured") or {}).get("kv_cache_tokens")
    facts["driver"] = (report.get("driver") or {}).get("driver_version")
    facts["install clean"] = install.get("clean")
    facts["log verdict"] = log.get("verdict")
    facts["log findings"] = sorted({f["id"] for f in log.get("findings") or [] if f["severity"] != "harmless"})
    facts["host problems"] = sorted({p["id"] for p in report.get("host_problems") or []})
    for check in (report.get("probe") or {}).get("checks") or []:
        if check["required"]:
            facts[f"check {check['id']}"] = check["verdict"]
    return facts


def _side_facts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Verdicts that are told but do not make another report."""
    checks = (report.get("probe") or {}).get("checks") or []
    return {f"check {check['id']}": check["verdict"] for check in checks if not check["required"]}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What differs: `{what, before, after, matters}`. A quick run looks at less: what it did not look at did not change."""
    for facts, matters in ((substance, True), (_side_facts, False)):
        old, new = facts(before), facts(after)
        for what in dict.fromkeys([*old, *new]):
            looked_both_times = old.get(what) is not None and new.get(what) is not None
            is_option = what.startswith("option ")
            if old.get(what) != new.get(what) and (looked_both_times or is_option):
                yield {"what": what, "before": old.get(what), "after": new.get(what), "matters": matters}


# --- parts ------------------------------------------------------------------------------------------------------------


def _service(
    service: Mapping[str, Any], plan: Mapping[str, Any], view: Mapping[str, Any], log: Mapping[str, Any]
) -> dict[str, Any]:
    measured = log.get("measured") or {}
    return {
        "unit": service.get("unit"),
        "active": service.get("active"),
        "url": service.get("url"),
        "model": plan.get("model") or service.get("model"),
        "served_as": service.get("model"),
        "path": service.get("model_path"),
        "commit": plan.get("revision") or service.get("revision") or "",
        "checkpoint_state": plan.get("checkpoint_state") or "",
        "release": service.get("release_id"),
        "vllm_version": measured.get("vllm_version") or "",
        "options": dict(service.get("options") or {}),
        "gpus": list(service.get("gpus") or []),
        "device": service.get("device"),
        "restarts": service.get("restarts", 0),
        "start_id": service.get("start_id") or "",
    }


def _kv_cache(
    plan: Mapping[str, Any], log: Mapping[str, Any], view: Mapping[str, Any], previous: Mapping[str, Any]
) -> dict[str, Any]:
    if not plan:
        kept = dict(previous.get("kv_cache") or {})
        return kept or {
            "dtype": (log.get("measured") or {}).get("kv_cache_dtype"),
            "policy": "",
            "reason": "",
            "edits": [],
        }
    decision = plan.get("kv_decision") or {}
    return {
        "dtype": plan.get("kv_cache_dtype"),
        "policy": decision.get("policy", ""),
        "reason": decision.get("reason", ""),
        "source": decision.get("source", ""),
        "edits": list(view.get("edits") or []),
    }


def _memory(gpus: Mapping[str, Any], service: Mapping[str, Any], log: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each GPU of the instance and what fills it, in bytes; workers are matched to GPUs in the order of their ranks."""
    mine = service.get("gpus") or []
    measured = log.get("measured") or {}
    bars = []
    for rank, gpu in enumerate(gpu for gpu in gpus.get("gpus") or [] if not mine or gpu["index"] in mine):
        used = int(gpu.get("used_bytes") or 0)
        parts: list[dict[str, Any]] = []
        left = used
        for name, key in (("weights", "weights_gib"), ("KV cache", "available_kv_gib"), ("CUDA graphs", "graph_gib")):
            amount = min(int(_of_worker(measured, key, rank) * GIB), left)
            if amount > 0:
                parts.append({"name": name, "bytes": amount})
                left -= amount
        parts.append({"name": "other", "bytes": left})
        parts.append({"name": "reserved", "bytes": int(gpu.get("reserved_bytes") or 0)})
        total = int(gpu.get("total_bytes") or 0)
        parts.append({"name": "free", "bytes": max(total - sum(part["bytes"] for part in parts), 0)})
        bars.append(
            {
                "index": gpu["index"],
                "name": gpu["name"],
                "total_bytes": total,
                "parts": [p for p in parts if p["bytes"] > 0],
            }
        )
    return bars


def _of_worker(measured: Mapping[str, Any], key: str, rank: int) -> float:
    by_worker = measured.get(f"{key}_by_worker") or []
    return float(by_worker[rank] if rank < len(by_worker) else measured.get(key) or 0.0)


def _forecast(
    plan: Mapping[str, Any], service: Mapping[str, Any], log: Mapping[str, Any], previous: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Rows `{name, unit, forecast, measured, error_percent}`; without a plan the forecast of the report before still holds."""
    measured = {**(log.get("measured") or {}), "start_seconds": _whole_seconds(service.get("start_seconds"))}
    budget = plan.get("budget") or {}
    weights = budget.get("weights_bytes_per_gpu") or []
    forecast: dict[str, Any] = {
        "weights": _gib(max(weights) if isinstance(weights, Sequence) and weights else weights or None),
        "available_kv": _gib(budget.get("available_kv_cache_bytes")),
        "tokens": budget.get("kv_cache_tokens"),
        "concurrency": budget.get("max_concurrency"),
        "start": plan.get("load_seconds_expected"),
    }
    if not plan:
        forecast = {row["id"]: row["forecast"] for row in previous.get("forecast") or []}
    each = "" if measured.get("kv_cache_device") == "CPU" else " a GPU"
    rows = []
    for row_id, name, unit, key in (
        ("weights", f"Weights{each}", "GiB", "weights_gib"),
        ("available_kv", f"Memory for the KV cache{each}", "GiB", "available_kv_gib"),
        ("tokens", "KV cache", "tokens", "kv_cache_tokens"),
        ("concurrency", "Requests of full length at once", "", "max_concurrency"),
        ("start", "Start until healthy", "s", "start_seconds"),
    ):
        said, came = forecast.get(row_id), measured.get(key)
        if said is None and came is None:
            continue
        # How long a start takes depends on the disk and on what is cached: the forecast gives its order, and an error would mislead.
        error = None
        if said is not None and came and row_id != "start":
            error = round((float(said) - float(came)) / float(came) * 100, 1)
        rows.append(
            {"id": row_id, "name": name, "unit": unit, "forecast": said, "measured": came, "error_percent": error}
        )
    return rows


def _whole_seconds(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else round(seconds)


def _gib(amount: Optional[float]) -> Optional[float]:
    return None if amount is None else round(float(amount) / GIB, 2)


# --- verdict ----------------------------------------------------------------------------------------------------------


def _judge(report: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    failures: list[str] = []
    warnings: list[str] = []
    required = found.get("required_checks") or []
    for name, sentence in _own_findings(report):
        (failures if name in required else warnings).append(sentence)
    probe = report["probe"]
    failures += probe.get("failures") or []
    warnings += probe.get("warnings_found") or probe.get("warnings") or []
    expected, speed = found.get("expected_tokens_per_second") or 0, probe.get("tokens_per_second")
    if expected and speed is not None and speed < expected:
        warnings.append(
            f"A single request gets {speed:.1f} tokens a second; this host is expected to give {expected:g}."
        )
    bench = found.get("bench") or {}
    if bench and not bench.get("points"):
        warnings.append(f"vllm bench serve gave no figures: {bench.get('msg', '')}")
    warnings += [
        f"Host: {problem['found']} {problem.get('remedy', '')}".strip()
        for problem in report["host_problems"]
        if problem.get("severity") in ("error", "warning")
    ]
    return failures, warnings


def _own_findings(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    service, install, log = report["service"], report["install"], report["log"]
    if service["active"] is False:
        yield "service", f"{service['unit']} is not running."
    if service["restarts"]:
        yield "restarts", f"systemd restarted {service['unit']} {service['restarts']} times by itself."
    if install and not install.get("clean"):
        yield (
            "install",
            "The installed release is not what its wheels said: " + "; ".join(_install_faults(install)) + ".",
        )
    if log.get("verdict") == "failed":
        cause = log.get("cause") or {}
        yield (
            "log",
            f"The log says: {cause.get('meaning', 'the server failed, and the cause is not in the log')} {cause.get('remedy', '')}".strip(),
        )
    elif log.get("verdict") == "degraded":
        names = sorted({f["id"] for f in log["findings"] if f["severity"] != "harmless"})
        yield "log_degraded", f"The log holds what should be looked at: {', '.join(names)}."


def _install_faults(install: Mapping[str, Any]) -> Iterator[str]:
    for key, word in (("modified_files", "modified"), ("missing_files", "missing"), ("foreign_files", "foreign")):
        files = install.get(key) or []
        if files:
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            yield f"{word} {', '.join(files[:3])}{more}"
    yield from install.get("editable") or []
    yield from install.get("mixed") or []
    for fit in install.get("gpu_fit") or []:
        if not fit["supported"]:
            yield f"compute capability {fit['compute_capability']}: {fit['how']}"


def as_json(report: Mapping[str, Any]) -> str:
    """The JSON file."""
    text = json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
    return f"{text}\n"
