# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line of a vLLM log taken apart, and tracebacks put together again from interleaved lines."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, cast

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# In this order: what journalctl writes (-o short, short-iso), `(EngineCore_DP0 pid=1)` of vLLM, `ERROR 12-02 03:48:20 [core.py:8] `.
_JOURNAL = r"(?:(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) \S+ (?P<unit>[^\s\[\]:]+)(?:\[(?P<unit_pid>\d+)\])?: )?"
_PROCESS = r"(?:\((?P<process>[A-Za-z][\w.:-]*)(?: rank=\d+)? pid=(?P<pid>\d+)\) ?)*"
_LEVEL = (
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[(?P<site>[^\]\s]+)\] ?)?"
)
_PREFIX = re.compile(_JOURNAL + _PROCESS + _LEVEL)

TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MAX_TRACEBACK_LINES = 400
_MAX_MESSAGE_CHARS = 100_000
_GROUP_MEMBER = re.compile(r"^[\s|+-]*\|\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*)")


class LogLine(NamedTuple):
    """A line without its prefixes. ``stream`` tells processes apart; ``site`` is ``file.py:line`` of vLLM's own lines."""

    stream: str
    process: str
    level: str
    site: str
    text: str


def parse_line(line: str) -> LogLine:
    """Take the colours and the prefixes of journal and vLLM off a line; a line without prefixes is all text."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    match = cast("re.Match[str]", _PREFIX.match(line))  # every part is optional
    process = match["process"] or ""
    stream = match["pid"] or match["unit_pid"] or ""
    return LogLine(
        stream, process or match["unit"] or "", match["level"] or "", match["site"] or "", line[match.end() :]
    )


class Traceback:
    """One exception with all that it is chained to, as it grows line by line.

    ``exceptions`` are the texts ``Type: message`` in the order of the log, the original one first.
    """

    def __init__(self, first: LogLine, position: int, title: str = "") -> None:
        self.position = position  # line number where it began
        self.level = first.level
        self.site = first.site
        self.process = first.process
        self.exceptions: list[str] = []
        self.lines: list[str] = [title] if title else []
        self._state = "frames"
        self._is_group = "Group Traceback" in first.text
        self._append(first.text)

    @property
    def caught(self) -> bool:
        """Whether vLLM logged it (and may go on), in contrast to an exception that ended a process."""
        return bool(self.site)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    def take(self, line: LogLine) -> bool:
        """Add the line if it belongs here; False means that the traceback is complete."""
        text = line.text
        if self._state == "frames":
            if self._is_group and text[:1] not in (" ", "\t", "|", "+", ""):
                return False
            self._append(text)
            if self._is_group:
                member = _GROUP_MEMBER.match(text)
                if member:
                    self.exceptions.append(member[1])
            elif text[:1] not in (" ", "\t", "") and not text.startswith((TRACEBACK, "[Previous line repeated")):
                self.exceptions.append(text)
                self._state = "message"
            return True
        if text.startswith(_CHAINED):
            self._state = "chained"
        elif text.startswith(TRACEBACK):
            if self._state != "chained":
                return False
            self._state = "frames"
        elif text.strip():
            # The rest of a message of several lines: with the same tag in vLLM's own lines, indented otherwise.
            same_record = bool(self.site) and (line.site, line.level) == (self.site, self.level)
            if not (same_record or (not line.site and text[:1] in (" ", "\t"))):
                return False
            if len(self.exceptions[-1]) < _MAX_MESSAGE_CHARS:
                self.exceptions[-1] += "\n" + text
        self._append(text)
        return True

    def _append(self, text: str) -> None:
        if len(self.lines) < _MAX_TRACEBACK_LINES:
            self.lines.append(text[:2000])
        else:  # an endless recursion: its end matters more than its middle
            self.lines[_MAX_TRACEBACK_LINES // 2 :] = ["[...]", *self.lines[-_MAX_TRACEBACK_LINES // 4 :], text[:2000]]


class TracebackCollector:
    """Follow the tracebacks of several processes whose lines are interleaved."""

    def __init__(self, patience: int = 400) -> None:
        self._open: dict[str, Traceback] = {}
        self._patience = patience  # lines of others after which a silent process's traceback counts as complete
        self._last_seen: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def start(self, line: LogLine, position: int, title: str = "") -> Optional[Traceback]:
        """Open a traceback; returns the one of the same process that this ends, if any."""
        before = self._open.pop(line.stream, None)
        self._open[line.stream] = Traceback(line, position, title)
        self._last_seen[line.stream] = position
        return before

    def take(self, line: LogLine, position: int) -> tuple[bool, list[Traceback]]:
        """Offer a line to the traceback of its process: (whether it was taken, tracebacks complete by now)."""
        complete: list[Traceback] = []
        taken = False
        current = self._open.get(line.stream)
        if current is not None:
            taken = current.take(line)
            if taken:
                self._last_seen[line.stream] = position
            else:
                complete.append(self._open.pop(line.stream))
        for stream in [s for s, seen in self._last_seen.items() if position - seen > self._patience]:
            del self._last_seen[stream]
            if stream in self._open:
                complete.append(self._open.pop(stream))
        return taken, complete

    def finish(self) -> list[Traceback]:
        """All that is still open at the end of the log."""
        rest = sorted(self._open.values(), key=lambda traceback: traceback.position)
        self._open.clear()
        return rest
