# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talking to a Hub: which commit, which files, and the bytes of one file from an offset.

huggingface_hub builds URLs and headers and names the errors; its HTTP client (httpx2) moves the bytes. What huggingface_hub itself does
not do is here: time-outs on every request, one retry policy for all of them, and no secret in any message.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

try:
    import httpx2
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status
except ImportError as error:
    # Only the tools environment has them (role tools); the file itself must be importable everywhere.
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

from ..errors import VllmHostError
from .retry import LONGEST_WAIT_S, RETRIED_STATUSES, Gate, RetryPolicy, wait_as_told
from .tree import SHA1, SHA256, TreeFile, require_repo_id, tree_file

PUBLIC_ENDPOINT = "https://huggingface.co"
MOST_REDIRECTS = 10
CONNECT_TIMEOUT_S = 10.0
DIRECT_BYTES = 1 << 20  # from this size on a body comes straight from its socket
CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)$")


class Trouble(Exception):
    """One attempt failed; another may succeed.

    Attributes:
        reason: for people, without secrets.
        reached: the server answered at all.
        restart: what was received is of no use: begin at byte 0.
        counts: against the attempts in a row that a file has.
    """

    counts = True

    def __init__(self, reason: str, reached: bool = True, restart: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.reached = reached
        self.restart = restart


class HubUnreachable(VllmHostError):
    """Nobody answers, or only with failures of the server: what the store already holds may still do."""


class Hub:
    """One endpoint and one repository. Safe to use from several threads.

    Args:
        endpoint: URL; empty means huggingface.co.
        token: empty for none.
        timeout_s: longest silence while connecting, or between two pieces of an answer.
    """

    def __init__(
        self, repo_id: str, endpoint: str, token: str, policy: RetryPolicy, timeout_s: float, gate: Gate
    ) -> None:
        self.repo_id = repo_id
        self.endpoint = (endpoint or PUBLIC_ENDPOINT).rstrip("/")
        require_repo_id(repo_id)
        _require_endpoint(self.endpoint)
        _require_token(token)
        self.policy = policy
        self.gate = gate
        self.notes: set[str] = set()
        self._token = token
        self.timeout_s = timeout_s
        self.headers = build_hf_headers(token=token or False, library_name="gpuhost.vllm")
        # Both log every URL, signed ones included, at INFO.
        for name in ("httpx2", "httpcore2", "huggingface_hub"):
            logging.getLogger(name).setLevel(logging.ERROR)
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            self._client = httpx2.Client(timeout=timeout, limits=httpx2.Limits(max_connections=None))
        except (ValueError, httpx2.InvalidURL):
            raise VllmHostError(
                "proxy_invalid",
                "A proxy of the environment (http_proxy, https_proxy or all_proxy) is no URL such as http://user:password@host:3128."
                " Correct it; characters like @, : and / in the password are written %40, %3A and %2F.",
            ) from None  # the cause shows the URL, password and all

    def close(self) -> None:
        self._client.close()

    @property
    def name(self) -> str:
        """The endpoint without credentials, for messages."""
        return public_url(self.endpoint)

    def commit(self, revision: str, attempts: int) -> str:
        """The commit that a branch, tag or commit means now."""
        answer = self._api(f"/revision/{quote(revision, safe='')}", attempts=attempts).json()
        sha = answer.get("sha") if isinstance(answer, dict) else None
        if not isinstance(sha, str) or not SHA1.fullmatch(sha):
            raise VllmHostError(
                "hub_answer_invalid",
                f"{self.name} does not say which commit {revision!r} of {self.repo_id} is. It is not a Hub, or a mirror that "
                "leaves out what is needed to pin a revision: give the commit as revision, or use another endpoint.",
                endpoint=self.name,
            )
        return sha

    def tree(self, commit: str) -> list[TreeFile]:
        """All files of a commit, all pages; never a part of them."""
        files: list[TreeFile] = []
        page: httpx2.Response = self._api(f"/tree/{commit}", {"recursive": "true", "expand": "false"})
        while True:
            listed = page.json()
            if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
                raise self._no_list()
            files += [_listed(item) for item in listed if item.get("type") == "file"]
            following = page.links.get("next", {}).get("url")
            if not following:
                return files
            try:
                url = urljoin(str(page.url), following)
                origin(url)
            except ValueError:
                raise self._no_list() from None
            page = self._api(None, url=url)

    def _no_list(self) -> VllmHostError:
        return VllmHostError(
            "hub_answer_invalid",
            f"{self.name} answers with something that is no list of the files of {self.repo_id}. It is not a Hub, or a mirror that"
            " does not speak its protocol in full: use another endpoint.",
            endpoint=self.name,
        )

    def _api(
        self, path: str | None, params: dict[str, str] | None = None, url: str = "", attempts: int | None = None
    ) -> httpx2.Response:
        """GET from the API, with retries; the answer is JSON.

        Raises:
            HubUnreachable: after the last attempt. VllmHostError: at once, for what no retry cures.
        """
        url = url or f"{self.endpoint}/api/models/{self.repo_id}{path}"
        attempts = attempts or self.policy.attempts
        failures = 0
        while True:
            try:
                with self._send(url, {}, params) as response:
                    response.read()
                response.json()
                return response
            except (ValueError, RecursionError):
                trouble = Trouble(f"{self.name} answers with something that is not JSON: not a Hub, or a proxy's page")
            except Trouble as raised:
                trouble = raised
            failures += 1
            if failures >= attempts or not self.gate.wait(self.policy.pause_s(failures)):
                code = "hub_failed" if trouble.reached else "hub_unreachable"
                raise HubUnreachable(
                    code,
                    f"{trouble.reason}; {failures} attempts. Check the endpoint, the proxy and the network, and run again.",
                    endpoint=self.name,
                    reason=trouble.reason,
                )

    def file_url(self, file: TreeFile, commit: str) -> str:
        return hf_hub_url(self.repo_id, file.path, revision=commit, endpoint=self.endpoint)

    def xet_hash(self, file: TreeFile, commit: str) -> str | None:
        """The name of a file in Xet storage; None if it is not there, or the Hub does not say: then plain HTTP tells why."""
        try:
            answer = self._client.head(self.file_url(file, commit), headers=self.headers)
        except httpx2.HTTPError:
            return None
        found: str = answer.headers.get(constants.HUGGINGFACE_HEADER_X_XET_HASH, "")
        return found if SHA256.fullmatch(found) else None

    @contextmanager
    def content(self, file: TreeFile, commit: str, start: int, location: str | None) -> Iterator[Content]:
        """The bytes of a file from ``start``.

        Args:
            location: a signed URL from an earlier call, to save a request; a refusal of it raises Trouble, and then it is to be dropped.

        Raises:
            Trouble: for what another attempt may cure. VllmHostError: for what none does.
        """
        url = location or self.file_url(file, commit)
        wanted = {"Range": f"bytes={start}-"} if start else {}
        with self._send(url, wanted, None, file, commit) as response:
            yield Content(response, file, start, self.timeout_s)

    @contextmanager
    def _send(
        self,
        url: str,
        headers: dict[str, str],
        params: dict[str, str] | None,
        file: TreeFile | None = None,
        commit: str = "",
    ) -> Iterator[httpx2.Response]:
        """One GET, redirects followed by hand: the token goes to the endpoint's own origin only."""
        for _redirect in range(MOST_REDIRECTS):
            own = origin(url) == origin(self.endpoint)
            sent = {**(self.headers if own else {"User-Agent": self.headers["user-agent"]}), **headers}
            sent["Accept-Encoding"] = "identity"
            try:
                request = self._client.build_request("GET", url, headers=sent, params=params)
                response = self._client.send(request, stream=True)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise Trouble(f"{public_url(url)}: {self._say(error)}", reached=False) from None
            try:
                if file:
                    self._compare_with_tree(response, file, commit)
                if response.has_redirect_location:
                    url, params = urljoin(str(response.url), response.headers["Location"]), None
                    continue
                self._raise_for_status(response, own)
                yield response
                return
            except httpx2.HTTPError as error:
                raise Trouble(f"{public_url(url)}: {self._say(error)}") from None
            finally:
                response.close()
        raise Trouble(f"{self.name}: more than {MOST_REDIRECTS} redirects")

    def _compare_with_tree(self, response: httpx2.Response, file: TreeFile, commit: str) -> None:
        """Headers of a mirror may be wrong or missing; what counts are the tree's digests. Say so once."""
        if origin(str(response.request.url)) != origin(self.endpoint) or response.status_code >= 400:
            return
        said = response.headers.get("X-Repo-Commit")
        if said is None:
            self.notes.add(
                f"{self.name} sends no X-Repo-Commit: a mirror? Every file is checked against the digests of the commit's tree"
            )
        elif said != commit:
            self.notes.add(
                f"{self.name} says that its files are of commit {said[:40]!r}; the digests of commit {commit} decide"
            )
        etag = (
            (response.headers.get("X-Linked-Etag") or response.headers.get("ETag") or "").removeprefix("W/").strip('"')
        )
        if etag and etag != file.digest:
            self.notes.add(
                f"{self.name} announces another digest for {file.path} than the commit's tree; the tree decides"
            )

    def _raise_for_status(self, response: httpx2.Response, own: bool) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        where = public_url(str(response.url))
        wait_s = wait_as_told(response.headers) if status in (429, 503) else None
        if wait_s is not None:
            if wait_s > LONGEST_WAIT_S:
                raise VllmHostError(
                    "rate_limited",
                    f"{where} asks to wait {wait_s:.0f} s. Run again after that, with fewer workers or hosts at once, or with a token.",
                    wait_s=wait_s,
                )
            self.gate.close_for(wait_s)
        if status in RETRIED_STATUSES:
            raise Trouble(f"{where} answers {status}")
        if status == 416:
            raise Trouble(f"{where} has no such range", restart=True)
        if not own:
            # A signed URL that expired, or storage that lost the file: ask the Hub for a new one.
            raise Trouble(f"storage at {where} answers {status}")
        try:
            response.read()
            hf_raise_for_status(response)
        except HfHubHTTPError as error:
            raise self._refusal(error, status) from None
        except httpx2.HTTPError as error:
            raise Trouble(f"{where}: {self._say(error)}") from None
        raise Trouble(f"{where} answers {status}")

    def _refusal(self, error: HfHubHTTPError, status: int) -> VllmHostError:
        """What the Hub means by refusing, and what to do."""
        repo, name = self.repo_id, self.name
        token_said = f"the token ({len(self._token)} characters)" if self._token else "no token"
        if isinstance(error, GatedRepoError):
            if self._token:
                return VllmHostError(
                    "repo_gated",
                    f"{repo} is gated, and the owner of the token has not been granted access. Ask for it on the model's page at {name}.",
                    repo_id=repo,
                    status=status,
                )
            return VllmHostError(
                "repo_gated",
                f"{repo} is gated, and no token was given. Ask for access on the model's page at {name}, and give a token.",
                repo_id=repo,
                status=status,
            )
        if isinstance(error, RevisionNotFoundError):
            return VllmHostError(
                "revision_not_found", f"{repo} at {name} has no such revision.", repo_id=repo, status=status
            )
        if isinstance(error, EntryNotFoundError):
            return VllmHostError(
                "file_not_found",
                f"{public_url(str(error.response.url))}: {name} has no such file.",
                repo_id=repo,
                status=status,
            )
        if status == 401 and self._token:
            return VllmHostError(
                "token_refused",
                f"{name} refuses the token that was given: it is wrong, expired or revoked. Make a new one in the account's settings.",
                repo_id=repo,
                status=status,
            )
        if status == 401 or isinstance(error, RepositoryNotFoundError) or status == 404:
            return VllmHostError(
                "repo_not_found",
                f"{name} has no repository {repo}, or it is private and {token_said} gives access to it. Check the name and the token.",
                repo_id=repo,
                status=status,
            )
        if status == 403:
            return VllmHostError(
                "access_denied",
                f"{name} forbids access to {repo} with {token_said}. The token needs read access to this repository.",
                repo_id=repo,
                status=status,
            )
        return VllmHostError("hub_refused", f"{name} answers {status} for {repo}.", repo_id=repo, status=status)

    def _say(self, error: Exception) -> str:
        """An exception of the HTTP client in words; without queries of URLs, in which signatures stand, and without the token."""
        text = re.sub(r"\?\S+", "?…", str(error))
        if self._token:
            text = text.replace(self._token, "…")
        return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Content:
    """An answer with the bytes of a file.

    Attributes:
        start: offset of its first byte.
        location: the URL that gave it, to be used again.
    """

    def __init__(self, response: httpx2.Response, file: TreeFile, asked: int, timeout_s: float) -> None:
        self._response = response
        self._timeout_s = timeout_s
        self._file = file
        self.location = str(response.url)
        self.start = 0
        where = public_url(self.location)
        if response.status_code == 206:
            found = CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            if not found or int(found[1]) != asked or found[3] not in (str(file.size), "*"):
                raise Trouble(f"{where} answers with another range than the one asked for", restart=True)
            self.start = asked
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise Trouble(f"{where} sends the file encoded, although it was asked not to")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) != file.size - self.start:
            raise Trouble(f"{where} announces {length} bytes where {file.size - self.start} are left", restart=True)
        self._left = file.size - self.start
        self._pieces = response.iter_raw()
        self._waiting = memoryview(next(self._pieces, b""))
        self._socket = self._bare_socket(length)

    def read_into(self, view: memoryview) -> int:
        """Put the next bytes into ``view``; returns how many, 0 at the end of the answer.

        Raises:
            Trouble: for silence, a broken connection, and for more bytes than the file has.
        """
        if not self._waiting and self._socket:
            return self._receive_into(self._socket, view[: self._left]) if self._left else 0
        if not self._waiting:
            self._waiting = memoryview(next(self._pieces, b""))
        if len(self._waiting) > self._left:
            raise Trouble(
                f"{public_url(self.location)} sends more than the file's {self._file.size} bytes", restart=True
            )
        count = min(len(view), len(self._waiting))
        view[:count] = self._waiting[:count]
        self._waiting = self._waiting[count:]
        self._left -= count
        return count

    def _bare_socket(self, length: str) -> socket.socket | None:
        """The connection's socket, if nothing but the rest of a large body comes from it.

        The client hands a body over in pieces of 64 KiB, each copied several times: twice the processor time (docs/benchmarks/checkpoint_fetch.md).
        Its first piece is all that came with the header.
        """
        headers = self._response.headers
        if not length.isdecimal() or "Transfer-Encoding" in headers or self._response.http_version != "HTTP/1.1":
            return None
        if self._left - len(self._waiting) < DIRECT_BYTES:
            return None
        stream = self._response.extensions["network_stream"]
        bare: socket.socket = stream.get_extra_info("socket")
        # TLS through a proxy that itself speaks TLS has a second layer above its socket.
        if getattr(bare, "_sslobj", None) is not stream.get_extra_info("ssl_object"):
            return None
        bare.settimeout(self._timeout_s)
        return bare

    def _receive_into(self, bare: socket.socket, view: memoryview) -> int:
        try:
            count = bare.recv_into(view)
        except OSError as error:
            raise Trouble(f"{public_url(self.location)}: {type(error).__name__}") from None
        self._left -= count
        return count


def _listed(item: dict[str, Any]) -> TreeFile:
    lfs = item.get("lfs")
    lfs = lfs if isinstance(lfs, dict) else {}
    return tree_file(str(item.get("path", "")), item.get("size"), lfs.get("oid"), item.get("oid"))


def _require_endpoint(endpoint: str) -> None:
    try:
        scheme, host, _port = origin(endpoint)
        sound = scheme in ("http", "https") and host and not re.search(r"[\s?#\x00-\x1f\x7f]", endpoint)
    except ValueError:
        sound = False
    if not sound:
        raise VllmHostError(
            "endpoint_invalid",
            "The endpoint of the Hub (vllm_hub_endpoint) is no URL such as https://huggingface.co or http://mirror:8080/path; it is not"
            " shown, as it may hold a password.",
        )


def _require_token(token: str) -> None:
    """The HTTP client would show a token that no header can carry."""
    if token and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise VllmHostError(
            "token_invalid",
            f"The token for the Hub ({len(token)} characters) has a blank, a line break or another character that no token has, perhaps"
            " at its end. Give the token alone.",
        )


def origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def public_url(url: str) -> str:
    """Scheme, host and path: no credentials, no query (signed URLs carry their signature there)."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def is_offline() -> bool:
    """HF_HUB_OFFLINE, as huggingface_hub reads it."""
    return bool(constants.is_offline_mode())
