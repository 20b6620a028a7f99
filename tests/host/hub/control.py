"""Faults from outside the process: a few JSON endpoints on loopback, for test-host scenarios."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .server import Hub


class Control:
    """``/faults`` (GET counts, PUT a list of rules, DELETE all), ``/seen`` (GET, DELETE), ``/refs`` (PUT repository -> branch -> revision),
    ``/access`` (PUT tokens, gated, private)."""

    def __init__(self, hub: Hub, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        if not ipaddress.ip_address(listen[0]).is_loopback:
            raise ValueError(f"the control endpoint listens on loopback only, not on {listen[0]}")
        self._server = ThreadingHTTPServer(listen, type("Handler", (_ControlHandler,), {"hub": hub}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> Control:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _ControlHandler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        if self.path == "/faults":
            self._reply(200, self.hub.faults.counts())
        elif self.path == "/seen":
            self._reply(200, [dataclasses.asdict(seen) for seen in self.hub.seen])
        else:
            self._reply(404, {"error": "/faults, /seen, /refs or /access"})

    def do_PUT(self) -> None:
        try:
            given = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            if self.path == "/faults":
                self.hub.faults.replace(given)
            elif self.path == "/refs":
                for repo_id, refs in given.items():
                    self.hub.repository(repo_id).refs = refs
            elif self.path == "/access":
                self.hub.tokens = given.get("tokens", {})
                self.hub.gated = {repo_id: set(users) for repo_id, users in given.get("gated", {}).items()}
                self.hub.private = set(given.get("private", []))
            else:
                self._reply(404, {"error": "/faults, /refs or /access"})
                return
        except (TypeError, ValueError) as error:
            self._reply(400, {"error": str(error)})
            return
        self._reply(200, {})

    def do_DELETE(self) -> None:
        if self.path == "/faults":
            self.hub.faults.clear()
        elif self.path == "/seen":
            self.hub.seen.clear()
        self._reply(200, {})

    def _reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
