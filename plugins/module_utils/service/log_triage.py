# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a vLLM log: what it means, what caused a failure, and what vLLM measured about itself.

``triage(lines)`` takes any iterable of lines and keeps nothing but its findings, so the length of a journal does not matter. Blocks of
lines are first searched for the anchors of the pattern table; only lines with an anchor, and the lines of an open traceback, are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Optional

from .log_lines import TRACEBACK, LogLine, Traceback, TracebackCollector, parse_line
from .log_measured import Measurements
from .log_patterns_data import (
    CERTAIN,
    DEGRADED,
    FATAL,
    HARMLESS,
    INTERRUPTIONS,
    MEASURED,
    PATTERNS,
    QUOTING_PREFIXES,
    READY_ANCHOR,
    START_ANCHOR,
    STOP_ANCHORS,
    WRAPPER,
    LogPattern,
)

HEALTHY, DEGRADED_VERDICT, STARTING, FAILED, STOPPED = "healthy", "degraded", "starting", "failed", "stopped"

_BLOCK_LINES = 1024
_MATCHED_CHARS = 8000  # of a line; vLLM's own messages are shorter
_EXAMPLE_CHARS = 1000  # of a known message
_LONG_EXAMPLE_CHARS = 20_000  # of an unknown one
_LINE_CHARS = 1 << 16  # of a line; what is longer is no message
_RECORD_LINES = 40  # lines within which those of one process and place are one log record
_MAX_UNKNOWN = 20  # different unknown errors that are shown

_COMPILED = [(pattern, re.compile(pattern.regex)) for pattern in PATTERNS]
_LIFE = (START_ANCHOR, READY_ANCHOR, *STOP_ANCHORS, TRACEBACK, "ERROR", "CRITICAL")
_ANCHORS = tuple(
    dict.fromkeys([*_LIFE, *(p.anchor for p in PATTERNS), *(anchor for _name, anchor, _regex in MEASURED)])
)
_MEASURED_ANCHORS = tuple(dict.fromkeys(anchor for _name, anchor, _regex in MEASURED))


@dataclass(frozen=True)
class Finding:
    """One message of the log, however often it was printed."""

    id: str
    severity: str  # harmless, degraded or fatal
    meaning: str
    remedy: str
    count: int
    example: str  # the line, or the whole traceback of an unknown error
    source: str

    def as_result(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Triage:
    """The result of reading a log.

    Args:
        findings: by severity (fatal first), then in the order of the log; wrappers only say that something failed.
        measured: figures of the last start, see `log_measured`.
        verdict: of the last start: `healthy` (the API answers), `degraded` (it answers, and something is wrong), `starting`,
            `failed`, `stopped`.
        cause: the first cause of the failure of the last start; None when it did not fail, or when the log does not hold the cause.
        previous_cause: the same for the start before, when the log holds several (a restart loop).
        starts: how many starts the log holds.
        last_message: what the log last said: the only clue of a hang.
        lines: lines read.
    """

    findings: tuple[Finding, ...]
    measured: dict[str, Any]
    verdict: str
    cause: Optional[Finding]
    previous_cause: Optional[Finding]
    starts: int
    last_message: str
    lines: int

    def as_result(self) -> dict[str, Any]:
        """JSON-serialisable, for a module's result."""
        return {
            "findings": [finding.as_result() for finding in self.findings],
            "measured": self.measured,
            "verdict": self.verdict,
            "cause": self.cause.as_result() if self.cause else None,
            "previous_cause": self.previous_cause.as_result() if self.previous_cause else None,
            "starts": self.starts,
            "last_message": self.last_message,
            "lines": self.lines,
        }


def triage(lines: Iterable[str]) -> Triage:
    """Read a log. Lines may carry colours, prefixes of the journal, and belong to other programs."""
    reader = _Reader()
    iterator = iter(lines)
    while True:
        block = list(islice(iterator, _BLOCK_LINES))
        if not block:
            break
        reader.feed(block)
    return reader.finish()


class _Entry:
    """A finding while it is counted."""

    def __init__(self, finding: Finding, position: int, rank: int, expected: bool) -> None:
        self.finding = finding
        self.position = position
        self.rank = rank
        self.expected = expected
        self.count = 0

    def final(self) -> Finding:
        return replace(self.finding, count=self.count)


class _Reader:
    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._tracebacks = TracebackCollector()
        self._measurements = Measurements()
        self._position = 0
        self._patterns = _COMPILED  # those whose anchor the present block contains
        self._measuring: list[str] = []
        self._last_line = ""
        self._titles: dict[str, tuple[int, LogLine]] = {}  # by stream: where an unknown error began, and what it says
        self._starts = 0
        self._previous_cause: Optional[_Entry] = None
        self._begin_start()

    def _begin_start(self) -> None:
        self._ready_at = -1
        self._stopped_at = 0
        self._cause: Optional[_Entry] = None
        self._cause_order = (True, -1)
        self._ended = False
        self._uncaught = False

    # --- lines --------------------------------------------------------------------------------------------------------

    def feed(self, block: list[str]) -> None:
        text = "\n".join(block)
        present = [anchor for anchor in _ANCHORS if anchor in text]
        self._patterns = [row for row in _COMPILED if row[0].anchor in present]
        self._measuring = [anchor for anchor in _MEASURED_ANCHORS if anchor in present]
        for line in reversed(block):
            if line.strip():
                self._last_line = line
                break
        if not present and not self._tracebacks:
            self._position += len(block)
            return
        for line in block:
            self._position += 1
            hit = False
            for anchor in present:
                if anchor in line:
                    hit = True
                    break
            if hit or self._tracebacks:
                self._line(line[:_LINE_CHARS].rstrip("\r\n"), hit)

    def _line(self, raw: str, hit: bool) -> None:
        line = parse_line(raw)
        if self._tracebacks:
            taken, complete = self._tracebacks.take(line, self._position)
            for traceback in complete:
                self._classify(traceback)
            if taken:
                return
        if not hit or line.text.startswith(QUOTING_PREFIXES):
            return
        text = line.text[:_MATCHED_CHARS]
        if text.lstrip(" +|").startswith((TRACEBACK, "Exception Group " + TRACEBACK)):
            before = self._tracebacks.start(line, self._position, self._take_title(line))
            if before is not None:
                self._classify(before)
            return
        self._life(line, text)
        for anchor in self._measuring:
            if anchor in text:
                self._measurements.take(line.stream, text)
                break
        match = _match(text, self._patterns)
        if match is not None:
            self._note(match[0], match[1], line)
        elif line.level in ("ERROR", "CRITICAL"):
            self._keep_title(line)

    def _life(self, line: LogLine, text: str) -> None:
        if START_ANCHOR in text:
            self._starts += 1
            if self._starts > 1:
                self._end_start()
                self._measurements = Measurements()
        elif READY_ANCHOR in text:
            self._ready_at = self._position
            self._cause = None  # whatever was said before did not keep the server from starting
            self._ended = self._uncaught = False
        elif any(anchor in text for anchor in STOP_ANCHORS):
            self._stopped_at = self._stopped_at or self._position

    def _end_start(self) -> None:
        for traceback in self._tracebacks.finish():
            self._classify(traceback)
        self._previous_cause = self._cause
        self._begin_start()

    # --- findings -----------------------------------------------------------------------------------------------------

    def _note(self, pattern: LogPattern, match: re.Match[str], line: LogLine) -> None:
        severity = pattern.severity if pattern.severity != FATAL else self._severity(line.level, self._position)
        entry = self._entries.get((pattern.id, ""))
        if entry is not None and entry.finding.severity == severity:
            entry.count += 1  # noise by the hundred thousand: nothing new to say
        else:
            entry = self._count(_finding(pattern, match, severity, line.text[:_EXAMPLE_CHARS]), self._position, pattern)
        if severity == FATAL:
            self._ended = self._ended or pattern.ends
            self._failure(entry, self._position, pattern.rank)

    def _classify(self, traceback: Traceback) -> None:
        best: Optional[tuple[LogPattern, re.Match[str], str]] = None
        for exception in traceback.exceptions:
            found = _match(exception[:_MATCHED_CHARS])
            if found is not None and (best is None or found[0].rank > best[0].rank):
                best = (*found, exception)
        severity = self._severity(traceback.level, traceback.position)
        if best is not None:
            pattern, match, exception = best
            if pattern.severity != FATAL:
                severity = pattern.severity
            entry = self._count(
                _finding(pattern, match, severity, exception[:_EXAMPLE_CHARS]), traceback.position, pattern
            )
            rank = pattern.rank
        elif traceback.exceptions and traceback.exceptions[-1].startswith(INTERRUPTIONS):
            return
        else:
            entry = self._count(_unknown_traceback(traceback, severity), traceback.position)
            rank = 1
        if severity == FATAL:
            self._uncaught = self._uncaught or not traceback.caught
            self._failure(entry, traceback.position, rank)

    def _severity(self, level: str, position: int) -> str:
        """Of a failure: less if it came as a warning, none for what dies because it was told to end."""
        if self._stopped_at and position > self._stopped_at:
            return HARMLESS
        return DEGRADED if level in ("DEBUG", "INFO", "WARNING") else FATAL

    def _failure(self, entry: _Entry, position: int, rank: int) -> None:
        if rank == WRAPPER:
            self._ended = True
        elif position > self._ready_at:
            order = (rank != CERTAIN, position)
            if self._cause is None or order < self._cause_order:
                self._cause, self._cause_order = entry, order

    def _count(self, finding: Finding, position: int, pattern: Optional[LogPattern] = None) -> _Entry:
        kind = "" if pattern is not None else _shape(finding.example)
        key = (finding.id, kind)
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(finding, position, pattern.rank if pattern else 1, bool(pattern and pattern.expected))
            if pattern is not None or sum(1 for k in self._entries if k[1]) < _MAX_UNKNOWN:
                self._entries[key] = entry
        elif finding.severity == FATAL and entry.finding.severity != FATAL:
            entry.finding = finding  # the same message, now not as a warning
        entry.count += 1
        return entry

    def _keep_title(self, line: LogLine) -> None:
        """Hold an unknown error line back: a traceback may follow, or more lines of the same log record."""
        position, before = self._titles.get(line.stream, (self._position, None))
        same_record = before is not None and before.site == line.site and self._position - position <= _RECORD_LINES
        if before is not None and same_record and line.text not in before.text:
            line = line._replace(text=f"{before.text}\n{line.text}")
            self._titles[line.stream] = (position, line)
        else:
            self._flush_title(line.stream)
            self._titles[line.stream] = (self._position, line)

    def _take_title(self, line: LogLine) -> str:
        """The error line right above a traceback of the same log record."""
        title = self._titles.pop(line.stream, None)
        if title is None:
            return ""
        if line.site and title[1].site == line.site:
            return title[1].text
        self._unknown_error(*title)
        return ""

    def _flush_title(self, stream: str) -> None:
        title = self._titles.pop(stream, None)
        if title is not None:
            self._unknown_error(*title)

    def _unknown_error(self, position: int, line: LogLine) -> None:
        self._count(
            Finding(
                "unknown_error",
                DEGRADED,
                f"{line.process or 'The server'} reported an error that the table of known messages does not hold.",
                "Read it as it stands.",
                0,
                f"{_shortened(line.text.strip())} [{line.site}]",
                line.site,
            ),
            position,
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> Triage:
        for traceback in self._tracebacks.finish():
            self._classify(traceback)
        for stream in list(self._titles):
            self._flush_title(stream)
        order = {FATAL: 0, DEGRADED: 1}
        entries = sorted(
            self._entries.values(), key=lambda e: (order.get(e.finding.severity, 2), e.rank == WRAPPER, e.position)
        )
        verdict = self._verdict(entries)
        cause = self._cause if verdict == FAILED else None
        return Triage(
            findings=tuple(entry.final() for entry in entries),
            measured=self._measurements.result(),
            verdict=verdict,
            cause=cause.final() if cause else None,
            previous_cause=self._previous_cause.final() if self._previous_cause else None,
            starts=self._starts,
            last_message=parse_line(self._last_line[:_LINE_CHARS].rstrip("\r\n")).text[:_EXAMPLE_CHARS],
            lines=self._position,
        )

    def _verdict(self, entries: list[_Entry]) -> str:
        if self._ended:
            return FAILED
        if self._ready_at < 0 and not self._stopped_at:
            known = self._cause is not None and self._cause.finding.id != "unknown_traceback"
            return FAILED if known or (self._cause is not None and self._uncaught) else STARTING
        if self._stopped_at:
            return STOPPED
        wrong = any(e.finding.severity in (FATAL, DEGRADED) and not e.expected for e in entries)
        return DEGRADED_VERDICT if wrong else HEALTHY


def _match(
    text: str, rows: Iterable[tuple[LogPattern, re.Pattern[str]]] = _COMPILED
) -> Optional[tuple[LogPattern, re.Match[str]]]:
    for pattern, regex in rows:
        if pattern.anchor in text:
            match = regex.search(text)
            if match is not None:
                return pattern, match
    return None


def _finding(pattern: LogPattern, match: re.Match[str], severity: str, example: str) -> Finding:
    groups = {name: value if value is not None else "the length that fits" for name, value in match.groupdict().items()}
    return Finding(
        pattern.id,
        severity,
        pattern.meaning.format_map(groups),
        pattern.remedy.format_map(groups),
        0,
        example,
        pattern.source,
    )


def _unknown_traceback(traceback: Traceback, severity: str) -> Finding:
    last = (
        traceback.exceptions[-1].splitlines()[0]
        if traceback.exceptions
        else "an exception whose end the log does not hold"
    )
    return Finding(
        "unknown_traceback",
        severity,
        f"{traceback.process or 'A process'} raised {last[:300]}",
        "The table of known messages does not hold it: read the traceback.",
        0,
        _shortened(traceback.text),
        "traceback",
    )


def _shortened(text: str) -> str:
    """A text for a result: its beginning and its end, where it is long."""
    half = _LONG_EXAMPLE_CHARS // 2
    return text if len(text) <= _LONG_EXAMPLE_CHARS else f"{text[:half]}\n[...]\n{text[-half:]}"


def _shape(example: str) -> str:
    """What makes two unknown errors the same: the last line and the place, without numbers and addresses."""
    last = example.rsplit("\n", 1)[-1]
    return re.sub(r"0x[0-9a-f]+|\d+", "#", last)[:300]
