# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a text reads like language: what a model with broken kernels, weights or templates says is told apart from a weak answer."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Optional

# The same character again and again: the mark of kernels that return zeros ("!" is token 0 of many vocabularies).
# Lines that people draw are allowed.
_RUN = re.compile(r"([^\s\-=_*#.~+|])\1{11,}")
_LOOP_REPEATS = 4
_LOOP_MIN_CHARS = 48
_MIN_WORDS_FOR_VARIETY = 60
_MIN_VARIETY = 0.3  # share of different word triples; prose has above 0.8
_LEAKED = re.compile(
    r"<\|[\w ]{2,30}\|>|</?think>|◁/?think▷|\[/?INST\]|<\|?/?(?:tool_call|tool_calls_section_begin)\|?>"
)

# The commonest words of a language that are rare in the others; a sentence of ten words holds some of them.
_COMMON_WORDS = {
    "en": "the of and to is in that it was for with as on are be this by at from have not which you",
    "de": "der die das und ist nicht ein eine zu mit den von dem im für auf sich auch wird sind des hat als am es",
    "fr": "le la les et est un une des du dans que qui pour pas sur avec ce il au par plus sont ne se",
    "es": "el la los las y es un una de que en por con para del se no al lo más como su son",
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON_WORDS.items()}


def unhealthy(text: str) -> Optional[str]:
    """Why the text is no language, in words; None if it may be."""
    if not text.strip():
        return "the answer is empty"
    run = _RUN.search(text)
    if run:
        return f"the character {run[1]!r} is repeated {len(run[0])} times"
    if "\ufffd" in text:
        return "the answer contains bytes that are no text (U+FFFD)"
    controls = sum(1 for c in text if unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\n\r\t")
    if controls:
        return f"the answer contains {controls} control or unassigned characters"
    loop = looping(text)
    if loop:
        return f"the answer repeats itself: {loop!r} again and again"
    return None


def looping(text: str) -> Optional[str]:
    """The piece that a text repeats without end, or that dominates it; None if there is none."""
    tail = text.rstrip()[-2000:]
    for period in range(1, len(tail) // _LOOP_REPEATS + 1):
        piece = tail[-period:]
        repeats = max(_LOOP_REPEATS, -(-_LOOP_MIN_CHARS // period))
        if repeats * period <= len(tail) and tail.endswith(piece * repeats) and any(c.isalnum() for c in piece):
            return piece.strip()[:80] or piece[:80]
    words = re.findall(r"\w+", text.lower())
    if len(words) >= _MIN_WORDS_FOR_VARIETY:
        triples = list(zip(words, words[1:], words[2:]))
        if len(set(triples)) / len(triples) < _MIN_VARIETY:
            return " ".join(Counter(triples).most_common(1)[0][0])
    return None


def leaked_markup(text: str) -> Optional[str]:
    """A control token of a chat template that reached the user; None if there is none."""
    match = _LEAKED.search(text)
    return match[0] if match else None


def language_of(text: str) -> str:
    """``en``, ``de``, ``fr``, ``es``, ``other-script``, or '' if the text is too short or too mixed to tell."""
    letters = [c for c in text if c.isalpha()]
    if letters and sum(1 for c in letters if "LATIN" in unicodedata.name(c, "")) < 0.7 * len(letters):
        return "other-script"
    words = re.findall(r"[^\W\d_]+", text.lower())
    scores = {language: sum(1 for word in words if word in common) for language, common in _WORDS.items()}
    best = max(scores, key=lambda language: scores[language])
    others = max(score for language, score in scores.items() if language != best)
    return best if scores[best] >= 2 and scores[best] > others else ""
