# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who listens on a TCP port of this host, read from /proc (no tool needs to be installed)."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from .processes import Process, find_process

LISTEN = "0A"
PROC = Path("/proc")


@dataclass(frozen=True)
class Listener:
    """A listening socket; ``process`` is None when it belongs to no process that is visible from here."""

    address: str
    port: int
    process: Optional[Process]

    def describe(self) -> str:
        who = self.process.describe() if self.process else "a process that is not visible from here"
        return f"{who} on {self.address}:{self.port}"


def listeners(host: str, port: int, proc: Path = PROC) -> list[Listener]:
    """Listening sockets that keep a server from binding ``host:port``.

    Two sockets collide if their addresses are the same or one of them is the wildcard.
    """
    found: list[Listener] = []
    wanted = _addresses(host)
    for table in ("tcp", "tcp6"):
        for address, inode in _listening(proc / "net" / table, port):
            if address.is_unspecified or address in wanted or any(one.is_unspecified for one in wanted):
                found.append(Listener(str(address), port, _owner(proc, inode)))
    return found


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """``0100007F`` of /proc/net/tcp: words of 32 bits in the machine's byte order. Mapped IPv4 addresses become IPv4."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        raw = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    address = ipaddress.ip_address(raw)
    return getattr(address, "ipv4_mapped", None) or address


def _listening(table: Path, port: int) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        address, _colon, number = fields[1].partition(":")
        if fields[3] == LISTEN and int(number, 16) == port:
            yield parse_address(address), fields[9]


def _addresses(host: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return {ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _owner(proc: Path, inode: str) -> Optional[Process]:
    wanted = f"socket:[{inode}]"
    for folder in proc.glob("[0-9]*/fd"):
        try:
            if any(str(entry.readlink()) == wanted for entry in folder.iterdir()):
                return find_process(int(folder.parent.name))
        except OSError:
            continue
    return None
