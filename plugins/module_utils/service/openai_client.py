# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small client of an OpenAI-compatible server: answers, streamed answers, and what went wrong in words.

The standard library suffices, so it runs under any Python of a host. The API key travels in a header only.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from ..errors import VllmHostError
from .urls import server_port, server_url

_MAX_BODY = 32 << 20
_ERROR_CHARS = 500
#: More tokens than any model takes: what is beyond is no count.
_MOST_TOKENS = 1 << 24


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
        VllmHostError: ``url_invalid``, ``api_key_invalid``.
    """

    def __init__(self, url: str, api_key: str = "", timeout: float = 120.0) -> None:
        parts = server_url(url)
        if not re.fullmatch(r"([!-~]([ -~]*[!-~])?)?", api_key):
            raise VllmHostError(
                "api_key_invalid",
                f"The API key ({len(api_key)} characters) has a line break or another character that no header can carry, or a blank at its"
                " beginning or end. Give the key alone (vllm_api_key).",
            )
        self._secure = parts.scheme == "https"
        self._host = str(parts.hostname)
        self._port = server_port(parts)
        path = parts.path.rstrip("/")
        self._prefix = path[: -len("/v1")] if path.endswith("/v1") else path
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._api_key = api_key
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self.timeout = timeout

    def told(self, text: str) -> str:
        """What a server said, for messages and reports: some repeat the key that they refuse."""
        return text.replace(self._api_key, "...") if self._api_key else text

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
                content=_words(message, "content"),
                # `reasoning` since vLLM 0.13, `reasoning_content` before.
                reasoning=_words(message, "reasoning") or _words(message, "reasoning_content"),
                tool_calls=[_tool_call(call["function"]) for call in message.get("tool_calls") or []],
                finish_reason=_words(choice, "finish_reason"),
                usage=_usage(document),
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ApiError(
                "shape", f"the answer is no chat completion: {self.told(json.dumps(document))[:_ERROR_CHARS]}"
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
                answer.usage = _usage(event) or answer.usage
                for choice in _choices(event):
                    if self._added(answer, calls, choice):
                        now = time.monotonic() - started
                        answer.last_token_seconds = now
                        if answer.first_token_seconds is None:
                            answer.first_token_seconds = now
        answer.tool_calls = [calls[index] for index in sorted(calls)]
        answer.seconds = time.monotonic() - started
        return answer

    def _added(self, answer: Answer, calls: dict[int, dict[str, str]], choice: Any) -> bool:
        try:
            return self._add(answer, calls, choice)
        except (KeyError, TypeError, AttributeError) as error:
            raise ApiError(
                "shape", f"an event of the stream is no chat completion: {self.told(json.dumps(choice))[:_ERROR_CHARS]}"
            ) from error

    @staticmethod
    def _add(answer: Answer, calls: dict[int, dict[str, str]], choice: Mapping[str, Any]) -> bool:
        """Add a piece; whether it held text."""
        delta = choice.get("delta") or {}
        content = _words(delta, "content")
        reasoning = _words(delta, "reasoning") or _words(delta, "reasoning_content")
        answer.content += content
        answer.reasoning += reasoning
        for call in delta.get("tool_calls") or []:
            known = calls.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
            function = call.get("function") or {}
            known["name"] += _words(function, "name")
            known["arguments"] += _words(function, "arguments")
        answer.finish_reason = _words(choice, "finish_reason") or answer.finish_reason
        return bool(content or reasoning or delta.get("tool_calls"))


_USAGE = {"stream_options": {"include_usage": True}}


def _tool_call(function: Mapping[str, Any]) -> dict[str, str]:
    return {"name": _words(function, "name"), "arguments": _words(function, "arguments")}


def _words(part: Mapping[str, Any], key: str) -> str:
    """A text, empty when it is not there; TypeError for anything else."""
    found = part.get(key)
    if found is not None and not isinstance(found, str):
        raise TypeError(f"{key} is no text")
    return (found or "").encode("utf-8", "replace").decode()  # half a character can be written nowhere


def _usage(document: Mapping[str, Any]) -> dict[str, Any]:
    """Counts as the server reports them; what is no count is left out."""
    found = document.get("usage")
    counts = found if isinstance(found, dict) else {}
    return {name: count for name, count in counts.items() if not name.endswith("_tokens") or is_count(count)}


def is_count(found: Any) -> bool:
    """Whether it is a number of tokens."""
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _MOST_TOKENS


def _parsed(text: Union[str, bytes]) -> Any:
    """JSON, in which what is no number of JSON is null."""
    return json.loads(text, parse_constant=lambda _word: None, parse_float=_finite)


def _finite(digits: str) -> Optional[float]:
    number = float(digits)
    return number if math.isfinite(number) else None


def _choices(event: Mapping[str, Any]) -> list[Any]:
    found = event.get("choices")
    return found if isinstance(found, list) else []


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
                text = self._client.told(self._read().decode("utf-8", "replace"))
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
            return _parsed(text)
        except (ValueError, RecursionError) as error:
            shown = self._client.told(text.decode("utf-8", "replace"))[:200]
            raise ApiError("not_json", f"{self._what}: the answer is no JSON: {shown!r}") from error

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
                event = _parsed(data)
            except (ValueError, RecursionError) as error:
                raise ApiError(
                    "not_json", f"{self._what}: an event of the stream is no JSON: {self._client.told(data)[:200]!r}"
                ) from error
            if not isinstance(event, dict):
                raise ApiError(
                    "shape", f"{self._what}: an event of the stream is no object: {self._client.told(data)[:200]!r}"
                )
            if "error" in event:
                raise ApiError(
                    "status", f"{self._what}: the stream reports an error: {_reason(self._client.told(data))}"
                )
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
        document = _parsed(text)
        error = document.get("error", document)
        message = error.get("message") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError, RecursionError):
        message = None
    return str(message or text)[:_ERROR_CHARS]
