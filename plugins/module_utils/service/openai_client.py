# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small client of an OpenAI-compatible server: answers, streamed answers, and what went wrong in words.

The standard library suffices, so it runs under any Python of a host. The API key travels in a header only.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional
from urllib.parse import urlsplit

from ..errors import VllmHostError

_MAX_BODY = 32 << 20
_ERROR_CHARS = 500


class ApiError(Exception):
    """A request without a usable answer; ``kind`` is stable: refused, timeout, status, not_json, cut, shape."""

    def __init__(self, kind: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status


@dataclass
class Answer:
    """One chat completion, streamed or not.

    Args:
        content: text of the answer. reasoning: what a reasoning parser kept apart.
        tool_calls: ``[{"name": ..., "arguments": "<JSON text>"}]``.
        usage: token counts as the server reported them.
        seconds: until the last byte. first_token_seconds: until the first text, streamed answers only.
        last_token_seconds: until the last text, streamed answers only.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, str]] = field(default_factory=list)
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    first_token_seconds: Optional[float] = None
    last_token_seconds: Optional[float] = None


class Client:
    """Talks to one server.

    Args:
        url: base URL, ``http://127.0.0.1:8000`` (``/v1`` at its end is accepted).
        api_key: sent as a bearer token; empty for none.
        timeout: seconds for each request as a whole.

    Raises:
        VllmHostError: ``url_invalid``.
    """

    def __init__(self, url: str, api_key: str = "", timeout: float = 120.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise VllmHostError("url_invalid", f"'{url}' is no http or https URL.", url=url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else 80)
        path = parts.path.rstrip("/")
        self._prefix = path[: -len("/v1")] if path.endswith("/v1") else path
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self.timeout = timeout

    def get(self, path: str) -> Any:
        """GET a JSON document; raises ApiError."""
        with _Exchange(self, "GET", path, None) as exchange:
            return exchange.json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST JSON, get JSON; raises ApiError."""
        with _Exchange(self, "POST", path, body) as exchange:
            return exchange.json()

    def chat(self, body: Mapping[str, Any]) -> Answer:
        """One chat completion in one piece; raises ApiError."""
        started = time.monotonic()
        document = self.post("/v1/chat/completions", body)
        try:
            choice = document["choices"][0]
            message = choice["message"]
            answer = Answer(
                content=message.get("content") or "",
                # `reasoning` since vLLM 0.13, `reasoning_content` before.
                reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
                tool_calls=[_tool_call(call["function"]) for call in message.get("tool_calls") or []],
                finish_reason=choice.get("finish_reason") or "",
                usage=document.get("usage") or {},
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ApiError(
                "shape", f"the answer is no chat completion: {json.dumps(document)[:_ERROR_CHARS]}"
            ) from error
        answer.seconds = time.monotonic() - started
        return answer

    def stream(self, body: Mapping[str, Any]) -> Answer:
        """One chat completion as server-sent events, put together; raises ApiError, ``cut`` if the stream ends early."""
        started = time.monotonic()
        answer = Answer()
        calls: dict[int, dict[str, str]] = {}
        with _Exchange(self, "POST", "/v1/chat/completions", {**body, "stream": True, **_USAGE}) as exchange:
            for event in exchange.events():
                usage = event.get("usage")
                if usage:
                    answer.usage = usage
                for choice in event.get("choices") or []:
                    if self._add(answer, calls, choice):
                        now = time.monotonic() - started
                        answer.last_token_seconds = now
                        if answer.first_token_seconds is None:
                            answer.first_token_seconds = now
        answer.tool_calls = [calls[index] for index in sorted(calls)]
        answer.seconds = time.monotonic() - started
        return answer

    @staticmethod
    def _add(answer: Answer, calls: dict[int, dict[str, str]], choice: Mapping[str, Any]) -> bool:
        """Add a piece; whether it held text."""
        delta = choice.get("delta") or {}
        content = delta.get("content") or ""
        reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
        answer.content += content
        answer.reasoning += reasoning
        for call in delta.get("tool_calls") or []:
            known = calls.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
            function = call.get("function") or {}
            known["name"] += function.get("name") or ""
            known["arguments"] += function.get("arguments") or ""
        if choice.get("finish_reason"):
            answer.finish_reason = choice["finish_reason"]
        return bool(content or reasoning or delta.get("tool_calls"))


_USAGE = {"stream_options": {"include_usage": True}}


def _tool_call(function: Mapping[str, Any]) -> dict[str, str]:
    return {"name": function.get("name") or "", "arguments": function.get("arguments") or ""}


class _Exchange:
    """One request and its response, with a deadline for the whole of it."""

    def __init__(self, client: Client, method: str, path: str, body: Optional[Mapping[str, Any]]) -> None:
        self._client = client
        self._what = f"{method} {path}"
        self._deadline = time.monotonic() + client.timeout
        self._connection = (
            http.client.HTTPSConnection(
                client._host, client._port, timeout=client.timeout, context=ssl.create_default_context()
            )
            if client._secure
            else http.client.HTTPConnection(client._host, client._port, timeout=client.timeout)
        )
        self._method, self._path = method, client._prefix + path
        self._body = None if body is None else json.dumps(body).encode()

    def __enter__(self) -> _Exchange:
        try:
            try:
                self._connection.request(self._method, self._path, self._body, self._client._headers)
                self._response = self._connection.getresponse()
            except socket.timeout as error:
                raise self._timeout() from error
            except (OSError, http.client.HTTPException) as error:
                raise ApiError("refused", f"{self._what}: the server does not answer ({error})") from error
            if self._response.status != 200:
                text = self._read().decode("utf-8", "replace")
                raise ApiError(
                    "status",
                    f"{self._what} was refused with status {self._response.status}: {_reason(text)}",
                    self._response.status,
                )
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def json(self) -> Any:
        text = self._read()
        try:
            return json.loads(text)
        except ValueError as error:
            raise ApiError("not_json", f"{self._what}: the answer is no JSON: {text[:200]!r}") from error

    def events(self) -> Any:
        """The JSON documents of a stream of server-sent events, up to its end mark."""
        while True:
            self._arm()
            try:
                line = self._response.readline(_MAX_BODY)
            except socket.timeout as error:
                raise self._timeout() from error
            except (OSError, http.client.HTTPException) as error:
                raise ApiError("cut", f"{self._what}: the stream broke off ({error})") from error
            if not line:
                raise ApiError("cut", f"{self._what}: the stream ended without its end mark [DONE]")
            text = line.decode("utf-8", "replace").strip()
            if not text.startswith("data:"):
                continue
            data = text[len("data:") :].strip()
            if data == "[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError as error:
                raise ApiError(
                    "not_json", f"{self._what}: an event of the stream is no JSON: {data[:200]!r}"
                ) from error
            if "error" in event:
                raise ApiError("status", f"{self._what}: the stream reports an error: {_reason(data)}")
            yield event

    def _arm(self) -> None:
        """The time that is left is the time-out of the next read."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._timeout()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(left)

    def _read(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            while size < _MAX_BODY:
                self._arm()
                piece = self._response.read1(1 << 16)
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
                size += len(piece)
        except socket.timeout as error:
            raise self._timeout() from error
        except (OSError, http.client.HTTPException) as error:
            raise ApiError("cut", f"{self._what}: the answer broke off ({error})") from error
        raise ApiError("shape", f"{self._what}: the answer is larger than {_MAX_BODY >> 20} MiB")

    def _timeout(self) -> ApiError:
        return ApiError("timeout", f"{self._what}: not complete after {self._client.timeout:.0f} s")


def _reason(text: str) -> str:
    """The message of an error document, or its beginning."""
    try:
        document = json.loads(text)
        error = document.get("error", document)
        message = error.get("message") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        message = None
    return str(message or text)[:_ERROR_CHARS]
