"""A small OpenAI-compatible server on loopback that can be as wrong as real ones are."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "fake/model"
ANSWERS = (
    (r"capital of Japan", "The capital of Japan is Tokyo."),
    (r"capital of France", "The capital of France is Paris."),
    (r"formula of water", "It is H2O."),
    (r"7 \+ 5", "7 + 5 = 12"),
    (r"favourite fruit\?", "Your favourite fruit is the mango."),
    (r"fruit is the mango", "Mangos are delicious!"),
    (
        r"about the sea",
        "The sea is wide and never still. Waves roll on to the shore all day. Ships cross it under the stars of the night.",
    ),
    (r"apples", "She has 3 + 4 - 2 = 5 apples."),
    (
        r"Himmel",
        "Der Himmel ist blau, weil das Licht der Sonne in der Luft gestreut wird. Das blaue Licht wird am stärksten gestreut.",
    ),
    (r"code of the lighthouse\?", "7316"),
)
GARBAGE = "!" * 64
LOOP = "The sea is " + "very very deep and the sea is " * 40


class FakeServer:
    """Vices: garbage, empty, loop, wrong, cut_stream, slow, no_tool, tool_as_text, broken_arguments, wrong_usage, wrong_total, no_usage,
    other_stream, unstable, leaks_reasoning, no_reasoning, mixed_up, forgetful, weak, html, error_500, leaks_markup, refuses_long."""

    def __init__(self, *vices: str, reasoning: bool = False, api_key: str = "") -> None:
        self.vices = set(vices)
        self.reasoning = reasoning
        self.api_key = api_key
        self.requests: list[dict[str, Any]] = []
        self.count = 0
        self.url = ""
        self.max_model_len = 4096

    @contextlib.contextmanager
    def running(self) -> Iterator[FakeServer]:
        server = _Server(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def message(self, body: dict[str, Any]) -> dict[str, Any]:
        """The message of an answer."""
        question = body["messages"][-1]["content"]
        self.count += 1
        text = next((answer for pattern, answer in ANSWERS if re.search(pattern, question)), "A long story. ")
        message: dict[str, Any] = {"role": "assistant", "content": self.spoil(text, question, body)}
        if body.get("tools") and "no_tool" not in self.vices:
            arguments = '{"city": "Paris"' if "broken_arguments" in self.vices else '{"city": "Paris"}'
            if "tool_as_text" in self.vices:
                message["content"] = f"<|tool_call|>get_weather {arguments}"
            else:
                message |= {
                    "content": None,
                    "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": arguments}}],
                }
        if self.reasoning:
            if "leaks_reasoning" in self.vices:
                message["content"] = f"<think>Easy.</think>{message['content']}"
            elif "no_reasoning" not in self.vices:
                message["reasoning"] = "Easy."
        return message

    def spoil(self, text: str, question: str, body: dict[str, Any]) -> str:
        spoiled = {"garbage": GARBAGE, "empty": "", "loop": LOOP, "wrong": "I am not sure about this one."}
        for vice, instead in spoiled.items():
            if vice in self.vices:
                return instead
        if "mixed_up" in self.vices and len(self.requests) > 1 and self.count % 2 == 0:
            return "7 + 5 = 12" if "Japan" in question else "Tokyo"
        if "weak" in self.vices and "Japan" in question:
            return "The capital of Japan is Kyoto."
        if "forgetful" in self.vices and len(body["messages"]) > 1:
            return "I do not know."
        if "unstable" in self.vices:
            return f"{text} ({self.count})"
        if "leaks_markup" in self.vices:
            return text + "<|im_end|>"
        return text

    def usage(self, body: dict[str, Any]) -> dict[str, int]:
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        completion = body.get("max_tokens", 16) if body.get("ignore_eos") else 8
        if "wrong_usage" in self.vices:
            completion += 3
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion + (5 if "wrong_total" in self.vices else 0),
        }


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Clients that gave up are part of the tests."""


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/v1/models" and self.allowed():
                self.reply({"data": [{"id": MODEL, "max_model_len": fake.max_model_len}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.allowed():
                return
            if self.path == "/tokenize":
                text = body.get("prompt") or " ".join(message["content"] for message in body["messages"])
                self.reply({"count": len(text.split())})
                return
            fake.requests.append(body)
            if "slow" in fake.vices:
                time.sleep(1.5)
            if "error_500" in fake.vices:
                self.reply({"error": {"message": "CUDA error: an illegal memory access was encountered"}}, 500)
            elif "html" in fake.vices:
                self.reply_text("<html>gateway</html>")
            elif body.get("stream"):
                self.stream(body)
            else:
                message = fake.message(body)
                finish = "tool_calls" if message.get("tool_calls") else "stop"
                self.reply({"choices": [{"message": message, "finish_reason": finish}], "usage": fake.usage(body)})

        def allowed(self) -> bool:
            if fake.api_key and self.headers.get("Authorization") != f"Bearer {fake.api_key}":
                self.reply({"error": {"message": "Unauthorized"}}, 401)
                return False
            return True

        def reply(self, document: Any, status: int = 200) -> None:
            self.reply_text(json.dumps(document), status)

        def reply_text(self, text: str, status: int = 200) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            message = fake.message(body)
            text = message["content"] or ""
            if "other_stream" in fake.vices:
                text = text.replace("Tokyo", "Tokio")
            for piece in filter(None, [message.get("reasoning")]):
                self.event({"choices": [{"delta": {"reasoning": piece}}]})
            for index, piece in enumerate(re.findall(r"\S+\s*", text)):
                self.event({"choices": [{"delta": {"content": piece}}]})
                time.sleep(0.001)
                if "cut_stream" in fake.vices and index == 2:
                    return
            self.event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            if "no_usage" not in fake.vices:
                self.event({"choices": [], "usage": fake.usage(body)})
            self.wfile.write(b"data: [DONE]\n\n")

        def event(self, document: Any) -> None:
            self.wfile.write(f"data: {json.dumps(document)}\n\n".encode())
            self.wfile.flush()

    return Handler
