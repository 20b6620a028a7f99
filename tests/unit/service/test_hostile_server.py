# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server whose answers are of no known shape, or that repeats the key: failed checks, JSON that can be kept, no secret."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.openai_client import Client
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.probe import ProbeSettings, probe
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.ready import health_url, is_healthy, is_strangers

pytestmark = pytest.mark.slow

KEY = "sk-SECRETSECRET"
DEEP = "[" * 100_000
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        5,
        -1,
        1.5,
        10**12,
        float("nan"),
        1e400,
        "x",
        "",
        "x" * 300_000,
        "\ud800",
        "a\nb",
        [],
        [1],
        [None],
        {},
    ),
    *({"content": 5}, {"content": [{"type": "text", "text": "x"}]}, {"content": "\ud800"}, {"content": "x" * 300_000}),
    *({"content": "x", "tool_calls": 5}, {"content": "x", "tool_calls": [5]}, {"tool_calls": [{"function": None}]}),
    {"tool_calls": [{"function": {"name": 5, "arguments": {}}}]},
    {"tool_calls": [{"index": [1], "function": {"name": "get_weather", "arguments": DEEP}}]},
)
MODELS: Any = {"data": [{"id": "m", "max_model_len": 4096}]}
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def completion(message: Any, usage: Any = None, reason: Any = "stop") -> Any:
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


class Replies:
    """Says the same to every question."""

    def __init__(self) -> None:
        self.url = ""
        self.models: Any = MODELS
        self.chat: Any = completion({"content": "Paris"})
        self.event: Any = {"choices": [{"delta": {"content": "Paris"}}]}
        self.status = 200


@pytest.fixture
def server() -> Iterator[Replies]:
    replies = Replies()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def reply(self, status: int, text: Any) -> None:
            body = text if isinstance(text, bytes) else json.dumps(text).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.reply(200, replies.models)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if replies.status != 200:
                key = (self.headers["Authorization"] or "").encode()
                self.reply(replies.status, replies.chat.replace(b"KEY", key))
            elif asked.get("stream"):
                event = replies.event if isinstance(replies.event, bytes) else json.dumps(replies.event).encode()
                self.reply(200, b"data: " + event + b"\n\ndata: [DONE]\n\n")
            else:
                self.reply(200, replies.chat)

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    replies.url = f"http://127.0.0.1:{running.server_port}"
    yield replies
    running.shutdown()
    running.server_close()
    thread.join()


def probed(server: Replies) -> str:
    """The result as it is handed on: strict JSON that can be written as UTF-8, of a size that a report has room for."""
    result = probe(Client(server.url, KEY, 5), ProbeSettings(speed_levels=(1,))).as_result()
    text = json.dumps(result, allow_nan=False, ensure_ascii=False)
    assert "SECRET" not in text and len(text.encode("utf-8")) < 500_000
    return text


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:30])
def test_any_part_of_an_answer_may_be_odd(server: Replies, odd: Any) -> None:
    counts = dict.fromkeys(COUNTS, odd)
    good = {"content": "Paris"}
    for chat, event in (
        (completion(odd), {"choices": [{"delta": odd}]}),
        (odd, odd),
        ({"choices": odd}, {"choices": odd}),
        ({"choices": [odd]}, {"choices": [odd]}),
        (completion(good, odd), {"choices": [{"delta": good}], "usage": odd}),
        (completion(good, counts, odd), {"choices": [{"delta": good, "finish_reason": odd}], "usage": counts}),
    ):
        server.chat, server.event = chat, event
        probed(server)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:30])
def test_the_list_of_models_may_be_odd(server: Replies, odd: Any) -> None:
    for models in (
        *(odd, {"data": odd}, {"data": [odd]}),
        *({"data": [{"id": odd, "max_model_len": 4096}]}, {"data": [{"id": "m", "max_model_len": odd}]}),
    ):
        server.models = models
        probed(server)


@pytest.mark.parametrize(
    "raw", [DEEP.encode(), b"\xff\xfe", b"", b"[1]", b'{"error": 5}', b'{"error": {"message": [1]}}']
)
def test_what_is_no_json(server: Replies, raw: bytes) -> None:
    server.chat = server.event = raw
    probed(server)
    server.models = raw
    probed(server)
    server.status = 500
    probed(server)


@pytest.mark.parametrize("body", [b'{"error": {"message": "no such key: KEY"}}', b"KEY <html>", b"KEY" * 200])
@pytest.mark.parametrize("status", [401, 500])
def test_a_key_that_the_server_repeats_is_not_told(server: Replies, body: bytes, status: int) -> None:
    server.status, server.chat = status, body
    assert "refused with status" in probed(server)


def test_a_key_in_an_answer_of_a_wrong_shape_is_not_told(server: Replies) -> None:
    server.chat, server.event = {"choices": KEY}, {"choices": [KEY]}
    told = probed(server)
    assert "is no chat completion" in told and "an event of the stream" in told
    server.models = {"data": KEY}
    assert "no list of models" in probed(server)


def test_a_key_may_have_blanks_within(server: Replies) -> None:
    assert Client(server.url, 'key of the $test "100%"', 5).get("/v1/models") == MODELS


@pytest.mark.parametrize("key", [KEY + "\n", KEY + " ", KEY + "\r\nX: y", " " + KEY, KEY + "\0", "é" + KEY])
def test_a_key_that_no_header_can_carry_is_never_shown(key: str) -> None:
    with pytest.raises(VllmHostError, match=rf"\({len(key)} characters\)") as caught:
        Client("http://127.0.0.1:1", key)
    assert caught.value.code == "api_key_invalid" and "SECRET" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "localhost:8000",
            "http://",
            "ftp://x",
            "http://h:99999",
            "http://h:abc",
            "http://a b",
            "http://h\n",
            "file:///x",
        ),
        *("http://user:SECRET@[::1", "http://user:SECRET@h:abc", "//user:SECRET@h", "http://user:SECRET@127.0.0.1:1"),
    ],
)
def test_an_url_that_is_none_is_named_without_its_password(url: str) -> None:
    for use in (Client, health_url, lambda url: is_strangers(url, "x.service")):
        with pytest.raises(VllmHostError) as caught:
            use(url)
        told = caught.value.message + json.dumps(caught.value.details)
        assert caught.value.code == "url_invalid" and "SECRET" not in told and "\n" not in told


@pytest.mark.parametrize("says", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00\xff" * 40, b""])
def test_who_does_not_speak_http_is_not_healthy(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _address = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(says)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert not is_healthy(f"http://127.0.0.1:{listener.getsockname()[1]}/health")
        thread.join()
