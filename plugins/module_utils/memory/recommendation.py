# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to ask of vLLM, given a budget: a length, a number of sequences, and remedies when it does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ..errors import VllmHostError
from .budget import GIB, Budget, BudgetRequest, compute_budget
from .kv_policy import decide as decide_kv_dtype

#: Recommended lengths are multiples of this, below it powers of two.
ROUND_TOKENS = 8192
#: Room for batching: one request of the recommended length takes at most three quarters of the cache.
LEAST_CONCURRENCY = 4 / 3
#: A conversation as it usually is; so many of them at once are worth a slot each.
TYPICAL_REQUEST_TOKENS = 4096
FEWEST_SEQUENCES = 8
#: More would leave nothing for what vLLM allocates after its own budget (0.7 to 3.7 GiB on an H200).
HIGHEST_UTILIZATION = 0.97
MOST_GPUS = 64

#: Options that leave the bytes for the cache as they are.
_MEMORY_NEUTRAL = {"kv_cache_dtype", "decode_context_parallel_size", "max_model_len"}

LENGTH_RULE = "the longest round length of which one request leaves a quarter of the cache free for others"


@dataclass(frozen=True)
class SequencesAdvice:
    """How many sequences at a time.

    Attributes:
        current: what vLLM would take.
        recommended: what the cache can use.
        gained_bytes: what the recommendation gives back to the KV cache of a GPU, as forecast.
    """

    current: int
    recommended: int
    gained_bytes: int


@dataclass(frozen=True)
class Remedy:
    """One way to make it fit.

    Attributes:
        action: ``context``, ``max_num_seqs``, ``kv_cache_dtype``, ``decode_context_parallel``, ``utilization``, ``more_gpus``.
        engine_args: what to set.
        max_model_len_fit: the largest length then.
        enough: the length that was asked for fits then.
        text: in words, with the number.
    """

    action: str
    engine_args: Mapping[str, Any]
    max_model_len_fit: int
    enough: bool
    text: str


def recommended_length(budget: Budget) -> int:
    """The largest round length that leaves room for batching (``LENGTH_RULE``) and fits even at the low end of a forecast.

    Returns:
        0 if there is none.
    """
    low_end = (max(0, budget.available.low),) * len(budget.available.per_rank)
    surely = budget.plan.max_model_len_fit(low_end, budget.max_model_len_fit)
    candidates = _round_lengths(surely)
    low, high = 0, len(candidates)
    # Concurrency falls with the length: bisect for the longest that leaves room.
    while low < high:
        middle = (low + high + 1) // 2
        if budget.capacity_at(candidates[middle - 1]).max_concurrency >= LEAST_CONCURRENCY:
            low = middle
        else:
            high = middle - 1
    return candidates[low - 1] if low else 0


def advise_sequences(budget: Budget) -> SequencesAdvice:
    """A power of two of sequences that the cache can hold at a usual length, never more than vLLM's own number."""
    current = budget.plan.engine.max_num_seqs
    engine = budget.plan.engine
    useful = budget.capacity.kv_cache_tokens // min(TYPICAL_REQUEST_TOKENS, engine.max_model_len)
    recommended = FEWEST_SEQUENCES
    while recommended < useful:
        recommended *= 2
    recommended = min(recommended, current)
    gained = 0
    if recommended < current and budget.overhead is not None:
        fewer = compute_budget(budget.request.with_engine_args(max_num_seqs=recommended)).overhead
        gained = budget.overhead.expected - fewer.expected if fewer else 0
    return SequencesAdvice(current, recommended, gained)


def remedies(budget: Budget, attention: str, model_dtype: str, any_length: bool = False) -> list[Remedy]:
    """Ways to make the requested length fit, cheapest first.

    Args:
        budget: one that does not fit.
        attention: ``mla``, ``dsa`` or ``other``.
        model_dtype: the model's own.
        any_length: the length will be chosen by what fits: a usual request is enough.
    """
    target = budget.plan.engine.max_model_len
    if any_length:
        target = min(target, TYPICAL_REQUEST_TOKENS)
    found = list(_shorter_context(budget))
    found += _fewer_sequences(budget, target)
    found += _smaller_cache(budget, target, attention, model_dtype)
    found += _context_parallel(budget, target)
    found += _utilization(budget, target)
    found += _more_gpus(budget, target)
    return [way for way in found if way.max_model_len_fit > 0]


def _round_lengths(limit: int) -> list[int]:
    small = [1 << power for power in range(4, 13) if 1 << power <= limit]
    return small + list(range(ROUND_TOKENS, limit + 1, ROUND_TOKENS))


def _shorter_context(budget: Budget) -> Iterator[Remedy]:
    length = recommended_length(budget)
    if length:
        yield Remedy(
            "context",
            {"max_model_len": length},
            budget.max_model_len_fit,
            False,
            f"max_model_len {length:,} (at most {budget.max_model_len_fit:,} fit)",
        )


def _fewer_sequences(budget: Budget, target: int) -> Iterator[Remedy]:
    advice = advise_sequences(budget)
    if advice.gained_bytes > 0:
        changed = _changed(budget, max_num_seqs=advice.recommended)
        if changed:
            text = f"max_num_seqs {advice.recommended} gives back {advice.gained_bytes / GIB:.1f} GiB a GPU"
            yield _remedy(target, "max_num_seqs", {"max_num_seqs": advice.recommended}, changed, text)


def _smaller_cache(budget: Budget, target: int, attention: str, model_dtype: str) -> Iterator[Remedy]:
    """An FP8 cache, where it is not known to fail."""
    request = budget.request
    capability = request.gpu.compute_capability
    if budget.plan.engine.kv_cache_dtype not in ("auto", "bfloat16", "float16"):
        return
    try:
        decide_kv_dtype(
            "auto",
            attention=attention,
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            device=request.gpu.device,
            vllm_version=request.vllm_version,
            checkpoint_kv_dtype=None,
            engine_args={**request.engine_args, "kv_cache_dtype": "fp8"},
            model_dtype=model_dtype,
        )
    except VllmHostError:
        return
    changed = _changed(budget, kv_cache_dtype="fp8")
    if changed:
        yield _remedy(
            target, "kv_cache_dtype", {"kv_cache_dtype": "fp8"}, changed, "kv_cache_dtype fp8 halves the cache"
        )


def _context_parallel(budget: Budget, target: int) -> Iterator[Remedy]:
    """The smallest decode context parallel size that is enough, else the largest that is allowed."""
    engine = budget.plan.engine
    best: Optional[Remedy] = None
    for size in range(engine.decode_context_parallel_size + 1, engine.tensor_parallel_size + 1):
        if engine.tensor_parallel_size % size:
            continue
        changed = _changed(budget, decode_context_parallel_size=size)
        if changed is None:
            continue
        best = _remedy(
            target,
            "decode_context_parallel",
            {"decode_context_parallel_size": size},
            changed,
            f"decode_context_parallel_size {size} spreads each request's cache over {size} GPUs",
        )
        if best.enough:
            break
    if best:
        yield best


def _utilization(budget: Budget, target: int) -> Iterator[Remedy]:
    engine, total = budget.plan.engine, budget.cuda_total_bytes
    if total is None or engine.gpu_memory_utilization >= HIGHEST_UTILIZATION:
        return
    missing = max(
        need + block - size
        for need, block, size in zip(
            budget.plan.needed_bytes(target), budget.plan.bytes_per_block, budget.available.per_rank
        )
    )
    wanted = engine.gpu_memory_utilization + missing / total
    value = min(HIGHEST_UTILIZATION, -(-wanted * 1000 // 1) / 1000)
    if value <= engine.gpu_memory_utilization:
        return
    changed = _changed(budget, gpu_memory_utilization=value)
    if changed:
        yield _remedy(
            target,
            "utilization",
            {"gpu_memory_utilization": value},
            changed,
            f"gpu_memory_utilization {value:g} instead of {engine.gpu_memory_utilization:g}",
        )


def _more_gpus(budget: Budget, target: int) -> Iterator[Remedy]:
    """Twice the GPUs, and twice again until it is enough."""
    engine = budget.plan.engine
    tensor, others = engine.tensor_parallel_size, engine.pipeline_parallel_size * engine.data_parallel_size
    best: Optional[Remedy] = None
    while 2 * tensor * others <= MOST_GPUS:
        changes = {"tensor_parallel_size": 2 * tensor}
        changed = _changed(budget, **changes)
        if changed is None:
            break
        tensor *= 2
        best = _remedy(target, "more_gpus", changes, changed, f"{tensor * others} GPUs (tensor_parallel_size {tensor})")
        if best.enough:
            break
    if best:
        yield best


def _remedy(target: int, action: str, changes: Mapping[str, Any], changed: Budget, text: str) -> Remedy:
    fit = changed.max_model_len_fit
    return Remedy(action, changes, fit, fit >= target, f"{text}: {fit:,} tokens fit")


def _changed(budget: Budget, **changes: Any) -> Optional[Budget]:
    """The budget with other options; None where vLLM would not take them.

    A measured or given amount of memory is shifted by the difference between the two forecasts; where no forecast can be made, only
    changes that leave it as it is are worked out.
    """
    before, after = budget.request, budget.request.with_engine_args(**changes)
    try:
        if budget.available.source == "forecast" or budget.overhead is None:
            return compute_budget(after)
        if budget.cuda_total_bytes and budget.weights:
            shift = _forecast(after) - _forecast(before)
        elif set(changes) <= _MEMORY_NEUTRAL:
            shift = 0
        else:
            return None
        return compute_budget(replace(after, available_kv_cache_bytes=_shifted(budget.available.per_rank, shift)))
    except VllmHostError:
        return None


def _forecast(request: BudgetRequest) -> int:
    return compute_budget(replace(request, available_kv_cache_bytes=(), measurement=None)).available.smallest


def _shifted(per_rank: Sequence[int], shift: int) -> tuple[int, ...]:
    return tuple(max(0, size + shift) for size in per_rank)
