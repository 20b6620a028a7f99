"""Send the bytes of a file as truly, or as badly, as the rules say."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .faults import Rule

PIECE = 1 << 20


class Hangup(Exception):
    """The connection was cut on purpose."""


@dataclass
class Fate:
    """The effects of all rules that struck one answer, as far as its body is concerned."""

    drop_after: int | None = None
    reset: bool = False
    stall_after: int | None = None
    stall_s: float = 0.0
    flips: list[int] = field(default_factory=list)
    bytes_per_second: int | None = None

    @classmethod
    def of(cls, rules: list[Rule]) -> Fate:
        fate = cls(flips=[rule.flip_at for rule in rules if rule.flip_at is not None])
        for rule in rules:
            if rule.drop_after is not None:
                fate.drop_after, fate.reset = rule.drop_after, rule.reset
            if rule.stall_after is not None:
                fate.stall_after, fate.stall_s = rule.stall_after, rule.stall_s
            fate.bytes_per_second = rule.bytes_per_second or fate.bytes_per_second
        return fate

    @property
    def is_plain(self) -> bool:
        return self == Fate()

    def before_status_line(self, connection: socket.socket) -> None:
        if self.stall_after == -1:
            stall(connection, self.stall_s)
        if self.drop_after == -1:
            hang_up(connection, self.reset)


def send_file(connection: socket.socket, file: Path, start: int, length: int, padding: int, fate: Fate) -> None:
    """``length`` bytes of the file from ``start``, then ``padding`` zeros."""
    with file.open("rb") as stream:
        if fate.is_plain:
            connection.sendfile(stream, start, length) if length else None
            connection.sendall(bytes(padding))
            return
        send_pieces(connection, _pieces(stream.fileno(), start, length, padding), start, fate)


def send_pieces(connection: socket.socket, pieces: Iterator[bytes], start: int, fate: Fate) -> None:
    sent = 0
    for piece in pieces:
        piece = _flipped(piece, start + sent, fate.flips)
        while piece:
            limits = [
                point - sent for point in (fate.stall_after, fate.drop_after) if point is not None and point > sent
            ]
            if fate.bytes_per_second:
                limits.append(max(1, fate.bytes_per_second // 20))
            part, piece = piece[: min([len(piece), *limits])], piece[min([len(piece), *limits]) :]
            _stop_here(connection, sent, fate)
            connection.sendall(part)
            sent += len(part)
            if fate.bytes_per_second:
                time.sleep(len(part) / fate.bytes_per_second)
    _stop_here(connection, sent, fate)


def _stop_here(connection: socket.socket, sent: int, fate: Fate) -> None:
    if fate.stall_after == sent:
        stall(connection, fate.stall_s)
    if fate.drop_after == sent:
        hang_up(connection, fate.reset)


def _pieces(descriptor: int, start: int, length: int, padding: int) -> Iterator[bytes]:
    end = start + length
    while start < end:
        piece = os.pread(descriptor, min(PIECE, end - start), start)
        if not piece:
            return
        start += len(piece)
        yield piece
    if padding:
        yield bytes(padding)


def _flipped(piece: bytes, offset: int, flips: list[int]) -> bytes:
    for flip in flips:
        if offset <= flip < offset + len(piece):
            at = flip - offset
            piece = piece[:at] + bytes([piece[at] ^ 0xFF]) + piece[at + 1 :]
    return piece


def stall(connection: socket.socket, seconds: float) -> None:
    """Send nothing for so long, or until the client has gone."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        connection.settimeout(min(0.2, left))
        try:
            if connection.recv(1, socket.MSG_PEEK) == b"":
                raise Hangup
        except TimeoutError:
            continue
        finally:
            connection.settimeout(None)
        time.sleep(min(0.2, left))


def hang_up(connection: socket.socket, reset: bool) -> None:
    if reset:
        # Linger for no time: closing sends RST. The descriptor is closed for good, past the server's own orderly shutdown.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(connection.detach())
    raise Hangup
