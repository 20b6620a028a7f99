# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a running server questions whose answers are known, and read what it says: the content, not the status.

Every check ends in a verdict with a reason in words. `probe()` never raises for what the server does; a server that is gone is a failed check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .openai_client import ApiError, Client
from .probe_checks import FAILED, PASSED, SKIPPED, Context, Outcome, check_functions
from .probe_data import ALL_CHECKS, BASIC
from .probe_speed import SpeedPoint, measure_speed


@dataclass(frozen=True)
class ProbeSettings:
    """What is asked.

    Args:
        model: name at the API; empty takes the first that the server lists.
        checks: names of the checks, in this order. required: those whose failure is a failure of the whole.
        reasoning, tools: whether the server was started with a reasoning parser, with automatic tool calls.
        concurrency: simultaneous requests of the check `concurrency`.
        long_context_share: share of max_model_len that the needle's text fills. long_context_tokens: at most so many tokens; 0 means
            no limit.
        speed_levels: numbers of simultaneous requests whose speed is measured; empty measures nothing.
        speed_tokens: tokens of each answer then.
        deadline: seconds for everything; what does not begin in time has failed.
    """

    model: str = ""
    checks: Sequence[str] = ALL_CHECKS
    required: Sequence[str] = BASIC
    reasoning: bool = False
    tools: bool = False
    concurrency: int = 4
    long_context_share: float = 0.9
    long_context_tokens: int = 0
    speed_levels: Sequence[int] = (1, 4, 8)
    speed_tokens: int = 64
    deadline: float = 900.0


@dataclass(frozen=True)
class CheckResult:
    """One check.

    Args:
        verdict: passed, failed, skipped. reason: why, in words. required: whether it counts.
        prompt, answer: of the last exchange. exchanges: all of them, `{prompt, answer, reasoning}`.
    """

    id: str
    title: str
    verdict: str
    reason: str
    required: bool
    prompt: str
    answer: str
    exchanges: tuple[dict[str, str], ...]
    seconds: float


@dataclass(frozen=True)
class ProbeResult:
    """All checks, the speed, and the sum of it.

    Args:
        verdict: failed if a required check failed, else passed. warnings: other failed checks, in words.
        tokens_per_second: of a single request while it decodes; None if not measured. time_to_first_token_s: of a single request.
    """

    model: str
    max_model_len: int
    checks: tuple[CheckResult, ...]
    speed: tuple[SpeedPoint, ...]
    verdict: str
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    tokens_per_second: float | None = None
    time_to_first_token_s: float | None = None

    def as_result(self) -> dict[str, Any]:
        """JSON-serialisable, for a module's result."""
        result = asdict(self)
        for name in ("checks", "speed", "failures", "warnings"):
            result[name] = list(result[name])
        for check in result["checks"]:
            check["exchanges"] = list(check["exchanges"])
        return result


def probe(client: Client, settings: ProbeSettings) -> ProbeResult:
    """Run the checks in their order, then measure the speed."""
    ends = time.monotonic() + settings.deadline
    context = Context(
        client=client,
        model=settings.model,
        reasoning=settings.reasoning,
        tools=settings.tools,
        concurrency=settings.concurrency,
        long_context_share=settings.long_context_share,
        long_context_tokens=settings.long_context_tokens,
    )
    functions = check_functions()
    results: list[CheckResult] = []
    for name in _ordered(settings.checks):
        title, function = functions[name]
        started = time.monotonic()
        if context.gone:
            outcome = Outcome(SKIPPED, f"the server is gone: {context.gone}")
        elif started >= ends:
            outcome = Outcome(FAILED, f"not begun: the deadline of {settings.deadline:.0f} s has passed")
        else:
            outcome = _guarded(function, context)
        results.append(
            CheckResult(
                id=name,
                title=title,
                verdict=outcome.verdict,
                reason=outcome.reason,
                required=name in settings.required,
                prompt=outcome.exchanges[-1]["prompt"] if outcome.exchanges else "",
                answer=outcome.exchanges[-1]["answer"] if outcome.exchanges else "",
                exchanges=tuple(outcome.exchanges),
                seconds=round(time.monotonic() - started, 3),
            )
        )
    speed: list[SpeedPoint] = []
    if settings.speed_levels and not context.gone:
        speed = measure_speed(client, context.model, settings.speed_levels, settings.speed_tokens, ends)
    return _summary(context, results, speed)


def _ordered(checks: Sequence[str]) -> list[str]:
    """`models` first, for the others need the model's name."""
    wanted = list(dict.fromkeys(["models", *checks]))
    return [name for name in wanted if name in check_functions()]


def _guarded(function: Callable[[Context], Outcome], context: Context) -> Outcome:
    before = len(context.exchanges)
    try:
        return function(context)
    except ApiError as error:
        if error.kind == "refused":
            context.gone = error.message
        return Outcome(FAILED, error.message, context.exchanges[before:])


def _summary(context: Context, results: list[CheckResult], speed: list[SpeedPoint]) -> ProbeResult:
    failed = [result for result in results if result.verdict == FAILED]
    failures = tuple(f"{result.id}: {result.reason}" for result in failed if result.required)
    if context.gone and not failures and any(result.required for result in results):
        failures = (f"required checks could not run: {context.gone}",)
    warnings = [f"{result.id}: {result.reason}" for result in failed if not result.required]
    warnings += [f"speed at {point.concurrency} simultaneous requests: {point.error}" for point in speed if point.error]
    single = next((point for point in speed if point.concurrency == 1 and not point.error), None)
    return ProbeResult(
        model=context.model,
        max_model_len=context.max_model_len,
        checks=tuple(results),
        speed=tuple(speed),
        verdict=FAILED if failures else PASSED,
        failures=failures,
        warnings=tuple(warnings),
        tokens_per_second=single.tokens_per_second if single else None,
        time_to_first_token_s=single.time_to_first_token_s if single else None,
    )
