# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one HTML page: a template with everything escaped, and one small plot drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import jinja2

_WIDTH, _HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 14, 40


def render_page(report: Mapping[str, Any], template: str) -> str:
    """Fill the template (text of `roles/verify/templates/report.html.j2`) with a document of `report.build_report`."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.ChainableUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(gib=gib, number=number, value=value)
    points = [point for point in (report.get("probe") or {}).get("speed") or [] if not point.get("error")]
    return environment.from_string(template).render(
        report=report, plot=jinja2.utils.markupsafe.Markup(speed_plot(points))
    )


def gib(amount: float) -> str:
    """Bytes as GiB, `91.3 GiB`."""
    return f"{amount / (1 << 30):,.1f} GiB"


def number(amount: Optional[float], digits: int = 1) -> str:
    """`178,768`, `11.7`; a dash for nothing."""
    if amount is None or isinstance(amount, jinja2.Undefined):
        return "–"
    if isinstance(amount, float) and not amount.is_integer():
        return f"{amount:,.{digits}f}"
    return f"{int(amount):,}"


def value(something: Any) -> str:
    """An option or a fact as people write it."""
    if something is None or something == "" or isinstance(something, jinja2.Undefined):
        return "–"
    if isinstance(something, bool):
        return "yes" if something else "no"
    if isinstance(something, (list, tuple)):
        return ", ".join(value(entry) for entry in something) or "none"
    if isinstance(something, dict):
        return ", ".join(f"{key}: {value(entry)}" for key, entry in something.items()) or "none"
    return str(something)


def speed_plot(points: Sequence[Mapping[str, Any]]) -> str:
    """Total and single-request tokens per second over the number of simultaneous requests, as inline SVG; '' for less than two points.

    Positions are by rank, so that 1, 4, 8, 64 are evenly spread; colours and fonts come from the page's style sheet.
    """
    if len(points) < 2:
        return ""
    top = _nice(max(float(point["total_tokens_per_second"]) for point in points))
    columns = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * (i + 0.5) / len(points) for i in range(len(points))]

    def height(speed: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * speed / top

    parts = [
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Tokens per second over simultaneous requests">'
    ]
    for step in range(5):
        speed = top * step / 4
        y = height(speed)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(round(speed, 1))}</text>'
        )
    column = min(56.0, (_WIDTH - _LEFT - _RIGHT) / len(points) * 0.5)
    for x, point in zip(columns, points):
        total = float(point["total_tokens_per_second"])
        y = height(total)
        parts.append(
            f'<rect class="column" x="{x - column / 2:.1f}" y="{y:.1f}" width="{column:.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}" rx="3"/>'
        )
        parts.append(
            f'<text class="label" x="{x:.1f}" y="{max(y - 6, 11):.1f}" text-anchor="middle">{number(round(total, 1))}</text>'
        )
        parts.append(
            f'<text class="axis" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{point["concurrency"]}</text>'
        )
    path = " ".join(f"{x:.1f},{height(float(point['tokens_per_second'])):.1f}" for x, point in zip(columns, points))
    parts.append(f'<polyline class="line" points="{path}"/>')
    for x, point in zip(columns, points):
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{height(float(point["tokens_per_second"])):.1f}" r="4"/>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="axis" x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">simultaneous requests</text></svg>'
    )
    return "".join(parts)


def _nice(highest: float) -> float:
    """The next round number at or above, with a little air for the label."""
    wanted = max(highest * 1.12, 1.0)
    scale = 1.0
    while scale * 10 <= wanted:
        scale *= 10
    return next(scale * factor for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10) if scale * factor >= wanted)
