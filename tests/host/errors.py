"""The one exception of the test host tools: a message for a person, without a traceback."""

from __future__ import annotations


class HostError(Exception):
    """Something the person at the keyboard can act on; the message says what, where and what to do."""
