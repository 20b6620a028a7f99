# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the probe asks, and what a right answer contains.

Questions are easy on purpose: they tell a working model from one with broken weights, kernels, KV cache or chat template, not a clever model
from a simple one. `SmolLM2-135M-Instruct`, served by vLLM 0.32.0 at temperature 0 with a KV cache of 8 or of 16 bit, passes those of `BASIC` [ran].
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Turn(NamedTuple):
    """One question of a conversation: any of the patterns must occur in the answer (no pattern: any healthy text will do)."""

    question: str
    expected: tuple[str, ...] = ()  # regular expressions, case-insensitive
    what: str = ""  # the expected answer in words, for the report


class Conversation(NamedTuple):
    """A check that asks and reads.

    `id` is the check's name. `may_fail`: so many turns may be answered wrongly: a small model stumbles over single words, a broken one over
    all. `min_chars`: length of the last answer. `language`: of all answers.
    """

    id: str
    title: str
    turns: tuple[Turn, ...]
    max_tokens: int = 64
    min_chars: int = 1
    language: str = ""
    separate: bool = False  # each turn is a conversation of its own
    may_fail: int = 0


CONVERSATIONS: tuple[Conversation, ...] = (
    Conversation(
        id="factual",
        title="Facts that every model knows",
        turns=(
            Turn("What is the capital of Japan?", (r"\bTokyo\b",), "Tokyo"),
            Turn("What is 7 + 5?", (r"\b12\b", r"\btwelve\b"), "12"),
            Turn("Name the capital of France.", (r"\bParis\b",), "Paris"),
            Turn("What is the chemical formula of water?", (r"\bH(?:2|₂|_2|_\{2\})O\b",), "H2O"),
        ),
        separate=True,
        may_fail=1,
    ),
    Conversation(
        id="multi_turn",
        title="A conversation in which the answer was given before",
        turns=(
            Turn("My favourite fruit is the mango."),
            Turn("What is my favourite fruit?", (r"\bmangos?\b",), "mango"),
        ),
    ),
    Conversation(
        id="creative",
        title="Free text without loops",
        turns=(
            Turn(
                "Write three sentences about the sea.", (r"\b(?:sea|ocean|wave|water|tide|shore)s?\b",), "about the sea"
            ),
        ),
        max_tokens=120,
        min_chars=60,
        language="en",
    ),
    Conversation(
        id="multi_step",
        title="Arithmetic in two steps",
        turns=(
            Turn(
                "Anna has 3 apples. She buys 4 more apples. Then she eats 2 apples. How many apples does she have now?",
                (r"\b5\b", r"\bfive\b"),
                "5",
            ),
        ),
        max_tokens=200,
    ),
    Conversation(
        id="language",
        title="An answer in the language of the question",
        turns=(
            Turn(
                "Bitte erkläre in zwei Sätzen auf Deutsch, warum der Himmel blau ist.",
                (r"\bHimmel\b", r"\bLicht\b", r"\bblau\b"),
                "German",
            ),
        ),
        max_tokens=120,
        min_chars=40,
        language="de",
    ),
)

# Reasoning models think first: their answers need room. Added to max_tokens where a reasoning parser is on.
REASONING_TOKENS = 2048

TOOL_QUESTION = "What is the weather in Paris right now? Use the tool."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Name of the city, such as Rome"}},
                "required": ["city"],
            },
        },
    }
]
TOOL_NAME = "get_weather"
TOOL_ARGUMENT = ("city", r"\bParis\b")

# The needle of the long context: a fact that no model knows, in the first third of a long plain text.
FILLER = (
    "The harbour was quiet in the morning, and the boats lay side by side in the still water. ",
    "A woman carried bread across the square while the shops opened one after the other. ",
    "Later the wind turned, and the flags on the tower pointed towards the hills. ",
    "Children counted the steps of the long stair and forgot the number every time. ",
)
NEEDLE = "The secret code of the lighthouse is 7316. "
NEEDLE_QUESTION = "What is the secret code of the lighthouse? Answer with the number only."
NEEDLE_EXPECTED = r"\b7316\b"
NEEDLE_PLACE = 0.35

# Questions whose answers cannot be confused, for requests at the same time and for the comparison of streamed and whole answers.
SINGLE_QUESTIONS: tuple[Turn, ...] = CONVERSATIONS[0].turns[:2]

SPEED_PROMPT = "Write a long and detailed description of a day at a harbour, from the morning to the night."

BASIC: tuple[str, ...] = (
    "models",
    "factual",
    "multi_turn",
    "creative",
    "streaming",
    "usage",
    "concurrency",
    "reasoning",
    "tool_call",
)
ALL_CHECKS: tuple[str, ...] = (
    "models",
    "factual",
    "multi_step",
    "multi_turn",
    "creative",
    "language",
    "reasoning",
    "tool_call",
    "streaming",
    "usage",
    "long_context",
    "concurrency",
)
QUICK: tuple[str, ...] = ("models", "factual", "streaming", "usage")
