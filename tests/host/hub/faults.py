"""What goes wrong, when, and how often: a list of rules that the server asks before it answers.

A rule says which requests it means (``where``, ``method``, ``path``, ``page``), how many of them it lets pass first (``skip``), how many it
then spoils (``times``), and how. Several effects of one rule, and several matching rules, add up.
"""

from __future__ import annotations

import fnmatch
import threading
from dataclasses import dataclass, field
from typing import Any

PLACES = ("info", "tree", "paths-info", "refs", "whoami", "xet-token", "resolve", "cdn")


@dataclass
class Rule:
    """One fault.

    Matching:
        where: one of PLACES, or ``*``.
        method: ``GET``, ``HEAD``, ``POST`` or ``*``.
        path: a glob on the file's path in the repository (``resolve`` and ``cdn``) or on the repository's name (elsewhere).
        page: for ``tree``, only this page (1 is the first).
        skip: let so many matching requests pass first.
        times: then spoil so many; None spoils all.

    Effects:
        status, headers, body: answer with this status, and these headers, instead.
        set_headers, remove_headers: change the headers of the true answer.
        drop_after: close the connection after so many bytes of the body; ``reset`` sends RST instead of FIN. -1 closes before the status line.
        stall_after, stall_s: stop sending for so long after so many bytes of the body; -1 stalls before the status line.
        flip_at: flip the byte at this offset of the file.
        length_change: serve so many bytes more (zeros) or fewer than the file has, under a Content-Length that agrees.
        ignore_range: answer a range request with 200 and the whole file.
        bytes_per_second: send slowly.
        expire: for ``cdn``, treat the signed URL as expired.
        add_entries: for ``tree``, list these entries too (dicts as in the protocol).
        change_entries: for ``tree``, merge these keys into every file entry whose path matches ``entries``.
        redirect_to: for ``resolve``, send the client to this origin (``http://address:port``) under the same path and query.
    """

    where: str = "*"
    method: str = "*"
    path: str = "*"
    page: int | None = None
    skip: int = 0
    times: int | None = 1

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    set_headers: dict[str, str] = field(default_factory=dict)
    remove_headers: list[str] = field(default_factory=list)
    drop_after: int | None = None
    reset: bool = False
    stall_after: int | None = None
    stall_s: float = 3600.0
    flip_at: int | None = None
    length_change: int = 0
    ignore_range: bool = False
    bytes_per_second: int | None = None
    expire: bool = False
    add_entries: list[dict[str, Any]] = field(default_factory=list)
    change_entries: dict[str, Any] = field(default_factory=dict)
    entries: str = "*"
    redirect_to: str | None = None

    seen: int = field(default=0, init=False)
    spoiled: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.where not in (*PLACES, "*"):
            raise ValueError(f"where: {self.where!r} is not one of {', '.join(PLACES)}")

    def matches(self, where: str, method: str, path: str, page: int) -> bool:
        return (
            self.where in (where, "*")
            and self.method in (method, "*")
            and self.page in (page, None)
            and fnmatch.fnmatchcase(path, self.path)
        )


class Faults:
    """The rules in force; safe to change while requests are served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(self, rule: Rule | None = None, **fields: Any) -> Rule:
        """Add one rule, given whole or by its fields; returns it, so that a test can look at ``spoiled``."""
        rule = rule or Rule(**fields)
        with self._lock:
            self._rules.append(rule)
        return rule

    def replace(self, rules: list[dict[str, Any]]) -> None:
        """Put these rules (dicts of fields, as in a JSON file) in place of all others."""
        made = [Rule(**fields) for fields in rules]
        with self._lock:
            self._rules = made

    def clear(self) -> None:
        self.replace([])

    def counts(self) -> list[dict[str, int]]:
        with self._lock:
            return [{"seen": rule.seen, "spoiled": rule.spoiled} for rule in self._rules]

    def striking(self, where: str, method: str, path: str, page: int = 1) -> list[Rule]:
        """The rules that spoil this request; counts it."""
        struck = []
        with self._lock:
            for rule in self._rules:
                if not rule.matches(where, method, path, page):
                    continue
                rule.seen += 1
                if rule.seen > rule.skip and (rule.times is None or rule.spoiled < rule.times):
                    rule.spoiled += 1
                    struck.append(rule)
        return struck
