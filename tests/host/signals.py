"""Ctrl-C and SIGTERM as one exception, and stretches of code that neither may split."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = {signal.SIGINT, signal.SIGTERM}


def raise_on_stop_signals() -> None:
    """From now on SIGTERM raises KeyboardInterrupt, as SIGINT does, also where a shell started us with SIGINT ignored."""
    for number in _STOPPING:
        signal.signal(number, _interrupt)


@contextmanager
def undivided() -> Iterator[None]:
    """Hold both signals back until the end of the block; one that came meanwhile is raised there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
