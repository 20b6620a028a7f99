# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's checkpoints for the others: ``python -m gpuhost_vllm.checkpoint.serve --listen ADDRESS:PORT``.

Speaks as much of the Hub's protocol as ``hub.Hub`` asks for, so to the other hosts it is an endpoint: resumed and proved like any other. Serves complete
snapshots of the store, reads only, and beyond loopback nobody without the token.
"""

from __future__ import annotations

import argparse
import hmac
import ipaddress
import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import VllmHostError
from .manifest import Manifest, ManifestFile
from .store import Store
from .tree import SHA1

REPOSITORY = r"(?P<repo>[^/]+/[^/]+)"
INFO = re.compile(rf"/api/models/{REPOSITORY}(?:/revision/(?P<revision>[^/]+))?$")
TREE = re.compile(rf"/api/models/{REPOSITORY}/tree/(?P<revision>[^/]+)$")
RESOLVE = re.compile(rf"/{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)$")
RANGE = re.compile(r"bytes=(\d+)-(\d*)$")
IDLE_S = 60.0  # a client that takes no byte for so long is gone


class Refused(Exception):
    """An answer in the Hub's codes, by which huggingface_hub tells what is not there."""

    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class StoreServer(ThreadingHTTPServer):
    """Args:
    token: empty for none, on loopback only.

    Raises:
        VllmHostError: ``store_needs_token``, ``store_address_invalid``.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, root: Path, address: str, port: int, token: str) -> None:
        try:
            is_loopback = ipaddress.ip_address(address).is_loopback
        except ValueError:
            raise VllmHostError(
                "store_address_invalid", f"--listen {address}:{port}: give an IPv4 address of this host and a port."
            ) from None
        if not token and not is_loopback:
            raise VllmHostError(
                "store_needs_token",
                f"--listen {address}:{port} is not loopback, and no token was given: anybody could read the checkpoints. Give --token-file.",
            )
        self.root = root
        self.token = token
        super().__init__((address, port), StoreHandler)


class StoreHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_S
    server: StoreServer

    def do_GET(self) -> None:
        try:
            self._require_token()
            self._answer(unquote(urlsplit(self.path).path))
        except Refused as refused:
            self._reply(refused.status, b"", {"X-Error-Code": refused.code} if refused.code else {})
        except OSError:
            self.close_connection = True  # the client went away, or the file did: the client finds bytes missing

    do_HEAD = do_GET

    def _require_token(self) -> None:
        token = self.server.token
        if token and not hmac.compare_digest(
            self.headers.get("Authorization", "").encode(), f"Bearer {token}".encode()
        ):
            raise Refused(401)

    def _answer(self, path: str) -> None:
        for route, answer in ((TREE, self._tree), (INFO, self._info), (RESOLVE, self._resolve)):
            found = route.match(path)
            if found:
                answer(found)
                return
        raise Refused(404)

    def _info(self, found: re.Match[str]) -> None:
        manifest = self._snapshot(found)[1]
        self._reply_json({"id": manifest.repo_id, "sha": manifest.commit, "siblings": []})

    def _tree(self, found: re.Match[str]) -> None:
        """The whole commit, also what this host left out: the other host must not take a part for all."""
        store, manifest = self._snapshot(found)
        listed = []
        for file in store.read_tree(manifest.commit) or []:
            entry: dict[str, Any] = {"type": "file", "path": file.path, "size": file.size, "oid": file.git_oid}
            if file.sha256:
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n"
                entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": len(pointer)}
            listed.append(entry)
        self._reply_json(listed)

    def _resolve(self, found: re.Match[str]) -> None:
        store, manifest = self._snapshot(found)
        file = manifest.files.get(found["path"])
        if file is None:
            raise Refused(404, "EntryNotFound")
        with (store.snapshot(manifest.commit) / file.path).open("rb", buffering=0) as stream:
            self._send_file(stream, file, manifest.commit)

    def _send_file(self, stream: Any, file: ManifestFile, commit: str) -> None:
        asked = RANGE.match(self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        end = min(int(asked[2]) + 1, file.size) if asked and asked[2] else file.size
        if asked and start >= end:
            raise Refused(416)
        headers = {"ETag": f'"{file.digest}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        self._start(206 if asked else 200, end - start, headers)
        if self.command == "GET" and start < end and self.connection.sendfile(stream, start, end - start) < end - start:
            self.close_connection = True  # the file is shorter than it was

    def _snapshot(self, found: re.Match[str]) -> tuple[Store, Manifest]:
        """The complete snapshot that repository and revision mean."""
        try:
            store = Store(self.server.root, found["repo"])
            revision = found["revision"] or "main"
            commit = revision if SHA1.fullmatch(revision) else store.read_ref(revision)
            manifest = store.manifest(commit) if commit else None
        except VllmHostError:
            raise Refused(404, "RepoNotFound") from None
        if not store.commits():
            raise Refused(404, "RepoNotFound")
        if manifest is None or not manifest.complete:
            raise Refused(404, "RevisionNotFound")
        return store, manifest

    def _reply_json(self, value: Any) -> None:
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._start(status, len(body), headers)
        if self.command == "GET":
            self.wfile.write(body)

    def _start(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


def read_token(path: str) -> str:
    """Raises VllmHostError: ``token_file_unreadable``."""
    if not path:
        return ""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise VllmHostError(
            "token_file_unreadable",
            f"--token-file {path} cannot be read: {getattr(error, 'strerror', None) or 'not ASCII'}.",
        ) from error
    if not token:
        raise VllmHostError("token_file_unreadable", f"--token-file {path} is empty.")
    return token


def main() -> int:
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    credential = str(Path(credentials) / "token") if credentials else ""
    parser = argparse.ArgumentParser(prog="python -m gpuhost_vllm.checkpoint.serve", description=__doc__)
    parser.add_argument("--store", default="/var/lib/vllm/checkpoints", help="folder of the checkpoints (%(default)s)")
    parser.add_argument("--listen", default="127.0.0.1:8190", metavar="ADDRESS:PORT", help="(%(default)s)")
    parser.add_argument("--token-file", default=credential, help="or the credential 'token' of a systemd unit")
    options = parser.parse_args()
    address, colon, port = options.listen.rpartition(":")
    try:
        if not (colon and port.isdecimal()):
            raise VllmHostError("store_address_invalid", f"--listen {options.listen}: give ADDRESS:PORT.")
        server = StoreServer(Path(options.store), address, int(port), read_token(options.token_file))
    except VllmHostError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    sys.stderr.write(f"serving {options.store} at http://{address}:{server.server_port}\n")
    with server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
