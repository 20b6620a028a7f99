# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints, tokens and proxies as they are mistyped, and answers that no Hub gives: named, and no secret shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.hub import Hub
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.retry import Gate, RetryPolicy
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError

SECRET = "hf_SECRETSECRETSECRET"
COMMIT = "a" * 40


def asked(endpoint: str, token: str = "", repo_id: str = "org/name") -> Any:
    hub = Hub(repo_id, endpoint, token, RetryPolicy(attempts=1, base_s=0.01, cap_s=0.01), 3.0, Gate())
    try:
        return hub.tree(hub.commit("main", 1))
    finally:
        hub.close()


def refusal(*args: Any, **options: Any) -> VllmHostError:
    with pytest.raises(VllmHostError) as caught:
        asked(*args, **options)
    error = caught.value
    told = error.message + json.dumps(error.details, allow_nan=False)
    assert "SECRET" not in told and "\n" not in error.message and len(error.message) < 600
    assert error.__cause__ is None or "SECRET" not in repr(error.__cause__)
    return error


class _Answers(BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        status, body, headers = next((self.answers[part] for part in self.answers if part in self.path), (404, b"", {}))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "token", [SECRET + "\n", SECRET + "\r\nX: y", SECRET + " ", " " + SECRET, SECRET + "\0", "é" + SECRET]
)
def test_a_token_that_no_header_can_carry_is_never_shown(endpoint: str, token: str) -> None:
    error = refusal(endpoint, token)
    assert error.code == "token_invalid" and f"({len(token)} characters)" in error.message


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "not a url",
            "ftp://x",
            "file:///etc/passwd",
            "http://",
            "http://a b",
            "http://x\n",
            "http://127.0.0.1:99999",
        ),
        *(
            "http://127.0.0.1:abc",
            "http://user:SECRET@[::1",
            "http://127.0.0.1/?token=SECRET",
            "http://127.0.0.1/#SECRET",
        ),
    ],
)
def test_an_endpoint_that_is_none_is_named(wrong: str) -> None:
    assert refusal(wrong).code == "endpoint_invalid"


def test_the_password_of_an_endpoint_is_not_shown() -> None:
    assert refusal("http://user:SECRET@127.0.0.1:1").code == "hub_unreachable"


@pytest.mark.parametrize(
    "proxy", ["socks9://user:SECRET@127.0.0.1:1", "http://user:SECRET@[::1", "http://user:SE/CRET@h:1"]
)
def test_a_proxy_that_is_none_is_named(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    assert refusal("https://hub.invalid").code in ("proxy_invalid", "hub_unreachable")


@pytest.mark.parametrize(
    "repo_id",
    ["../x", "a/b/c", "", "org/na me", "org/name\n", "org/ü", "org/n?x", "https://h/org/n", "/tmp/x", "o/" + "x" * 300],
)
def test_a_repository_that_is_none_is_named(endpoint: str, repo_id: str) -> None:
    assert refusal(endpoint, repo_id=repo_id).code == "repo_id_invalid"


@pytest.mark.parametrize("answer", [b"[]", b'{"sha": 5}', b"null", b"[" * 100_000, b"\xff", b""])
def test_a_commit_that_is_none(endpoint: str, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Answers, "answers", {"revision": (200, answer, {})})
    assert refusal(endpoint).code in ("hub_answer_invalid", "hub_failed")


def listed(**changes: Any) -> bytes:
    return json.dumps([{"type": "file", "path": "config.json", "size": 1, "oid": "a" * 40, **changes}]).encode()


@pytest.mark.parametrize(
    "answer",
    [
        *(b"{}", b'"x"', b"[1]", b"null", b"[" * 100_000),
        *(listed(oid=5), listed(oid=None), listed(size=True), listed(size="1"), listed(size=-1), listed(size=1.5)),
        *(listed(path="../x"), listed(path=None), listed(lfs={"oid": 5}, oid=None)),
    ],
)
def test_a_list_that_is_none(endpoint: str, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = (200, json.dumps({"sha": COMMIT}).encode(), {})
    monkeypatch.setattr(_Answers, "answers", {"revision": commit, "tree": (200, answer, {})})
    found = None
    try:
        found = asked(endpoint)
    except VllmHostError as error:
        assert error.code in ("hub_answer_invalid", "hub_failed", "tree_invalid", "unsafe_path")
    assert not found or [file.path for file in found] == ["None"]


@pytest.mark.parametrize(
    "following", ["http://[::1", "http://user:SECRET@127.0.0.1:1/x?sig=SECRET", "http://h:999999/"]
)
def test_the_next_page_is_somewhere_else(endpoint: str, following: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = (200, json.dumps({"sha": COMMIT}).encode(), {})
    page = (200, b"[]", {"Link": f'<{following}>; rel="next"'})
    monkeypatch.setattr(_Answers, "answers", {"revision": commit, "tree": page})
    assert refusal(endpoint).code in ("hub_answer_invalid", "hub_unreachable")


@pytest.mark.parametrize("headers", [{"Retry-After": "9" * 400}, {"RateLimit": f'"api";r=0;t={"9" * 400}'}])
def test_a_wait_without_end_is_a_number(
    endpoint: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Answers, "answers", {"revision": (429, b"", headers)})
    assert refusal(endpoint).code == "rate_limited"
