"""Who listens on a port, read from /proc; real sockets of this process."""

from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.ports import listeners, parse_address


@pytest.mark.parametrize(
    "bound, asked, collides",
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "localhost", True),
    ],
)
def test_listeners(bound: str, asked: str, collides: bool) -> None:
    with socket.socket() as server:
        server.bind((bound, 0))
        server.listen()
        port = server.getsockname()[1]
        found = listeners(asked, port)
        assert bool(found) == collides
        if found:
            assert found[0].process and found[0].process.pid == os.getpid()
            assert f"pid {os.getpid()}" in found[0].describe() and str(port) in found[0].describe()
    assert listeners(asked, port) == []


def test_a_bound_socket_that_does_not_listen_is_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        assert listeners("127.0.0.1", server.getsockname()[1]) == []


@pytest.mark.parametrize(
    "text, address",
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
    ],
)
def test_addresses_of_a_little_endian_machine(text: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "little")
    assert str(parse_address(text)) == address
