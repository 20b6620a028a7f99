"""A deploy changes nothing when it is refused, and is taken back when it fails. Each test begins with the healthy service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Run, Service

pytestmark = pytest.mark.usefixtures("healthy")


@pytest.fixture
def healthy(service: Service) -> None:
    service.wait_until_healthy()


def _files(host: Any) -> str:
    text: str = host.check_output("sha256sum /etc/vllm/* /etc/systemd/system/vllm-*")
    return text


# What must be refused, by a name: its variables, and a part of what is told.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown argument": (
        {"vllm_engine_args": {"max_modle_len": 1024}},
        "no engine argument 'max_modle_len' (did you mean 'max_model_len'?)",
    ),
    "invalid value": ({"vllm_engine_args": {"dtype": "float99"}}, "dtype: invalid choice: 'float99'"),
    "argument of the role": (
        {"vllm_engine_args": {"port": 9}},
        "vllm_engine_args holds port: use vllm_host, vllm_port",
    ),
    "port taken": ({"vllm_port": 22022}, "Port 22022 is in use by pid"),
    "open without a key": (
        {"vllm_host": "0.0.0.0", "vllm_api_key": ""},
        "which others can reach: set vllm_api_key",
    ),
    "code of a branch": (
        {"vllm_engine_args": {"trust_remote_code": True}, "serve_model_revision": "main"},
        "it needs a pinned one",
    ),
    "name": ({"vllm_instance": "No_Such"}, "use lower case letters"),
    "no checkpoint": (
        {"serve_model_path": "/srv/checkpoints/nowhere"},
        "/srv/checkpoints/nowhere/config.json is not on",
    ),
    "environment": ({"vllm_env": {"A": "x\u0001y"}}, "environment variable A contains a control character"),
}
ORPHAN = "/var/cache/vllm/tiny/0.31.0-0123456789ab"


@pytest.fixture(scope="module")
def refused(host: Any, play: Callable[..., Run]) -> dict[str, str]:
    """All of them in one play; the files and the start of the service are the same afterwards, and it serves."""
    service = Service(host)
    service.wait_until_healthy()
    before, invocation = _files(host), service.invocation
    host.check_output(f"mkdir -p {ORPHAN}/triton")
    host.check_output(
        "systemd-run --unit=squatter python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 22022)); time.sleep(600)'"
    )
    deploys = [{"name": name, **variables} for name, (variables, _told) in REFUSED.items()]
    run = play("molecule/serve/refused.yml", deploys=deploys)
    host.run("systemctl stop squatter")
    assert run.ok, run.text
    assert "Traceback" not in run.text
    assert (_files(host), service.invocation) == (before, invocation) and service.healthy()
    told: dict[str, str] = json.loads(host.file("/root/refused.json").content_string)
    return told


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_anything_changes(refused: dict[str, str], name: str) -> None:
    assert REFUSED[name][1] in refused[name]


def test_caches_of_a_release_that_is_gone_go(host: Any, refused: dict[str, str]) -> None:
    assert refused and not host.file(ORPHAN).exists
    assert host.check_output("ls /var/cache/vllm/tiny") == host.check_output("basename /opt/vllm/releases/0*")


def test_a_corrupt_shard_is_taken_back(host: Any, service: Service, deploy: Callable[..., Run]) -> None:
    before, invocation = _files(host), service.invocation
    host.check_output(
        "mkdir -p /srv/corrupt && cp /srv/models/tiny-mla/* /srv/corrupt/ && truncate -s -4096 /srv/corrupt/model.safetensors"
    )
    run = deploy(serve_model_path="/srv/corrupt")
    assert not run.ok
    assert "vllm-tiny.service did not become healthy" in run.text and "Cause: " in run.text
    assert "safetensor" in run.text.lower()
    assert "The last good deployment was put back and is healthy" in run.text
    assert _files(host) == before and service.invocation != invocation
    assert service.healthy() and service.show("NRestarts") == "0"


def test_nothing_is_restarted_when_nothing_changed(service: Service, deploy: Callable[..., Run]) -> None:
    """What was put back by the test before is what the inventory wants."""
    invocation = service.invocation
    run = deploy()
    assert run.ok and run.changed == 0, run.text
    assert service.invocation == invocation
