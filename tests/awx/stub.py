"""A small ``/api/v2`` on loopback: keeps what it is given and refuses what AWX refuses (see ``refusals``).

Knows the resources that playbooks/awx.yml uses, lists with equality filters, surveys, and the nodes of a workflow with their
associations and approvals. Wants the bearer token ``TOKEN``.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.awx.refusals import refusal

TOKEN = "stub-token"
TYPES = {
    "organizations": "organization",
    "credential_types": "credential_type",
    "credentials": "credential",
    "execution_environments": "execution_environment",
    "projects": "project",
    "inventories": "inventory",
    "inventory_sources": "inventory_source",
    "job_templates": "job_template",
    "workflow_job_templates": "workflow_job_template",
    "workflow_job_template_nodes": "workflow_job_template_node",
    "workflow_approval_templates": "workflow_approval_template",
}
UNIFIED = ("projects", "inventory_sources", "job_templates", "workflow_job_templates")
ASSOCIATIONS = {"success_nodes", "always_nodes", "failure_nodes", "credentials", "labels", "instance_groups"}


class Refused(Exception):
    """An answer other than 2xx; ``args`` are the status and the body."""


class Awx:
    """The state: objects by resource and id, surveys, associations; ``writes`` counts all that changed something."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in TYPES}
        self.surveys: dict[tuple[str, int], dict[str, Any]] = {}
        self.associations: dict[tuple[str, int, str], list[int]] = defaultdict(list)
        self.writes: list[str] = []
        self._next = 1

    def add(self, resource: str, fields: dict[str, Any]) -> dict[str, Any]:
        number, self._next = self._next, self._next + 1
        url = f"/api/v2/{resource}/{number}/"
        item = {**fields, "id": number, "url": url, "type": TYPES[resource], "summary_fields": {}}
        item["related"] = {"survey_spec": f"{url}survey_spec/"} if "job_templates" in resource else {}
        item.setdefault("scm_revision", "0" * 40)
        self.objects[resource][number] = item
        return item

    def named(self, resource: str, name: str) -> dict[str, Any]:
        return next(item for item in self.objects[resource].values() if item.get("name") == name)

    # ---- requests
    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        parts = [part for part in path.removeprefix("/api/v2").split("/") if part]
        if method != "GET":
            self.writes.append(f"{method} {path}")
        if parts == ["unified_job_templates"]:
            return 200, self._listed([item for name in UNIFIED for item in self.objects[name].values()], query)
        if not parts or parts[0] not in TYPES:
            raise Refused(404, {"detail": "Not found."})
        resource = parts[0]
        if len(parts) == 1:
            return self._collection(method, resource, query, body)
        item = self.objects[resource].get(int(parts[1]))
        if item is None:
            raise Refused(404, {"detail": "Not found."})
        if len(parts) == 2:
            return self._single(method, resource, item, body)
        return self._part(method, resource, item, parts[2], query, body)

    def _collection(self, method: str, resource: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if method == "GET":
            return 200, self._listed(list(self.objects[resource].values()), query)
        self._check(resource, body, None)
        return 201, self.add(resource, body)

    def _single(self, method: str, resource: str, item: dict[str, Any], body: dict[str, Any]) -> tuple[int, Any]:
        if method == "PATCH":
            self._check(resource, {**item, **body}, item["id"])
            item.update({key: value for key, value in body.items() if key not in ("id", "type", "url")})
        return 200, item

    def _part(
        self, method: str, resource: str, item: dict[str, Any], part: str, query: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, Any]:
        number = item["id"]
        if part == "survey_spec" and "job_templates" in resource:
            if method == "POST":
                problem = refusal("survey_spec", body)
                if problem:
                    raise Refused(400, {"error": problem})
                self.surveys[resource, number] = body
            return 200, self.surveys.get((resource, number), {})
        if part == "create_approval_template" and resource == "workflow_job_template_nodes":
            approval = self.add("workflow_approval_templates", {"description": "", "timeout": 0, **body})
            item["unified_job_template"] = approval["id"]
            item["related"]["unified_job_template"] = approval["url"]
            return 201, approval
        if part not in ASSOCIATIONS or resource not in ("job_templates", "workflow_job_template_nodes"):
            raise Refused(404, {"detail": "Not found."})
        linked = self.associations[resource, number, part]
        target = "workflow_job_template_nodes" if part.endswith("_nodes") else part
        if method == "POST":
            if body["id"] not in self.objects[target]:
                raise Refused(400, {"detail": "Object does not exist."})
            if body.get("disassociate"):
                linked.remove(body["id"])
            else:
                linked.append(body["id"])
            return 204, None
        return 200, self._listed([self.objects[target][other] for other in linked], query)

    # ---- helpers
    @staticmethod
    def _listed(items: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        wanted = {key: value for key, value in query.items() if key not in ("page_size", "order_by")}
        found = [item for item in items if all(str(item.get(key)) == value for key, value in wanted.items())]
        return {"count": len(found), "next": None, "previous": None, "results": found}

    def _check(self, resource: str, fields: dict[str, Any], number: int | None) -> None:
        problem = refusal(resource, fields)
        if problem:
            raise Refused(400, {"__all__": [problem]})
        is_node = resource == "workflow_job_template_nodes"
        same = ("identifier", "workflow_job_template") if is_node else ("name", "organization")
        for other in self.objects[resource].values():
            if other["id"] != number and all(other.get(key) == fields.get(key) for key in same):
                raise Refused(400, {"__all__": [f"{TYPES[resource]} with this {' and '.join(same)} already exists."]})


class _Handler(BaseHTTPRequestHandler):
    awx: Awx

    def _serve(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"detail": "Authentication credentials were not provided."})
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        url = urlsplit(self.path)
        try:
            return self._send(*self.awx.answer(self.command, url.path, dict(parse_qsl(url.query)), body))
        except Refused as refused:
            return self._send(*refused.args)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _send(self, status: int, body: Any) -> None:
        content = b"" if status == 204 else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("X-API-Product-Name", "AWX")
        self.send_header("X-API-Product-Version", "24.6.1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving() -> Iterator[tuple[str, Awx]]:
    """URL and state of a running stub."""
    awx = Awx()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"awx": awx}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", awx
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
