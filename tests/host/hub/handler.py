"""One request: route it, ask the faults, answer."""

from __future__ import annotations

import fnmatch
import json
import re
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .body import Fate, Hangup, send_file, send_pieces
from .faults import Rule
from .repositories import Commit, Entry, Repository
from .server import Hub, Seen

RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
REPOSITORY = r"(?P<repo>[^/]+/[^/]+)"
API_ROUTES = {
    "info": re.compile(rf"/api/models/{REPOSITORY}(?:/revision/(?P<revision>[^/]+))?$"),
    "tree": re.compile(rf"/api/models/{REPOSITORY}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?$"),
    "paths-info": re.compile(rf"/api/models/{REPOSITORY}/paths-info/(?P<revision>[^/]+)$"),
    "refs": re.compile(rf"/api/models/{REPOSITORY}/refs$"),
    "xet-token": re.compile(rf"/api/models/{REPOSITORY}/xet-read-token/(?P<revision>[^/]+)$"),
}
RESOLVE = re.compile(rf"/{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)$")
STORED = re.compile(rf"/repos/{REPOSITORY}/(?P<sha256>[0-9a-f]{{64}})$")
CREATED = "2026-01-01T00:00:00.000Z"


class Refused(Exception):
    """An answer other than the one that was asked for, in the Hub's own words and codes."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    origin: str

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.recorded = False
        try:
            self.answer()
        except Refused as refused:
            headers = {"X-Error-Message": refused.message} | ({"X-Error-Code": refused.code} if refused.code else {})
            self.reply(refused.status, json.dumps({"error": refused.message}).encode(), headers, [])
        except (Hangup, ConnectionError):
            self.close_connection = True
        finally:
            self.record(None)

    def record(self, status: int | None) -> None:
        """Once a request, before its answer begins: whoever has the answer finds the request in the list."""
        if not self.recorded:
            self.recorded = True
            asked, authorized = self.headers.get("Range"), "Authorization" in self.headers
            self.hub.seen.append(Seen(self.origin, self.command, self.path, asked, authorized, status))

    do_HEAD = do_POST = do_GET

    def answer(self) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        """The requests are in ``Hub.seen``."""

    def spoil(self, where: str, path: str, page: int = 1) -> list[Rule]:
        """The rules that strike this request; a rule with a status of its own answers at once."""
        rules = self.hub.faults.striking(where, self.command, path, page)
        for rule in rules:
            if rule.status is not None:
                Fate.of([rule]).before_status_line(self.connection)
                self.reply(rule.status, rule.body.encode(), rule.headers, [rule])
                raise Hangup
        return rules

    def start_answer(self, status: int, headers: dict[str, str], rules: list[Rule]) -> None:
        for rule in rules:
            unwanted = {name.lower() for name in (*rule.remove_headers, *rule.set_headers)}
            headers = {
                name: value for name, value in headers.items() if name.lower() not in unwanted
            } | rule.set_headers
        self.record(status)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status: int, body: bytes, headers: dict[str, str], rules: list[Rule]) -> None:
        """A short answer, from memory."""
        fate = Fate.of(rules)
        fate.before_status_line(self.connection)
        self.start_answer(status, {"Content-Length": str(len(body))} | headers, rules)
        if self.command != "HEAD":
            send_pieces(self.connection, iter([body]), 0, fate)

    def reply_json(self, value: Any, rules: list[Rule], headers: dict[str, str] | None = None) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"} | (headers or {}), rules)

    def reply_file(self, entry: Entry, headers: dict[str, str], rules: list[Rule]) -> None:
        """The file, or the range that was asked for."""
        fate = Fate.of(rules)
        change = sum(rule.length_change for rule in rules)
        size = entry.size + min(change, 0)
        start, end, status = 0, size, 200
        asked = RANGE.match(self.headers.get("Range") or "")
        if asked and not any(rule.ignore_range for rule in rules):
            first, last = asked.groups()
            start = int(first) if first else max(size - int(last), 0)
            end = min(int(last) + 1, size) if first and last else size
            if start >= size:
                self.reply(416, b"", {"Content-Range": f"bytes */{size}"}, rules)
                return
            status = 206
            headers = headers | {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
        padding = max(change, 0)
        headers = headers | {"Content-Length": str(end - start + padding), "Accept-Ranges": "bytes"}
        fate.before_status_line(self.connection)
        self.start_answer(status, headers, rules)
        if self.command != "HEAD":
            send_file(self.connection, entry.file, start, end - start, padding, fate)


class HubHandler(_Handler):
    origin = "hub"

    def answer(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        user = self._user()
        if url.path == "/api/whoami-v2":
            self._whoami(user)
            return
        for name, route in API_ROUTES.items():
            if found := route.match(url.path):
                repository = self._repository(unquote(found["repo"]), user)
                answers = {
                    "info": self._info,
                    "tree": self._tree,
                    "paths-info": self._paths_info,
                    "refs": self._refs,
                    "xet-token": self._xet_token,
                }
                answers[name](repository, found.groupdict(), query)
                return
        if found := RESOLVE.match(url.path):
            self._resolve(self._repository(unquote(found["repo"]), user), found, user)
        elif STORED.match(url.path):
            serve_stored(self)
        else:
            raise Refused(404, None, "Sorry, we can't find the page you are looking for.")

    def _user(self) -> str | None:
        """Whose token came along; None without one."""
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if not scheme:
            return None
        user = self.hub.tokens.get(token)
        if scheme != "Bearer" or user is None:
            raise Refused(401, None, "Invalid credentials in Authorization header")
        return user

    def _repository(self, repo_id: str, user: str | None) -> Repository:
        repository = self.hub.repository(repo_id)
        safe = not any(part.startswith(".") or "@" in part for part in repo_id.split("/"))
        if safe and repository.revisions() and (user or repo_id not in self.hub.private):
            return repository
        # Whoever is not logged in does not learn whether a repository exists.
        if user is None:
            raise Refused(401, None, "Invalid username or password.")
        raise Refused(404, "RepoNotFound", "Repository not found")

    def _commit(self, repository: Repository, revision: str) -> Commit:
        commit = repository.commit(unquote(revision))
        if commit is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {unquote(revision)}")
        return commit

    def _whoami(self, user: str | None) -> None:
        rules = self.spoil("whoami", "")
        if user is None:
            raise Refused(401, None, "Invalid username or password.")
        token = {"displayName": "test", "role": "read"}
        self.reply_json(
            {"type": "user", "id": user, "name": user, "auth": {"type": "access_token", "accessToken": token}}, rules
        )

    def _info(self, repository: Repository, found: dict[str, str], query: dict[str, str]) -> None:
        rules = self.spoil("info", repository.repo_id)
        commit = self._commit(repository, found["revision"] or "main")
        siblings: list[dict[str, Any]] = []
        for entry in commit.entries.values():
            sibling: dict[str, Any] = {"rfilename": entry.path}
            if query.get("blobs", "false").lower() == "true":
                sibling |= {"size": entry.size, "blobId": entry.git_oid}
                if entry.sha256:
                    sibling["lfs"] = {"sha256": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
            siblings.append(sibling)
        gated = "manual" if repository.repo_id in self.hub.gated else False
        info = {
            "_id": commit.sha[:24],
            "id": repository.repo_id,
            "modelId": repository.repo_id,
            "author": repository.repo_id.partition("/")[0],
            "sha": commit.sha,
            "createdAt": CREATED,
            "lastModified": CREATED,
            "private": repository.repo_id in self.hub.private,
            "gated": gated,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings,
        }
        self.reply_json(info, rules)

    def _tree(self, repository: Repository, found: dict[str, str], query: dict[str, str]) -> None:
        page = int(query.get("cursor", "1"))
        rules = self.spoil("tree", repository.repo_id, page)
        commit = self._commit(repository, found["revision"])
        below = unquote(found["path"] or "").strip("/")
        prefix = f"{below}/" if below else ""
        recursive = query.get("recursive", "false").lower() == "true"
        expand = query.get("expand", "false").lower() == "true"
        listed: list[dict[str, Any]] = [
            {"type": "directory", "oid": commit.sha, "size": 0, "path": folder} for folder in commit.folders()
        ]
        listed += [entry.as_json() for entry in commit.entries.values()]
        listed = [
            item
            for item in listed
            if item["path"].startswith(prefix) and (recursive or "/" not in item["path"][len(prefix) :])
        ]
        if below and not listed:
            raise Refused(404, "EntryNotFound", f"{below} does not exist on {unquote(found['revision'])!r}")
        if expand:
            listed = [item | {"lastCommit": last_commit(commit)} for item in listed]
        for rule in rules:
            listed += rule.add_entries
            for item in listed:
                if item["type"] == "file" and fnmatch.fnmatchcase(item["path"], rule.entries):
                    item.update(rule.change_entries)
        size = min(self.hub.page_size, int(query.get("limit", self.hub.page_size)))
        headers = {}
        if len(listed) > page * size:
            wanted = f"recursive={recursive}&expand={expand}&limit={size}&cursor={page + 1}"
            headers["Link"] = f'<{self.hub.endpoint}{urlsplit(self.path).path}?{wanted}>; rel="next"'
        self.reply_json(listed[(page - 1) * size : page * size], rules, headers)

    def _paths_info(self, repository: Repository, found: dict[str, str], query: dict[str, str]) -> None:
        rules = self.spoil("paths-info", repository.repo_id)
        commit = self._commit(repository, found["revision"])
        if self.headers.get_content_type() == "application/json":
            asked = json.loads(self.body)
            paths, expand = asked["paths"], bool(asked.get("expand"))
        else:
            form = parse_qs(self.body.decode())
            paths, expand = form.get("paths", []), form.get("expand", ["false"])[0].lower() == "true"
        extra = {"lastCommit": last_commit(commit)} if expand else {}
        listed = [commit.entries[path].as_json() | extra for path in paths if path in commit.entries]
        self.reply_json(listed, rules)

    def _refs(self, repository: Repository, found: dict[str, str], query: dict[str, str]) -> None:
        rules = self.spoil("refs", repository.repo_id)
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": self._commit(repository, name).sha}
            for name in {**repository.revisions(), **repository.refs}
        ]
        self.reply_json({"branches": branches, "converts": [], "tags": [], "pullRequests": []}, rules)

    def _xet_token(self, repository: Repository, found: dict[str, str], query: dict[str, str]) -> None:
        rules = self.spoil("xet-token", repository.repo_id)
        self._commit(repository, found["revision"])
        expires = int(time.time() + self.hub.url_lifetime_s)
        self.reply_json({"accessToken": "xet", "exp": expires, "casUrl": self.hub.xet_storage}, rules)

    def _resolve(self, repository: Repository, found: re.Match[str], user: str | None) -> None:
        path = unquote(found["path"])
        granted = self.hub.gated.get(repository.repo_id)
        if granted is not None and user not in granted:
            restricted = f"Access to model {repository.repo_id} is restricted"
            if user is None:
                raise Refused(401, "GatedRepo", f"{restricted}. You must have access to it and be authenticated.")
            raise Refused(403, "GatedRepo", f"{restricted} and you are not in the authorized list.")
        rules = self.spoil("resolve", path)
        commit = self._commit(repository, found["revision"])
        entry = commit.entries.get(path)
        headers = {"X-Repo-Commit": commit.sha}
        if entry is None:
            message = "Entry not found"
            body = json.dumps({"error": message}).encode()
            self.reply(404, body, headers | {"X-Error-Code": "EntryNotFound", "X-Error-Message": message}, rules)
            return
        for rule in rules:
            if rule.redirect_to:
                self.reply(302, b"", {"Location": rule.redirect_to + self.path}, rules)
                return
        if entry.sha256 is None:
            self.reply_file(entry, headers | {"ETag": f'"{entry.git_oid}"'}, rules)
            return
        headers |= {
            "X-Linked-Size": str(entry.size),
            "X-Linked-ETag": f'"{entry.sha256}"',
            "ETag": f'"{entry.sha256}"',
            "Location": self.hub.cdn + self.hub.signed_path(repository.repo_id, entry.sha256),
        }
        if entry.sha256 in self.hub.xet_hashes:
            headers["X-Xet-Hash"] = self.hub.xet_hashes[entry.sha256]
        self.reply(302, b"Found. Redirecting to storage", headers, rules)


class CdnHandler(_Handler):
    origin = "cdn"

    def answer(self) -> None:
        serve_stored(self)


def serve_stored(handler: _Handler) -> None:
    """A large file from its signed URL, as object storage serves it."""
    url = urlsplit(handler.path)
    found = STORED.match(url.path)
    repository = handler.hub.repository(unquote(found["repo"])) if found else None
    entry = repository.entry_by_sha256(found["sha256"]) if found and repository else None
    if entry is None or entry.sha256 is None:
        handler.reply(404, b"<Error><Code>NoSuchKey</Code></Error>", {}, [])
        return
    rules = handler.spoil("cdn", entry.path)
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    signed = handler.hub.is_signed(entry.sha256, query.get("Expires", "0"), query.get("Signature", ""))
    if not signed or any(rule.expire for rule in rules):
        handler.reply(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", {}, rules)
    else:
        handler.reply_file(entry, {"ETag": f'"{entry.sha256}"', "Content-Type": "application/octet-stream"}, rules)


def last_commit(commit: Commit) -> dict[str, str]:
    return {"id": commit.sha, "title": "Content of the folder", "date": CREATED}
