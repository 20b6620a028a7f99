"""An installed instance read back from its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service import service_info as module
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.service_info import ServiceInfo, service_info
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.systemd import parse_show

CONFIG = """
model: /var/lib/vllm/views/x
served-model-name: [org/name]
host: 0.0.0.0
port: 8003
max-num-batched-tokens: 8192
tokenizer: /srv/t
api-key: secret-1
ssl-keyfile-password: secret-2
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("etc", "units", "deployments"):
        (tmp_path / folder).mkdir()
    (tmp_path / "etc/one.yaml").write_text(CONFIG)
    (tmp_path / "units/vllm-one.service").write_text(
        "[Service]\nExecStart=/opt/vllm/releases/0.32.0-aa/bin/vllm serve --config x\n"
    )
    monkeypatch.setattr(
        module, "unit_state", lambda unit: parse_show("ActiveState=active\nMainPID=7\nNRestarts=2\nInvocationID=0f1e\n")
    )
    return tmp_path


def read(host: Path, instance: str = "one") -> ServiceInfo:
    return service_info(instance, host / "etc", host / "deployments", host / "units")


def test_from_configuration_and_unit_alone(host: Path) -> None:
    info = read(host)
    assert (info.model, info.url, info.release_id) == ("org/name", "http://127.0.0.1:8003", "0.32.0-aa")
    assert info.start_id == "0f1e"
    assert (info.active, info.restarts, info.device, info.gpus) == (True, 2, "cuda", [])


def test_the_record_says_more(host: Path) -> None:
    record = {
        "url": "http://127.0.0.1:8003",
        "gpus": [4, 5],
        "device": "cpu",
        "revision": "abc",
        "release": "/opt/vllm/releases/0.31.0-bb",
    }
    place = host / "deployments/one/current/record.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(record))
    info = read(host)
    assert (info.gpus, info.device, info.revision, info.release_id) == ([4, 5], "cpu", "abc", "0.31.0-bb")


def test_secrets_stay_on_the_host(host: Path) -> None:
    info = read(host)
    assert "secret" not in str(info)
    assert {"max_num_batched_tokens", "tokenizer"} <= set(info.options)


def test_an_unknown_instance_names_the_known(host: Path) -> None:
    with pytest.raises(VllmHostError, match="there are one") as caught:
        read(host, "two")
    assert caught.value.code == "instance_unknown"


def test_a_damaged_configuration_is_told_without_its_text(host: Path) -> None:
    (host / "etc/one.yaml").write_text("api-key: [secret-1\n")
    with pytest.raises(VllmHostError) as caught:
        read(host)
    assert caught.value.code == "configuration_unreadable"
    assert "secret" not in caught.value.message
