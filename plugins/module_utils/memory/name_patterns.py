# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Regular expressions of strangers against names of layers, in bounded time.

A checkpoint's list of layers that are not quantized may hold expressions, and Python's own matcher goes back and forth for ever on one such
as ``(a+)+$``. Here an expression is a function from the set of places in the name where it may begin to the set where it may end, so that no
place is tried twice. Understood is what such lists use: characters and classes, groups, ``|``, ``* + ? {m,n}``, anchors, and looking ahead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Optional

#: Longer expressions are no names of layers.
LONGEST_PATTERN = 1000
#: Moves through all names of a model, some seconds: a usual expression needs some hundreds for a name.
MOST_STEPS = 20_000_000

Places = frozenset[int]
_NOWHERE: Places = frozenset()
_INLINE_FLAG = re.compile(r"\(\?(i)\)")
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_GROUP = re.compile(r"\((?:\?(?:(:)|(=)|(!)|P<\w+>))?(?!\?)")
_ENDLESS = 1 << 30


class PatternTooHard(Exception):
    """An expression that this matcher does not read; the message says why."""


@dataclass
class Effort:
    """Moves that are left for a model."""

    left: int = MOST_STEPS

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise PatternTooHard("takes too long")


@dataclass(frozen=True)
class _Name:
    """A name under scrutiny."""

    text: str
    effort: Effort

    def spend(self, steps: int) -> None:
        self.effort.spend(steps)


_Move = Callable[[_Name, Places], Places]


def matches(pattern: str, text: str, effort: Optional[Effort] = None) -> bool:
    """Whether ``re.match(pattern, text)`` finds something.

    Args:
        effort: shared by the names of a model.

    Raises:
        PatternTooHard: for an expression that is too long, takes too long, or holds what is not understood. re.error: for one that is none.
    """
    try:
        return bool(compiled(pattern)(_Name(text, effort or Effort()), frozenset((0,))))
    except RecursionError as error:
        raise PatternTooHard("is too deep") from error


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> _Move:
    """``pattern`` as a move; raises as ``matches`` does."""
    if len(pattern) > LONGEST_PATTERN:
        raise PatternTooHard(f"has more than {LONGEST_PATTERN} characters")
    parser = _Parser(pattern)
    try:
        re.compile(pattern)
        move = parser.alternatives()
    except (RecursionError, OverflowError) as error:
        raise PatternTooHard("is too deep or counts too far") from error
    if parser.at < len(parser.pattern):
        raise PatternTooHard(f"has {parser.rest()!r}, which is not understood here")
    return move


class _Parser:
    """Recursive descent through an expression that Python has found sound."""

    def __init__(self, pattern: str) -> None:
        flag = _INLINE_FLAG.match(pattern)
        self.flags = int(re.IGNORECASE) if flag else 0
        self.pattern = pattern[flag.end() :] if flag else pattern
        self.at = 0

    def rest(self) -> str:
        return self.pattern[self.at : self.at + 20]

    def alternatives(self) -> _Move:
        ways = [self._sequence()]
        while self._take("|"):
            ways.append(self._sequence())
        if len(ways) == 1:
            return ways[0]

        def alternatives(name: _Name, places: Places) -> Places:
            name.spend(len(ways))
            return _NOWHERE.union(*(way(name, places) for way in ways))

        return alternatives

    def _sequence(self) -> _Move:
        moves: list[_Move] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            moves.append(self._repeated(self._atom()))

        def sequence(name: _Name, places: Places) -> Places:
            for move in moves:
                if not places:
                    return _NOWHERE
                places = move(name, places)
            return places

        return sequence

    def _repeated(self, move: _Move) -> _Move:
        sign, counted = self.pattern[self.at : self.at + 1], _COUNT.match(self.pattern, self.at)
        if sign and sign in "*+?":
            low, high = {"*": (0, _ENDLESS), "+": (1, _ENDLESS), "?": (0, 1)}[sign]
            self.at += 1
        elif counted and counted[0] != "{}":
            low = int(counted[1] or 0)
            high = int(counted[3] or _ENDLESS) if counted[2] else low
            self.at = counted.end()
        else:
            return move
        self._take("?")  # lazy or not: the same places are reached
        if self._take("+"):
            raise PatternTooHard("has a possessive repetition, which is not understood here")
        return _repeat(move, low, high)

    def _atom(self) -> _Move:
        group = _GROUP.match(self.pattern, self.at)
        character = self.pattern[self.at]
        if group:
            self.at = group.end()
            inner = self.alternatives()
            if not self._take(")"):
                raise PatternTooHard(f"has {self.rest()!r}, which is not understood here")
            return _ahead(inner, wanted=bool(group[2])) if group[2] or group[3] else inner
        if character == "(":
            raise PatternTooHard(f"has {self.rest()!r}, which is not understood here")
        self.at += 1
        if character == "^":
            return lambda _name, places: places & {0}
        if character == "$":
            return _at_end
        if character == "[":
            return self._one(self._class())
        if character == "\\":
            return self._escape()
        return self._one(character if character == "." else re.escape(character))

    def _class(self) -> str:
        """A class of characters, from its bracket on; Python itself will say what is in it."""
        begin = self.at - 1
        self._take("^")
        self._take("]")
        while self.pattern[self.at] != "]":
            self.at += 2 if self.pattern[self.at] == "\\" else 1
        self.at += 1
        return self.pattern[begin : self.at]

    def _escape(self) -> _Move:
        character = self.pattern[self.at]
        self.at += 1
        if character in "dDwWsS" or not character.isalnum():
            return self._one(f"\\{character}")
        if character == "Z":
            return lambda name, places: places & {len(name.text)}
        if character == "A":
            return lambda _name, places: places & {0}
        if character == "b":
            return _at_word_boundary
        raise PatternTooHard(f"has \\{character}, which is not understood here")

    def _one(self, expression: str) -> _Move:
        """One character that Python's matcher takes for ``expression``."""
        fits = _Characters(re.compile(expression, self.flags))

        def one(name: _Name, places: Places) -> Places:
            name.spend(len(places))
            text, end = name.text, len(name.text)
            return frozenset(place + 1 for place in places if place < end and fits[text[place]])

        return one

    def _take(self, character: str) -> bool:
        if self.pattern[self.at : self.at + 1] != character:
            return False
        self.at += 1
        return True


class _Characters(dict[str, bool]):
    """Which characters an expression of one character takes, as far as it was asked."""

    def __init__(self, expression: re.Pattern[str]) -> None:
        super().__init__()
        self._expression = expression

    def __missing__(self, character: str) -> bool:
        self[character] = self._expression.fullmatch(character) is not None
        return self[character]


def _repeat(move: _Move, low: int, high: int) -> _Move:
    def repeat(name: _Name, places: Places) -> Places:
        for _count in range(low):
            name.spend(1)
            before, places = places, move(name, places)
            if not places or places == before:
                break
        reached = new = places
        count = low
        while new and count < high:
            new = move(name, new) - reached
            reached |= new
            name.spend(1 + len(new))
            count += 1
        return reached

    return repeat


def _ahead(move: _Move, wanted: bool) -> _Move:
    return lambda name, places: frozenset(place for place in places if bool(move(name, frozenset((place,)))) is wanted)


def _at_end(name: _Name, places: Places) -> Places:
    """``$`` also stands before a line break at the very end."""
    end = len(name.text)
    return places & ({end, end - 1} if name.text.endswith("\n") else {end})


def _at_word_boundary(name: _Name, places: Places) -> Places:
    return frozenset(place for place in places if re.compile(r"\b").match(name.text, place))
