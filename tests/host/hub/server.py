"""The HTTP side: the Hub's endpoints, and the storage ("CDN") that it redirects large files to."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from .faults import Faults
from .repositories import HashCache, Repository


@dataclass(frozen=True)
class Seen:
    """One request, for assertions: what was asked of whom, and whether a token came with it."""

    origin: str  # "hub" or "cdn"
    method: str
    path: str
    range: str | None
    authorized: bool
    status: int | None


class Hub:
    """Serves ``root`` on ``listen``; large files come from a second port of the same address, as from a CDN.

    Use it as a context manager. Change ``faults``, ``tokens``, ``gated``, ``private`` and ``repository(id).refs`` at any time.
    """

    def __init__(
        self,
        root: Path,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        *,
        page_size: int = 1000,
        url_lifetime_s: float = 3600.0,
        separate_cdn: bool = True,
        hashes: Path | None = None,
    ) -> None:
        from .handler import CdnHandler, HubHandler

        self.root = root
        self.page_size = page_size
        self.url_lifetime_s = url_lifetime_s
        self.faults = Faults()
        self.tokens: dict[str, str] = {}  # token -> user; with none, every token is refused
        self.gated: dict[str, set[str]] = {}  # repository -> users whose request was granted
        self.private: set[str] = set()
        self.xet_hashes: dict[str, str] = {}  # sha256 -> name in Xet storage, for files that are there too
        self.xet_storage = ""  # URL of that storage; hf_xet takes a folder too, as local://PATH
        self.seen: list[Seen] = []
        self.hashes = HashCache(hashes or root / ".hashes")
        self._repositories: dict[str, Repository] = {}
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(16)
        self._servers = [_Server(listen, HubHandler, self)]
        if separate_cdn:
            self._servers.append(_Server((listen[0], 0), CdnHandler, self))
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in self._servers
        ]

    @property
    def endpoint(self) -> str:
        return self._servers[0].origin

    @property
    def cdn(self) -> str:
        return self._servers[-1].origin

    def start(self) -> Hub:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Hub:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def repository(self, repo_id: str) -> Repository:
        with self._lock:
            if repo_id not in self._repositories:
                self._repositories[repo_id] = Repository(self.root, repo_id, self.hashes)
            return self._repositories[repo_id]

    def signed_path(self, repo_id: str, sha256: str) -> str:
        expires = str(time.time() + self.url_lifetime_s)
        return (
            f"/repos/{repo_id}/{sha256}?Expires={expires}&Key-Pair-Id=HUB&Signature={self._signature(sha256, expires)}"
        )

    def is_signed(self, sha256: str, expires: str, signature: str) -> bool:
        genuine = hmac.compare_digest(signature, self._signature(sha256, expires))
        return genuine and float(expires) > time.time()

    def _signature(self, sha256: str, expires: str) -> str:
        return hmac.new(self._key, f"{sha256} {expires}".encode(), hashlib.sha256).hexdigest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, listen: tuple[str, int], handler: Any, hub: Hub) -> None:
        super().__init__(listen, handler)
        self.hub = hub

    @property
    def origin(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in mid-answer is what these tests are about: no traceback."""
