"""Readiness: healthy, or a reason at once."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.ready import (
    Ready,
    failure,
    health_url,
    is_healthy,
    is_strangers,
    wait_until_ready,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.systemd import UnitState, parse_show, unit_of

STARTING = UnitState("loaded", "activating", "start-post", "success", 100, 0, "first", "enabled")
RUNNING = replace(STARTING, active="active", sub="running")
SHOWN = """Result=exit-code
NRestarts=3
MainPID=0
LoadState=loaded
ActiveState=activating
SubState=auto-restart
UnitFileState=enabled
InvocationID=0f1e
"""


class World:
    """Time passes only when it is slept; health and unit follow a script of (second, value)."""

    def __init__(self, healthy_at: float, states: dict[float, UnitState]) -> None:
        self.now = 0.0
        self.healthy_at = healthy_at
        self.strangers_until = 0.0
        self.states = states
        self.asked_logs: list[str] = []

    def healthy(self, _url: str) -> bool:
        return self.now >= self.healthy_at

    def strangers(self, _url: str, _unit: str) -> bool:
        return self.now < self.strangers_until

    def look(self, _unit: str) -> UnitState:
        return self.states[max(second for second in self.states if second <= self.now)]

    def read_log(self, _unit: str, invocation: str = "") -> list[str]:
        self.asked_logs.append(invocation)
        return [
            "(Worker pid=7) ERROR 12-02 03:48:20 [multiproc_executor.py:8] WorkerProc failed to start.",
            "(Worker pid=7) ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        ]

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, timeout_s: float = 600, unit: str | None = "vllm-x.service") -> Ready:
        return wait_until_ready(
            "http://127.0.0.1:8000",
            unit,
            timeout_s,
            self.healthy,
            self.strangers,
            self.look,
            self.read_log,
            self.clock,
            self.sleep,
        )


def test_healthy_while_it_starts() -> None:
    world = World(30, {0: STARTING})
    assert world.wait().seconds == 30
    assert world.asked_logs == ["first"]


def test_without_a_unit_only_the_answer_counts() -> None:
    assert World(3, {}).wait(unit=None) == Ready(3.0, ())


@pytest.mark.parametrize(
    "state, told",
    [
        (replace(STARTING, active="failed", sub="failed", result="exit-code", main_pid=0), r"failed \(exit-code\)"),
        (replace(STARTING, sub="auto-restart", main_pid=0, result="signal"), "will be restarted"),
        (replace(STARTING, sub="auto-restart-queued", main_pid=0), "will be restarted"),
        (replace(STARTING, invocation="second"), "ended and was restarted"),
        (replace(STARTING, restarts=1), "ended and was restarted"),
        (replace(STARTING, main_pid=0), "ended while it was starting"),
        (replace(STARTING, active="inactive", sub="dead", main_pid=0), "is not running"),
        (replace(STARTING, load="not-found", active="inactive", sub="dead"), "does not exist"),
    ],
)
def test_an_end_is_noticed_at_once_with_its_cause(state: UnitState, told: str) -> None:
    world = World(1e9, {0: STARTING, 5: state})
    with pytest.raises(VllmHostError, match=told) as raised:
        world.wait()
    assert world.now == 5
    assert raised.value.code == "service_not_ready"
    assert "No available memory for the cache blocks" in raised.value.message
    assert raised.value.details["cause"]["severity"] == "fatal"


def test_a_health_answer_of_a_stranger_does_not_hide_the_end() -> None:
    """The port may be someone else's: the unit has ended, but /health answers 200."""
    with pytest.raises(VllmHostError, match="will be restarted"):
        World(0, {0: replace(STARTING, sub="auto-restart", main_pid=0)}).wait()


def test_a_health_answer_of_a_stranger_is_none() -> None:
    """Its own server starts for ten seconds before it finds the port taken."""
    world = World(0, {0: STARTING, 10: replace(STARTING, sub="auto-restart", main_pid=0)})
    world.strangers_until = 1e9
    with pytest.raises(VllmHostError, match="will be restarted"):
        world.wait()
    world = World(0, {0: STARTING})
    world.strangers_until = 20
    assert world.wait().seconds == 20


def test_the_deadline_says_what_the_log_last_said() -> None:
    world = World(1e9, {0: STARTING})
    with pytest.raises(VllmHostError, match="did not answer http://127.0.0.1:8000/health within 60 s") as raised:
        world.wait(60)
    assert raised.value.details["log"]
    assert 60 <= world.now < 62


def test_an_unknown_end_shows_the_servers_own_last_words() -> None:
    log = [
        "(Worker pid=7) INFO 12-02 03:48:20 [x.py:8] half-way",
        "vllm-x.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED",
    ]
    told = failure("vllm-x.service", "failed (exit-code)", 5.0, log)
    assert told.message.endswith("ends with: (Worker pid=7) INFO 12-02 03:48:20 [x.py:8] half-way")
    assert told.details["log"] == log


def test_show_is_read() -> None:
    state = parse_show(SHOWN)
    assert (state.result, state.restarts, state.main_pid, state.invocation) == ("exit-code", 3, 0, "0f1e")
    assert state.between_restarts and not state.running and not state.starting
    assert parse_show("").load == ""


@pytest.mark.parametrize(
    ("left", "entered", "seconds"), [(5_000_000, 12_500_000, 7.5), (5_000_000, 0, None), (0, 0, None)]
)
def test_how_long_the_start_took(left: int, entered: int, seconds: float | None) -> None:
    shown = f"InactiveExitTimestampMonotonic={left}\nActiveEnterTimestampMonotonic={entered}\n"
    assert parse_show(shown).start_seconds == seconds


@pytest.mark.parametrize(
    "url, expected",
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/health"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/health"),
        ("http://[::1]:8000/ping?x=1", "http://[::1]:8000/ping?x=1"),
    ],
)
def test_url(url: str, expected: str) -> None:
    assert health_url(url) == expected


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "", "ftp://x/"])
def test_bad_url(url: str) -> None:
    with pytest.raises(VllmHostError) as raised:
        health_url(url)
    assert raised.value.code == "url_invalid"


@pytest.fixture
def server() -> Iterator[tuple[http.server.HTTPServer, list[int]]]:
    status = [503]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    instance = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=instance.serve_forever, args=(0.02,), daemon=True).start()
    yield instance, status
    instance.shutdown()
    instance.server_close()


def test_who_listens(server: tuple[http.server.HTTPServer, list[int]]) -> None:
    """This test's own server belongs to whatever unit the test runs in, and not to another."""
    url = f"http://127.0.0.1:{server[0].server_port}/health"
    own = unit_of(os.getpid())
    assert is_strangers(url, "vllm-x.service") == (own is not None)
    assert own is None or not is_strangers(url, own)
    assert not is_strangers("http://127.0.0.1:9/health", "vllm-x.service"), "nobody listens"


def test_real_answers(server: tuple[http.server.HTTPServer, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    instance, status = server
    url = f"http://127.0.0.1:{instance.server_port}/health"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert not is_healthy(url)
    status[0] = 200
    assert is_healthy(url)
    assert not is_healthy("http://127.0.0.1:1/health")
