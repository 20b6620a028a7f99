"""A deploy changes nothing when it is refused, and is taken back when it fails. Each test begins with the healthy service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Run, Service

pytestmark = pytest.mark.usefixtures("healthy")


@pytest.fixture
def healthy(service: Service) -> None:
    service.wait_until_healthy()


@pytest.fixture
def files(host: Any) -> Callable[[], str]:
    return lambda: host.check_output("sha256sum /etc/vllm/* /etc/systemd/system/vllm-*")


@pytest.mark.parametrize(
    "variables, told",
    [
        (
            {"vllm_engine_args": {"max_modle_len": 1024}},
            "no engine argument 'max_modle_len' (did you mean 'max_model_len'?)",
        ),
        ({"vllm_engine_args": {"dtype": "float99"}}, "dtype: invalid choice: 'float99'"),
        ({"vllm_engine_args": {"port": 9}}, "vllm_engine_args holds port: use vllm_host, vllm_port"),
        ({"vllm_port": 22022}, "Port 22022 is in use by pid"),
        ({"vllm_host": "0.0.0.0"}, "which others can reach: set vllm_api_key"),
        ({"vllm_engine_args": {"trust_remote_code": True}, "serve_model_revision": "main"}, "it needs a pinned one"),
        ({"vllm_instance": "No_Such"}, "use lower case letters"),
        ({"serve_model_path": "/srv/checkpoints/nowhere"}, "/srv/checkpoints/nowhere/config.json is not on"),
        ({"vllm_env": {"A": "x\u0001y"}}, "environment variable A contains a control character"),
    ],
)
def test_refused_before_anything_changes(
    host: Any,
    service: Service,
    deploy: Callable[..., Run],
    files: Callable[[], str],
    variables: dict[str, Any],
    told: str,
) -> None:
    before, invocation = files(), service.invocation
    listener = "systemd-run --unit=squatter python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 22022)); time.sleep(600)'"
    if variables.get("vllm_port"):
        host.check_output(listener)
    run = deploy(**variables)
    host.run("systemctl stop squatter")
    assert not run.ok and told in run.text and "Traceback" not in run.text
    assert (files(), service.invocation) == (before, invocation)
    assert service.healthy()


def test_a_corrupt_shard_is_taken_back(
    host: Any, service: Service, deploy: Callable[..., Run], files: Callable[[], str]
) -> None:
    before, invocation = files(), service.invocation
    host.check_output(
        "mkdir -p /srv/corrupt && cp /srv/models/tiny-mla/* /srv/corrupt/ && truncate -s -4096 /srv/corrupt/model.safetensors"
    )
    run = deploy(serve_model_path="/srv/corrupt")
    assert not run.ok
    assert "vllm-tiny.service did not become healthy" in run.text and "Cause: " in run.text
    assert "safetensor" in run.text.lower()
    assert "The last good deployment was put back and is healthy" in run.text
    assert files() == before and service.invocation != invocation
    assert service.healthy() and service.show("NRestarts") == "0"


def test_a_release_that_cannot_start_is_taken_back(
    host: Any, service: Service, deploy: Callable[..., Run], files: Callable[[], str]
) -> None:
    before = files()
    # Its parser is the real one, so it passes the check; its server ends at once, with status 0 as a dead engine may (vllm #48966).
    host.check_output(
        "mkdir -p /opt/vllm/releases/broken/bin && cd /opt/vllm/releases/broken/bin && "
        "printf '#!/bin/sh\\nexec %s \"$@\"\\n' /opt/vllm/releases/0*/bin/python > python && "
        "printf '#!/bin/sh\\necho RuntimeError: CUDA driver version is insufficient for CUDA runtime version >&2\\n' > vllm && chmod 755 *"
    )
    run = deploy(serve_release="/opt/vllm/releases/broken")
    assert not run.ok and "did not become healthy" in run.text and "CUDA driver version is insufficient" in run.text
    assert "put back and is healthy" in run.text
    assert files() == before


def test_a_change_then_back_by_hand(
    host: Any, service: Service, deploy: Callable[..., Run], play: Callable[..., Run]
) -> None:
    def served_length() -> str:
        length: str = host.check_output(f"curl -fsS {service.url}/v1/models | grep -o '\"max_model_len\":[0-9]*'")
        return length

    assert deploy("--check", vllm_engine_args={"max_model_len": 1024}).changed > 0
    assert served_length() == '"max_model_len":2048'
    run = deploy(vllm_engine_args={"max_model_len": 1024})
    assert run.ok, run.text
    assert served_length() == '"max_model_len":1024'
    run = play("playbooks/rollback.yml")
    assert run.ok and "healthy after" in run.text, run.text
    assert served_length() == '"max_model_len":2048'


def test_nothing_is_restarted_when_nothing_changed(service: Service, deploy: Callable[..., Run]) -> None:
    invocation = service.invocation
    # The rollback of the test before changed the length, which is on record.
    assert deploy().ok
    run = deploy()
    assert run.ok and run.changed == 0, run.text
    assert service.invocation == invocation
