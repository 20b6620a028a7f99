# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan in lines of text: 72 columns, which leaves room for Ansible's own indent on a terminal of 80; no colour, only ASCII."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from .recommendation import LENGTH_RULE

GIB = 2**30
WIDTH = 72
LABEL = 17
BAR = 60


def render_plan(plan: Mapping[str, Any], width: int = WIDTH) -> list[str]:
    """The decision as a table, the memory of one GPU as a bar, and the reasons.

    Args:
        plan: the fact ``vllm_plan``.
        width: columns.
    """
    lines = _table(plan, width)
    drawn = memory_bar(plan["budget"])
    if drawn:
        lines += ["", *drawn]
    lines += ["", *_concurrency(plan["budget"], width)]
    notes = [*plan.get("warnings", ()), *_length(plan), *_told(plan["budget"])]
    for note in notes:
        lines += textwrap.wrap(note, width, initial_indent="- ", subsequent_indent="  ")
    return lines


def memory_bar(budget: Mapping[str, Any], columns: int = BAR) -> list[str]:
    """The memory of one GPU as a bar of weights (W), overhead (o) and KV cache (K); empty on a CPU or without a total.

    What the utilization leaves out is a dot.
    """
    total = budget.get("cuda_total_bytes")
    weights = max(budget.get("weights_bytes_per_gpu") or [0])
    if not total or not weights:
        return []
    cache = max(0, budget["available_kv_cache_bytes"])
    overhead = budget["overhead_bytes_per_gpu"]["expected"]
    if budget["source"] != "forecast":  # what is not weights or cache is the overhead that really was
        overhead = max(0, int(budget["gpu_memory_utilization"] * total) - weights - cache)
    parts = [("W", "weights", weights), ("o", "overhead", overhead), ("K", "KV cache", cache)]
    parts.append((".", "left alone", max(0, total - weights - overhead - cache)))
    cells = _cells([size for _mark, _name, size in parts], total, columns)
    cells_drawn = "".join(mark * count for (mark, _name, _size), count in zip(parts, cells))
    legend = "  ".join(f"{mark} {name} {size / GIB:.1f}" for mark, name, size in parts)
    return [f"One GPU, {total / GIB:.1f} GiB for CUDA:", f"[{cells_drawn}]", legend]


def _cells(sizes: list[int], total: int, columns: int) -> list[int]:
    """Columns of each part: never more than there are, at least one for what is there."""
    bounds, position = [], 0
    for size in sizes:
        position += size
        bounds.append(min(columns, round(position * columns / total)))
    counts = [end - begin for begin, end in zip([0, *bounds], bounds)]
    widest = max(range(len(counts)), key=counts.__getitem__)
    for index, size in enumerate(sizes):
        if size > 0 and counts[index] == 0 and counts[widest] > 1:
            counts[index] += 1
            counts[widest] -= 1
    return counts


def _table(plan: Mapping[str, Any], width: int) -> list[str]:
    budget, args, on_gpus = plan["budget"], plan["engine_args"], plan["gpus"]["count"] > 0
    commit = plan["revision"][:12]
    rows = [
        ("model", plan["model"] + (f" at {commit}" if commit else "")),
        ("GPUs" if on_gpus else "device", _gpus(plan)),
        ("vLLM", plan["vllm_version"]),
        (
            "KV cache",
            f"{plan['kv_cache_dtype']}, checkpoint {plan['checkpoint_state']} (policy {plan['kv_decision']['policy']})",
        ),
        ("because", plan["kv_decision"]["reason"]),
        ("source", plan["kv_decision"]["source"]),
        ("max_model_len", f"{plan['max_model_len']:,} ({budget['max_model_len_fit']:,} fit)"),
        ("max_num_seqs", f"{plan['max_num_seqs']:,}"),
        ("KV memory", _cache(plan)),
        (
            "KV tokens",
            f"{budget['kv_cache_tokens']:,} ({budget['kv_bytes_per_token']:,} B a token{' and GPU' if on_gpus else ''})",
        ),
        ("disk", _disk(plan)),
        ("start", f"about {_duration(plan['load_seconds_expected'])}"),
    ]
    if "tensor_parallel_size" in args:
        rows.insert(2, ("tensor parallel", str(args["tensor_parallel_size"])))
    lines = []
    for label, text in rows:
        block = textwrap.wrap(text, width - LABEL) or [""]
        lines += [f"{label if index == 0 else '':<{LABEL}}{part}" for index, part in enumerate(block)]
    return lines


def _gpus(plan: Mapping[str, Any]) -> str:
    gpus = plan["gpus"]
    if not gpus["count"]:
        return "CPU"
    unused = gpus["count"] - gpus["used"]
    name = gpus["name"].removeprefix("NVIDIA ") or "unknown"
    text = f"{gpus['count']} x {name}, {gpus['total_bytes'] / GIB:.1f} GiB"
    return text + (f" ({unused} unused)" if unused > 0 else "")


def _cache(plan: Mapping[str, Any]) -> str:
    budget, each = plan["budget"], " a GPU" if plan["gpus"]["count"] else ""
    size = f"{budget['available_kv_cache_bytes'] / GIB:.2f} GiB{each}, {budget['source']}"
    ends = budget["available_kv_cache_bytes_range"]
    if ends["low"] == ends["high"]:
        return size
    return f"{size} ({ends['low'] / GIB:.1f} to {ends['high'] / GIB:.1f})"


def _disk(plan: Mapping[str, Any]) -> str:
    text = f"{_size(plan['bytes_total'])}, {_size(plan['bytes_to_download'])} to download"
    free = plan.get("disk_free_bytes")
    return text if free is None else f"{text}, {_size(free)} free"


def _size(size: int) -> str:
    """Disks and downloads are sold in powers of ten."""
    return f"{size / 10**9:,.1f} GB" if size >= 10**9 else f"{size / 10**6:,.1f} MB"


def _duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def _concurrency(budget: Mapping[str, Any], width: int) -> list[str]:
    """Requests at a time at several lengths, in whole requests."""
    cells = [(f"{row['max_model_len']:,}", f"{int(row['max_concurrency']):,}") for row in budget["concurrency"]]
    column = max([7, *(len(text) for cell in cells for text in cell)]) + 2
    cells = cells[-((width - 16) // column) :]
    rows = zip(("tokens a request", "requests at once"), zip(*cells) if cells else ((), ()))
    return [f"{label:<16}" + "".join(f"{text:>{column}}" for text in texts) for label, texts in rows]


def _length(plan: Mapping[str, Any]) -> list[str]:
    """Where the length comes from."""
    length, best = plan["max_model_len"], plan["budget"]["max_model_len"]
    source = plan.get("max_model_len_source", "asked")
    if source == "recommended":
        own = length == plan["budget"]["model"]["max_model_len"]
        return [f"max_model_len {length:,} is {'all that the model knows' if own else LENGTH_RULE}."]
    why = "was served before and is kept" if source == "served" else "was asked for"
    better = f"; the plan would take {best:,} by itself" if best and best != length else ""
    return [f"max_model_len {length:,} {why}{better}."]


def _told(budget: Mapping[str, Any]) -> list[str]:
    """Those of the budget's reasons that the table does not show."""
    shown = ("Outside weights", "max_num_seqs", "Remedy:", "Note:")
    return [reason for reason in budget["reasons"] if reason.startswith(shown)]
