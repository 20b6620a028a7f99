"""A second instance of another model beside the first: its forecast against vLLM's own figure, and its removal."""

from __future__ import annotations

import json
import re

SECOND = {
    "vllm_model": "demo/tiny-mla",
    "vllm_instance": "mla",
    "vllm_port": 8001,
    "vllm_engine_args": {"enforce_eager": True, "max_model_len": 2048},
}


def _main_pid(host) -> str:
    return host.check_output("systemctl show -P MainPID vllm-demo.service")


def test_the_forecast_for_mla_is_what_vllm_prints_then(host, travel):
    first = _main_pid(host)
    done = travel("--skip-tags=verify", **SECOND)
    assert done.ok, done.text[-4000:]
    said_before_the_download = done.text[: done.text.index("gpuhost.vllm.vllm_install")]
    forecast = int(re.search(r"KV tokens\s+([\d,]+)", said_before_the_download)[1].replace(",", ""))
    log = host.check_output("journalctl -u vllm-mla.service -b --no-pager -o cat")
    printed = [int(number.replace(",", "")) for number in re.findall(r"KV cache size: ([\d,]+) tokens", log)]
    assert forecast == printed[-1]
    assert _main_pid(host) == first


def test_both_answer_each_under_its_own_name(host):
    for port, model in ((8000, "demo/smollm2-135m"), (8001, "demo/tiny-mla")):
        listed = json.loads(host.check_output(f"curl -fsS http://127.0.0.1:{port}/v1/models"))
        assert [entry["id"] for entry in listed["data"]] == [model]
        completion = json.dumps({"model": model, "prompt": "One two three", "max_tokens": 4})
        address = f"http://127.0.0.1:{port}/v1/completions"
        answer = host.check_output("curl -fsS %s -H 'Content-Type: application/json' -d %s", address, completion)
        assert json.loads(answer)["usage"]["completion_tokens"] == 4


def test_teardown_removes_the_second_alone(host, play):
    first = _main_pid(host)
    done = play("playbooks/teardown.yml", teardown_instance="mla")
    assert done.ok and done.changed > 0, done.text[-4000:]
    assert host.run("systemctl cat vllm-mla.service").rc != 0
    assert host.check_output("ls /etc/vllm").split() == ["demo.env", "demo.yaml"]
    assert host.file("/var/lib/vllm/checkpoints/demo--tiny-mla/snapshots").is_directory
    assert _main_pid(host) == first


def test_a_folder_of_one_s_own_is_taken_as_it_is(host, travel):
    host.check_output(
        "sh -c 'mkdir -p /srv/models && cp -rL /var/lib/vllm/checkpoints/demo--tiny-mla/snapshots/* /srv/models/mine'"
    )
    before = host.check_output("sh -c 'cd /srv/models/mine && sha256sum *'")
    done = travel("--skip-tags=serve,verify", **{**SECOND, "vllm_model": "/srv/models/mine", "vllm_instance": "mine"})
    assert done.ok, done.text[-4000:]
    assert "/srv/models/mine is a folder of your own" in done.text
    assert host.check_output("sh -c 'ls /var/lib/vllm/views/mine'")
    assert host.check_output("sh -c 'cd /srv/models/mine && sha256sum *'") == before
