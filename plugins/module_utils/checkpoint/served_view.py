# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a snapshot and a state to the view that is served: the one call behind the module quant_config_strip."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..errors import VllmHostError
from .kv_declarations import FILES, StripPlan, plan_strip
from .snapshot_files import read_snapshot
from .views import ViewRequest, ViewResult, ensure_view, require_view_name

STATES = ("stripped", "original")
_NOT_THERE_YET = ("snapshot_missing", "snapshot_incomplete")
_NOTHING = StripPlan((), (), ())


@dataclass(frozen=True)
class ServedView:
    """What a name serves now, or would serve.

    Attributes:
        path: the view; see ``views.ViewResult``.
        edits: see ``kv_declarations.StripPlan``.
        diff: Ansible's ``before`` and ``after``, a file each.
    """

    path: Path
    changed: bool
    message: str
    commit: Optional[str] = None
    edits: tuple[dict[str, Any], ...] = ()
    unknown: tuple[dict[str, Any], ...] = ()
    previous: Optional[Path] = None
    pruned: tuple[Path, ...] = ()
    diff: list[dict[str, str]] = field(default_factory=list)
    warnings: tuple[str, ...] = ()

    def as_result(self) -> dict[str, Any]:
        """Arguments for ``AnsibleModule.exit_json``."""
        result = {
            "path": str(self.path),
            "changed": self.changed,
            "msg": self.message,
            "edits": list(self.edits),
            "unknown": list(self.unknown),
            "pruned": [str(path) for path in self.pruned],
            "diff": self.diff,
        }
        if self.commit:
            result["commit"] = self.commit
        if self.previous:
            result["previous"] = str(self.previous)
        return result


def serve_view(snapshot: Path, views: Path, name: str, state: str, *, check: bool = False) -> ServedView:
    """Let ``<views>/<name>`` serve a snapshot in the given state.

    Args:
        check: change nothing, and put up with a snapshot that is not there yet.

    Raises:
        VllmHostError: see ``snapshot_files.read_snapshot``, ``kv_declarations.plan_strip``, ``views.ensure_view``;
            ``snapshot_unreadable``.
    """
    require_view_name(name)
    try:
        found = read_snapshot(snapshot)
        plan = plan_strip(found.folder) if state == "stripped" else _NOTHING
    except VllmHostError as error:
        if check and error.code in _NOT_THERE_YET:
            return ServedView(
                views / name, True, f"would serve {snapshot} {state} as {name} once it has been fetched completely"
            )
        raise
    except OSError as error:
        raise VllmHostError(
            "snapshot_unreadable",
            f"{error.filename or snapshot} cannot be read ({error.strerror}). Check its owner and mode.",
            path=str(error.filename or snapshot),
        ) from error
    link = views / name
    before = {file: _text(link / file) for file in FILES} if link.is_dir() else {}
    result = ensure_view(ViewRequest(found, views, name, state, plan), check=check)
    return ServedView(
        path=result.path,
        changed=result.changed,
        message=_message(name, found.commit or str(snapshot), state, plan, would=check and result.changed),
        commit=found.commit,
        edits=plan.edits,
        unknown=plan.unknown,
        previous=result.previous if result.changed else None,
        pruned=result.pruned,
        diff=_diff(found.folder, before, plan, result) if result.changed else [],
        warnings=_warnings(snapshot, plan, result),
    )


def _message(name: str, what: str, state: str, plan: StripPlan, *, would: bool) -> str:
    verb = "would serve" if would else "serves"
    if state == "original":
        return f"{name} {verb} {what[:200]} as it was published"
    if not plan.edits:
        return f"{name} {verb} {what[:200]} stripped: there was nothing to strip, no quantized KV cache is declared"
    count = len(plan.edits)
    return f"{name} {verb} {what[:200]} stripped: {count} declaration{'s' if count > 1 else ''} of a quantized KV cache taken back"


def _diff(folder: Path, before: dict[str, str], plan: StripPlan, result: ViewResult) -> list[dict[str, str]]:
    patched = {file.name: file.after for file in plan.files}
    differences = []
    for file in FILES:
        old = before.get(file) if before else _text(folder / file)
        new = patched.get(file) or _text(folder / file)
        if old != new:
            old_place = (result.previous if before and result.previous else folder) / file
            differences.append(
                {
                    "before_header": str(old_place),
                    "after_header": str(result.path / file),
                    "before": old or "",
                    "after": new,
                }
            )
    return differences


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _warnings(snapshot: Path, plan: StripPlan, result: ViewResult) -> tuple[str, ...]:
    unknown = tuple(
        f"{snapshot / item['file']}: {item['key']} = {json.dumps(item['value'])[:120]} looks like the declaration of a KV cache"
        " and its meaning is not known; check what vLLM prints as the cache's type"
        for item in plan.unknown
    )
    if not result.damaged:
        return unknown
    return (
        *unknown,
        f"an earlier view was changed by somebody ({', '.join(result.damaged[:3])}); a new one took its place:"
        f" {result.path}. Views are not edited: use vllm_engine_args, or a checkpoint of your own.",
    )
