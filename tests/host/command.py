"""Run a program and turn its failure into a message that quotes it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from typing import Union

from .errors import HostError


def run(*argv: object, check: bool = True, timeout: Union[float, None] = None) -> subprocess.CompletedProcess[str]:
    """Run `argv` without a shell or standard input, output captured. Raises HostError with what the program said."""
    words: Sequence[str] = [str(word) for word in argv]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError:
        raise HostError(f"{words[0]} is not installed; `make setup` installs what the test hosts need") from None
    except subprocess.TimeoutExpired:
        raise HostError(f"no end after {timeout:.0f} s: {shlex.join(words)}") from None
    if check and done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise HostError(f"exit code {done.returncode} from {shlex.join(words)}\n{said}")
    return done
