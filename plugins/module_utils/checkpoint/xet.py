# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Large files over Xet, the Hub's storage protocol, as long as that works; over plain HTTP from its first failure on.

hf_xet can hang or crash, and takes its process with it. So each file's stream comes from a process of its own (``xet_client``) through a pipe: silence ends
it, and what it sent is continued, hashed and proved like any other answer.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Optional, Union, cast

from ..errors import VllmHostError
from .hub import PUBLIC_ENDPOINT, Content, Hub, Trouble
from .retry import Gate, RetryPolicy
from .tree import TreeFile

END_TIMEOUT_S = 10.0
CLIENT = [sys.executable, "-m", "gpuhost_vllm.checkpoint.xet_client"]
# hf_xet keeps a log below HOME by default, in which signed URLs may stand.
CLIENT_ENVIRONMENT = {"HF_XET_LOG_DEST": os.devnull, "RUST_LOG": "off"}


def over_xet(hub: Hub) -> Union[Hub, XetHub]:
    """The Hub with Xet where it can be, which is at the public endpoint: mirrors and proxies of it speak HTTP only.

    Raises:
        VllmHostError: ``xet_missing``.
    """
    if hub.endpoint != PUBLIC_ENDPOINT:
        hub.notes.add(f"xet is on, but {hub.name} is not {PUBLIC_ENDPOINT}: everything comes over plain HTTP")
        return hub
    if importlib.util.find_spec("hf_xet") is None:
        raise VllmHostError(
            "xet_missing",
            f"xet is on, but {sys.executable} has no hf_xet, which exists for x86_64 and arm64 only. Turn xet off "
            "(checkpoint_fetch_xet: false): plain HTTP fetches the same bytes.",
        )
    return XetHub(hub)


class XetHub:
    """The same calls as ``hub.Hub``."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._given_up = False
        self._delivered: set[str] = set()

    @property
    def repo_id(self) -> str:
        return self._hub.repo_id

    @property
    def policy(self) -> RetryPolicy:
        return self._hub.policy

    @property
    def gate(self) -> Gate:
        return self._hub.gate

    @property
    def notes(self) -> set[str]:
        return self._hub.notes

    def close(self) -> None:
        self._hub.close()

    def commit(self, revision: str, attempts: int) -> str:
        return self._hub.commit(revision, attempts)

    def tree(self, commit: str) -> list[TreeFile]:
        return self._hub.tree(commit)

    @contextmanager
    def content(
        self, file: TreeFile, commit: str, start: int, location: Optional[str]
    ) -> Iterator[Union[Content, XetContent]]:
        """As ``Hub.content``; the file comes over Xet if it is kept there and Xet has not failed before."""
        if file.digest in self._delivered:
            self._give_up(f"{file.path} arrived with a wrong digest")
        order = None if self._given_up or not file.sha256 else self._order(file, commit, start)
        if order is None:
            with self._hub.content(file, commit, start, location) as content:
                yield content
            return
        stream = XetContent(order, start, self._hub.timeout_s, self.gate)
        try:
            yield stream
            self._delivered.add(file.digest)
        except XetFailed as failed:
            self._give_up(failed.reason)
            raise
        finally:
            stream.close()

    def _order(self, file: TreeFile, commit: str, start: int) -> Optional[dict[str, Any]]:
        """What the client has to know; None for a file that is not kept in Xet. It holds the token."""
        xet_hash = self._hub.xet_hash(file, commit)
        if not xet_hash:
            return None
        return {
            "hash": xet_hash,
            "size": file.size,
            "start": start,
            "token_url": f"{self._hub.endpoint}/api/models/{self.repo_id}/xet-read-token/{commit}",
            "headers": self._hub.headers,
        }

    def _give_up(self, reason: str) -> None:
        if not self._given_up:
            self._given_up = True
            self.notes.add(f"Xet: {reason}; from there on everything came over plain HTTP")


class XetFailed(Trouble):
    """Xet is not used again in this run, so the failure says nothing about the next attempt."""

    counts = False


class XetContent:
    """The bytes of a file from ``start``, out of a client process."""

    location = None

    def __init__(self, order: dict[str, Any], start: int, silence_s: float, gate: Gate) -> None:
        self.start = start
        self._left = int(order["size"]) - start
        self._silence_s = silence_s
        self._gate = gate
        self._process = subprocess.Popen(
            CLIENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **CLIENT_ENVIRONMENT},
            bufsize=0,
        )
        # Popen's types do not know which pipes were asked for.
        stdin, self._stdout, self._stderr = (
            cast(IO[bytes], pipe) for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        try:
            # By pipe: the order holds the token, which arguments and environment would show.
            stdin.write(json.dumps(order).encode())
            stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; ``read_into`` says so

    def read_into(self, view: memoryview) -> int:
        """Put the next bytes into ``view``; returns how many, 0 at the file's end. Raises XetFailed for silence, a crash, and an early end."""
        if not self._left:
            return 0
        self._await_bytes()
        count = os.readv(self._stdout.fileno(), [view[: self._left]])
        if not count:
            raise XetFailed(self._how_it_ended())
        self._left -= count
        return count

    def close(self) -> None:
        """End the client, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._stdout.close()
        self._stderr.close()

    def _await_bytes(self) -> None:
        end = time.monotonic() + self._silence_s
        while not select.select([self._stdout], [], [], min(1.0, self._silence_s))[0]:
            if self._gate.stopped.is_set():
                raise XetFailed("the run was stopped")
            if time.monotonic() >= end:
                raise XetFailed(f"hf_xet was silent for {self._silence_s:.0f} s")

    def _how_it_ended(self) -> str:
        """In words that come from here: hf_xet's own may hold URLs with signatures."""
        try:
            status = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "hf_xet closed its stream early"
        kind = self._stderr.read(80).decode("ascii", "replace").strip()
        named = f" ({kind})" if kind.isidentifier() else ""
        return f"hf_xet was killed by signal {-status}" if status < 0 else f"hf_xet ended with status {status}{named}"
