# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A budget as a plain dictionary: what modules return and reports show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .budget import GIB, Budget
from .recommendation import LENGTH_RULE, Remedy, SequencesAdvice, advise_sequences, recommended_length, remedies

#: Lengths at which a reader wants to know the concurrency, besides the recommended one and the fit.
USUAL_LENGTHS = (4096, 16384, 32768, 65536, 131072, 262144)


def attention_kind(budget: Budget) -> str:
    """``dsa`` (sparse MLA with an indexer), ``mla`` or ``other``, as the KV-dtype policy asks for it."""
    if not budget.plan.model.is_mla:
        return "other"
    return "dsa" if budget.plan.model.text.get("index_topk") else "mla"


def budget_result(budget: Budget) -> dict[str, Any]:
    """Everything about a budget, JSON-serialisable; sizes in bytes of one GPU."""
    plan, engine, capacity = budget.plan, budget.plan.engine, budget.capacity
    length = recommended_length(budget)
    sequences = advise_sequences(budget)
    ways = [] if budget.fits else remedies(budget, attention_kind(budget), plan.model.dtype)
    return {
        "model": {
            "architecture": plan.model.architecture,
            "attention": attention_kind(budget),
            "dtype": plan.model.dtype,
            "max_model_len": engine.max_model_len_config,
        },
        "vllm_version": engine.vllm_version,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "block_size": engine.block_size,
        "kv_bytes_per_token": _number(max(plan.kv_bytes_per_token, default=0.0)),
        "fixed_bytes_per_request": _number(max(plan.fixed_bytes_per_request, default=0.0)),
        "groups": [asdict(group) for group in plan.groups],
        "bytes_per_block": list(plan.bytes_per_block),
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "cuda_total_bytes": budget.cuda_total_bytes,
        "weights_bytes_per_gpu": list(budget.weights.per_rank) if budget.weights else [],
        "weights": _weights(budget),
        "overhead_bytes_per_gpu": _overhead(budget),
        "available_kv_cache_bytes": budget.available.smallest,
        "available_kv_cache_bytes_range": {"low": budget.available.low, "high": budget.available.high},
        "source": budget.available.source,
        "num_gpu_blocks": capacity.num_gpu_blocks,
        "kv_cache_tokens": capacity.kv_cache_tokens,
        "max_model_len_requested": engine.max_model_len,
        "max_model_len_fit": budget.max_model_len_fit,
        "max_model_len": length,
        "max_concurrency": round(capacity.max_concurrency, 6),
        "concurrency": _concurrency(budget, length),
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_num_seqs": asdict(sequences),
        "fits": budget.fits,
        "remedies": [asdict(way) for way in ways],
        "reasons": reasons(budget, length, sequences, ways),
    }


def reasons(budget: Budget, length: int, sequences: SequencesAdvice, ways: list[Remedy]) -> list[str]:
    """The budget in sentences, in the order of the sum."""
    plan, engine = budget.plan, budget.plan.engine
    lines = []
    if budget.weights:
        lines.append(
            f"Weights take {_gib(max(budget.weights.per_rank))} of a GPU ({_WEIGHT_SOURCES[budget.weights.source]})."
        )
    if budget.overhead:
        low, expected, high = budget.overhead.low, budget.overhead.expected, budget.overhead.high
        spread = f"{_gib(expected)}" if low == high else f"{_gib(low)} to {_gib(high)}, expected {_gib(expected)}"
        lines.append(f"Outside weights and cache: {spread}.")
    left = budget.available.smallest
    room = f"{_gib(left)} are left" if left >= 0 else f"{_gib(-left)} are missing"
    lines.append(f"{room} for the KV cache ({budget.available.source}: {budget.available.basis}).")
    if plan.kv_bytes_per_token:
        lines.append(_per_token(budget))
    own, asked = engine.max_model_len_config, engine.max_model_len
    if budget.capacity.fits:
        lines.append(f"{asked:,} tokens fit, {budget.capacity.max_concurrency:.2f} requests of that length at a time.")
    else:
        need = _gib(budget.capacity.needed_bytes)
        whose = "The model's own" if asked == own else "The requested"
        lines.append(
            f"{whose} {asked:,} tokens need {need} and do not fit; at most {budget.max_model_len_fit:,} tokens do."
        )
    if length:
        at = int(budget.capacity_at(length).max_concurrency)
        why = "all that the model knows" if length == own else LENGTH_RULE
        lines.append(f"Recommended: {length:,} tokens, {why}; {at:,} such request{'s' if at > 1 else ''} at a time.")
    if sequences.gained_bytes > 0:
        lines.append(
            f"max_num_seqs {sequences.recommended} instead of {sequences.current} would give back {_gib(sequences.gained_bytes)} of a GPU."
        )
    lines += [f"Remedy: {way.text}{'' if way.enough else ' (not enough alone)'}." for way in ways]
    notes = (*plan.notes, *(budget.weights.notes if budget.weights else ()), *budget.request.checkpoint.notes)
    lines += [f"Note: {note}" for note in notes]
    return lines


_WEIGHT_SOURCES = {
    "headers": "sum over the headers of its files",
    "config": "a list of tensors made from config.json",
    "size": "from the checkpoint's size alone, so a range",
    "given": "given",
}


def _per_token(budget: Budget) -> str:
    plan, engine = budget.plan, budget.plan.engine
    size = _number(max(plan.kv_bytes_per_token))
    where = "of a GPU"
    if plan.model.is_mla and engine.tensor_parallel_size > 1:
        where = "of every GPU (MLA is not divided by tensor parallelism)"
    return f"One token takes {size:,} bytes {where} in {engine.kv_cache_dtype}, in blocks of {engine.block_size}."


def _weights(budget: Budget) -> dict[str, Any]:
    if budget.weights is None:
        return {}
    weights = budget.weights
    return {"low": weights.low, "high": weights.high, "parts": dict(weights.parts), "source": weights.source}


def _overhead(budget: Budget) -> dict[str, Any]:
    overhead = budget.overhead
    if overhead is None:
        return {"low": 0, "expected": 0, "high": 0, "parts": []}
    parts = [asdict(part) for part in overhead.parts]
    return {"low": overhead.low, "expected": overhead.expected, "high": overhead.high, "parts": parts}


def _concurrency(budget: Budget, recommended: int) -> list[dict[str, Any]]:
    """Concurrency at usual lengths and at the recommended one, as far as they fit."""
    limit = budget.max_model_len_fit
    lengths = sorted({size for size in (*USUAL_LENGTHS, recommended, limit) if 0 < size <= limit})
    rows = [budget.capacity_at(size) for size in lengths]
    return [
        {
            "max_model_len": row.max_model_len,
            "max_concurrency": round(row.max_concurrency, 6),
            "kv_cache_tokens": row.kv_cache_tokens,
        }
        for row in rows
    ]


def _number(value: float) -> Any:
    """An int where it is one."""
    return int(value) if float(value).is_integer() else round(value, 3)


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
