# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the probe: each asks the server through a `Context` and returns an `Outcome`; an `ApiError` is a failed check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .openai_client import Answer, ApiError, Client, is_count
from .probe_data import (
    CONVERSATIONS,
    FILLER,
    NEEDLE,
    NEEDLE_EXPECTED,
    NEEDLE_PLACE,
    NEEDLE_QUESTION,
    REASONING_TOKENS,
    SINGLE_QUESTIONS,
    TOOL_ARGUMENT,
    TOOL_NAME,
    TOOL_QUESTION,
    TOOLS,
    Conversation,
    Turn,
)
from .text_health import language_of, leaked_markup, unhealthy

#: Of one answer, in the result and the report.
MOST_CHARACTERS = 10_000
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_LANGUAGES = {"de": "German", "en": "English", "es": "Spanish", "fr": "French", "other-script": "another script"}


@dataclass
class Outcome:
    """Verdict of one check and the exchanges that led to it."""

    verdict: str
    reason: str
    exchanges: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Context:
    """The server, and what the checks learned about it so far."""

    client: Client
    model: str
    reasoning: bool
    tools: bool
    concurrency: int
    long_context_share: float
    long_context_tokens: int
    max_model_len: int = 0
    gone: str = ""  # why the server does not answer any more
    exchanges: list[dict[str, str]] = field(default_factory=list)  # of all checks, in their order

    def body(self, messages: Sequence[dict[str, Any]], max_tokens: int, **more: Any) -> dict[str, Any]:
        """A request at temperature 0, with room to think where a reasoning parser is on."""
        room = max_tokens + (REASONING_TOKENS if self.reasoning else 0)
        if self.max_model_len:
            room = min(room, max(self.max_model_len // 2, 1))
        return {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": room,
            "temperature": 0,
            "seed": 0,
            **more,
        }

    def ask(self, messages: Sequence[dict[str, Any]], max_tokens: int, **more: Any) -> Answer:
        """One answer, noted down."""
        answer = self.client.chat(self.body(messages, max_tokens, **more))
        self.note(str(messages[-1]["content"]), answer)
        return answer

    def note(self, prompt: str, answer: Answer) -> None:
        shown = answer.content
        if answer.tool_calls:
            shown = "\n".join([shown, *(f"{call['name']}({call['arguments']})" for call in answer.tool_calls)]).strip()
        self.exchanges.append({"prompt": prompt, "answer": _cut(shown), "reasoning": _cut(answer.reasoning)})


def _cut(text: str) -> str:
    """A text for the report, which has no room for one without end."""
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]} ... and {more:,} characters more"


def _name(found: Any) -> str:
    """A model's name; ValueError for what is none."""
    if not isinstance(found, str) or not 0 < len(found) <= 500 or not found.isprintable():
        raise ValueError("no name of a model")
    return found


def _whole(found: Any) -> int:
    """A number of tokens; ValueError for what is none."""
    if not is_count(found):
        raise ValueError("no number of tokens")
    return int(found)


def check_functions() -> dict[str, tuple[str, Callable[[Context], Outcome]]]:
    """Name of each check: its title and its function."""
    functions: dict[str, tuple[str, Callable[[Context], Outcome]]] = {
        "models": ("The server lists its model", check_models),
        "reasoning": ("Reasoning is kept apart from the answer", check_reasoning),
        "tool_call": ("A tool is called with the right arguments", check_tool_call),
        "streaming": ("A streamed answer equals an answer in one piece", check_streaming),
        "usage": ("Tokens are counted rightly", check_usage),
        "long_context": ("A fact is found in a text near the full context length", check_long_context),
        "concurrency": ("Simultaneous requests get their own answers", check_concurrency),
    }
    for conversation in CONVERSATIONS:
        functions[conversation.id] = (conversation.title, partial(check_conversation, conversation=conversation))
    return functions


def check_models(context: Context) -> Outcome:
    """The model that is asked for is served; learns its name and its context length."""
    document = context.client.get("/v1/models")
    try:
        served = {_name(entry["id"]): _whole(entry.get("max_model_len") or 0) for entry in document["data"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ApiError(
            "shape", f"/v1/models is no list of models: {context.client.told(json.dumps(document))[:300]}"
        ) from error
    if not context.model and served:
        context.model = next(iter(served))
    if context.model not in served:
        return Outcome(FAILED, f"the server lists {', '.join(served) or 'no model'}, not {context.model}")
    context.max_model_len = served[context.model]
    return Outcome(PASSED, f"{context.model}, {context.max_model_len:,} tokens of context")


def check_conversation(context: Context, conversation: Conversation) -> Outcome:
    """Questions with known answers."""
    first = len(context.exchanges)
    answers = _ask_apart(context, conversation) if conversation.separate else _ask_in_turn(context, conversation)
    wrong: list[str] = []
    for turn, answer in answers:
        context.note(turn.question, answer)
        reason = wrong_answer(answer, turn, conversation)
        if reason:
            wrong.append(f"\u201c{turn.question}\u201d: {reason}")
            if len(wrong) > conversation.may_fail:
                return Outcome(FAILED, "; ".join(wrong), context.exchanges[first:])
    found = "answered as expected: " + ", ".join(turn.what for turn in conversation.turns if turn.what)
    if wrong:
        found = f"all answers but one were right; {wrong[0]}"
    return Outcome(PASSED, found, context.exchanges[first:])


def _ask_in_turn(context: Context, conversation: Conversation) -> Iterator[tuple[Turn, Answer]]:
    """Each question follows the answer to the one before."""
    messages: list[dict[str, Any]] = []
    for turn in conversation.turns:
        messages.append({"role": "user", "content": turn.question})
        answer = context.client.chat(context.body(messages, conversation.max_tokens))
        yield turn, answer
        messages.append({"role": "assistant", "content": answer.content})


def _ask_apart(context: Context, conversation: Conversation) -> Iterator[tuple[Turn, Answer]]:
    """All questions at the same time, which takes as long as one."""

    def ask(turn: Turn) -> Answer:
        return context.client.chat(context.body([{"role": "user", "content": turn.question}], conversation.max_tokens))

    with ThreadPoolExecutor(max_workers=len(conversation.turns)) as pool:
        yield from zip(conversation.turns, pool.map(ask, conversation.turns))


def wrong_answer(answer: Answer, turn: Turn, conversation: Conversation) -> str:
    """What is wrong with an answer, in words; empty if it is right."""
    text = answer.content
    if not text.strip() and answer.reasoning and answer.finish_reason == "length":
        return "the model was still reasoning when the answer had to end"
    reason = unhealthy(text)
    if reason:
        return reason
    markup = leaked_markup(text)
    if markup:
        return f"the answer contains the control text {markup}: chat template or parser do not fit the model"
    if turn.expected and not any(re.search(pattern, text, re.IGNORECASE) for pattern in turn.expected):
        return f"the answer does not say {turn.what}"
    if len(text.strip()) < conversation.min_chars and turn is conversation.turns[-1]:
        return f"the answer has {len(text.strip())} characters, fewer than {conversation.min_chars}"
    language = language_of(text)
    if conversation.language and language not in ("", conversation.language):
        return f"the answer is in {_LANGUAGES[language]}, not in {_LANGUAGES[conversation.language]}"
    return ""


def check_reasoning(context: Context) -> Outcome:
    """Over all answers so far: with a reasoning parser there is reasoning, and none of it in the answers."""
    if not any(exchange["answer"] or exchange["reasoning"] for exchange in context.exchanges):
        context.ask([{"role": "user", "content": SINGLE_QUESTIONS[0].question}], 64)
    leaked = [markup for markup in (leaked_markup(exchange["answer"]) for exchange in context.exchanges) if markup]
    thought = sum(1 for exchange in context.exchanges if exchange["reasoning"])
    if not context.reasoning and not thought:
        hint = f"; the answers contain {leaked[0]}: set reasoning_parser" if leaked else ""
        return Outcome(SKIPPED, f"no reasoning parser is on{hint}")
    if leaked:
        return Outcome(
            FAILED, f"{len(leaked)} answers contain {leaked[0]}: the reasoning parser does not fit the model"
        )
    if not thought:
        return Outcome(FAILED, "a reasoning parser is on, but no answer came with reasoning of its own")
    return Outcome(PASSED, f"{thought} of {len(context.exchanges)} answers came with reasoning, kept apart")


def check_tool_call(context: Context) -> Outcome:
    """With automatic tool choice the model calls the tool, and the parser returns its name and valid arguments."""
    if not context.tools:
        return Outcome(SKIPPED, "automatic tool calls are not on")
    first = len(context.exchanges)
    answer = context.ask([{"role": "user", "content": TOOL_QUESTION}], 256, tools=TOOLS, tool_choice="auto")
    return Outcome(*_judge_tool_call(answer), context.exchanges[first:])


def _judge_tool_call(answer: Answer) -> tuple[str, str]:
    if not answer.tool_calls:
        if TOOL_NAME in answer.content or leaked_markup(answer.content):
            return (
                FAILED,
                "the call of the tool stands in the answer as text: the tool call parser does not fit the model",
            )
        return FAILED, f"no tool was called; the answer was: {answer.content[:200]!r}"
    call = answer.tool_calls[0]
    if call["name"] != TOOL_NAME:
        return FAILED, f"the tool {call['name'][:100]!r} was called, which does not exist; {TOOL_NAME} was offered"
    try:
        arguments = json.loads(call["arguments"])
    except (ValueError, RecursionError):
        return FAILED, f"the arguments are no JSON: {call['arguments'][:200]!r}"
    name, pattern = TOOL_ARGUMENT
    if not isinstance(arguments, dict) or not re.search(pattern, str(arguments.get(name, "")), re.IGNORECASE):
        return FAILED, f"the arguments do not name Paris as {name}: {call['arguments'][:200]}"
    if answer.finish_reason != "tool_calls":
        return FAILED, f"finish_reason is {answer.finish_reason!r} instead of 'tool_calls'"
    return PASSED, f"{TOOL_NAME}({call['arguments'][:200]})"


def check_streaming(context: Context) -> Outcome:
    """The same question twice: in one piece and streamed."""
    first = len(context.exchanges)
    question = SINGLE_QUESTIONS[0].question
    messages = [{"role": "user", "content": question}]
    whole = context.ask(messages, 48)
    streamed = context.client.stream(context.body(messages, 48))
    context.note(question, streamed)
    exchanges = context.exchanges[first:]
    if not streamed.content and not streamed.reasoning:
        return Outcome(FAILED, "the stream held no text", exchanges)
    if not streamed.finish_reason:
        return Outcome(FAILED, "the stream ended without a finish_reason", exchanges)
    if not streamed.usage:
        return Outcome(FAILED, "the stream did not report its usage although it was asked to", exchanges)
    if (streamed.content, streamed.reasoning) == (whole.content, whole.reasoning):
        return Outcome(PASSED, f"equal, {len(whole.content)} characters", exchanges)
    again = context.ask(messages, 48)
    if (again.content, again.reasoning) != (whole.content, whole.reasoning):
        return Outcome(
            SKIPPED,
            "not to be told: two answers in one piece differ as well at temperature 0",
            context.exchanges[first:],
        )
    place = next(
        (i for i, (a, b) in enumerate(zip(whole.content, streamed.content)) if a != b),
        min(len(whole.content), len(streamed.content)),
    )
    return Outcome(
        FAILED,
        f"the streamed answer differs from character {place} on: {whole.content[place : place + 40]!r} in one piece, "
        f"{streamed.content[place : place + 40]!r} streamed",
        exchanges,
    )


def check_usage(context: Context) -> Outcome:
    """An answer that must have a known number of tokens; the prompt's tokens as the server's own tokenizer counts them."""
    wanted = 8
    first = len(context.exchanges)
    messages = [{"role": "user", "content": "Count from one to one hundred in words."}]
    body = {**context.body(messages, wanted), "max_tokens": wanted, "ignore_eos": True}
    answer = context.client.chat(body)
    context.note(messages[0]["content"], answer)
    exchanges = context.exchanges[first:]
    prompt, completion, total = (answer.usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if not all(isinstance(count, int) for count in (prompt, completion, total)):
        return Outcome(
            FAILED,
            f"the answer reports no whole usage: {context.client.told(json.dumps(answer.usage))[:200]}",
            exchanges,
        )
    if completion != wanted:
        return Outcome(FAILED, f"{wanted} tokens were asked for, completion_tokens says {completion}", exchanges)
    if total != prompt + completion:
        return Outcome(FAILED, f"total_tokens is {total}, not {prompt} + {completion}", exchanges)
    counted = _count_tokens(context, messages=messages)
    if counted and counted != prompt:
        return Outcome(FAILED, f"prompt_tokens is {prompt}, the server's tokenizer counts {counted}", exchanges)
    return Outcome(
        PASSED,
        f"{prompt} + {completion} = {total} tokens" + (", as the tokenizer counts" if counted else ""),
        exchanges,
    )


def _count_tokens(context: Context, **what: Any) -> int:
    """Tokens as vLLM's /tokenize counts them; 0 if the server has no such route."""
    try:
        return _whole(context.client.post("/tokenize", {"model": context.model, **what})["count"])
    except ApiError as error:
        if error.kind in ("status", "not_json"):
            return 0
        raise
    except (KeyError, TypeError, ValueError):
        return 0


def check_long_context(context: Context) -> Outcome:
    """A needle in a text that nearly fills the context."""
    limit = context.max_model_len
    if context.long_context_tokens:
        limit = min(limit, context.long_context_tokens)
    if limit < 256:
        return Outcome(SKIPPED, f"a context of {limit} tokens is too short")
    first = len(context.exchanges)
    text, tokens = _haystack(context, int(limit * context.long_context_share))
    prompt = text + "\n\n" + NEEDLE_QUESTION
    answer = context.client.chat(context.body([{"role": "user", "content": prompt}], 32))
    used = answer.usage.get("prompt_tokens", tokens)
    context.note(f"[a text of {used:,} tokens] {NEEDLE_QUESTION}", answer)
    exchanges = context.exchanges[first:]
    reason = unhealthy(answer.content)
    if reason:
        return Outcome(FAILED, f"after {used:,} tokens {reason}", exchanges)
    if not re.search(NEEDLE_EXPECTED, answer.content):
        return Outcome(
            FAILED, f"the fact was not found in {used:,} tokens; the answer was {answer.content[:120]!r}", exchanges
        )
    return Outcome(PASSED, f"found in {used:,} of {context.max_model_len:,} tokens, {answer.seconds:.1f} s", exchanges)


def _haystack(context: Context, tokens: int) -> tuple[str, int]:
    """A text of about so many tokens with the needle in it."""
    block = "".join(FILLER)
    reserve = 64 + 32 + (min(REASONING_TOKENS, tokens // 4) if context.reasoning else 0)
    block_tokens = _count_tokens(context, prompt=block, add_special_tokens=False)
    if not block_tokens:
        answer = context.client.chat({**context.body([{"role": "user", "content": block * 2}], 1), "max_tokens": 1})
        once = context.client.chat({**context.body([{"role": "user", "content": block}], 1), "max_tokens": 1})
        block_tokens = max(answer.usage.get("prompt_tokens", 0) - once.usage.get("prompt_tokens", 0), len(block) // 5)
    blocks = max((tokens - reserve) // block_tokens, 2)
    before = max(int(blocks * NEEDLE_PLACE), 1)
    return block * before + NEEDLE + block * (blocks - before), blocks * block_tokens


def check_concurrency(context: Context) -> Outcome:
    """Two different questions in turns, all at once: everyone gets the answer to its own."""
    first = len(context.exchanges)
    factual = CONVERSATIONS[0]
    turns = [SINGLE_QUESTIONS[i % len(SINGLE_QUESTIONS)] for i in range(context.concurrency)]

    def ask(turn: Turn) -> Answer:
        return context.client.chat(context.body([{"role": "user", "content": turn.question}], factual.max_tokens))

    with ThreadPoolExecutor(max_workers=max(context.concurrency, 1)) as pool:
        futures = [pool.submit(ask, turn) for turn in turns]
        wrong: list[str] = []
        for turn, future in zip(turns, futures):
            try:
                answer = future.result()
            except ApiError as error:
                wrong.append(error.message)
                continue
            context.note(turn.question, answer)
            reason = wrong_answer(answer, turn, factual)
            if reason:
                wrong.append(f"\u201c{turn.question}\u201d: {reason}")
    if wrong:
        return Outcome(
            FAILED,
            f"{len(wrong)} of {len(turns)} simultaneous requests failed, the first: {wrong[0]}",
            context.exchanges[first:],
        )
    return Outcome(
        PASSED, f"{len(turns)} simultaneous requests, each with its own right answer", context.exchanges[first:]
    )
