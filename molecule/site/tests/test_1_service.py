"""What a user would look at after the whole road."""

from __future__ import annotations

import json
import re

import pytest
from conftest import EPHEMERAL

UNIT = "vllm-demo.service"
STRIPPED_TOKENS = 46_592  # 1 GiB / (30 layers x 3 heads x 128 values x 2 bytes), whole blocks of 128


def _json(host, command: str):
    return json.loads(host.check_output(command))


def test_unit_is_enabled_active_and_healthy(host):
    assert host.service(UNIT).is_enabled
    assert host.service(UNIT).is_running
    assert host.run("curl -fsS http://127.0.0.1:8000/health").rc == 0


def test_unit_names_its_release_in_full_and_needs_no_shell(host):
    start = host.check_output("systemctl show -p ExecStart --value %s", UNIT)
    assert re.search(
        r"argv\[\]=/opt/vllm/releases/0\.32\.0-[0-9a-f]+/bin/vllm serve --config /etc/vllm/demo\.yaml ;", start
    )
    assert host.run("systemd-analyze verify /etc/systemd/system/%s", UNIT).rc == 0


def test_port_is_bound_to_loopback_only(host):
    listening = host.check_output("ss -Hltn").splitlines()
    (bound,) = [line.split()[3] for line in listening if line.split()[3].endswith(":8000")]
    assert bound == "127.0.0.1:8000"
    foreign = [line.split()[3] for line in listening if not line.split()[3].startswith(("127.", "[::1]"))]
    assert all(address.endswith(":22") for address in foreign), foreign


@pytest.mark.parametrize(
    ("path", "mode", "user"),
    [
        ("/etc/vllm/demo.env", 0o600, "root"),
        ("/etc/vllm/demo.yaml", 0o644, "root"),
        (f"/etc/systemd/system/{UNIT}", 0o644, "root"),
        ("/opt/vllm/releases", 0o755, "root"),
        ("/var/lib/vllm/reports/demo/latest.json", 0o644, "root"),
    ],
)
def test_modes(host, path, mode, user):
    assert (host.file(path).mode, host.file(path).user) == (mode, user)


def test_the_service_cannot_write_to_its_checkpoint_or_its_code(host):
    for folder in ("/var/lib/vllm/checkpoints", "/opt/vllm"):
        assert host.check_output("find %s -xdev ! -type l -user vllm -print -quit", folder) == ""


def test_the_answer_is_right(host):
    question = {
        "model": "demo/smollm2-135m",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 40,
    }
    answer = _json(
        host,
        "curl -fsS http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '"
        + json.dumps(question)
        + "'",
    )
    assert "Paris" in answer["choices"][0]["message"]["content"]


def test_the_strip_is_seen_in_the_running_server(host):
    log = host.check_output("journalctl -u %s -b --no-pager -o cat", UNIT)
    printed = re.findall(r"KV cache size: ([\d,]+) tokens", log)
    assert [int(number.replace(",", "")) for number in printed][-1] == STRIPPED_TOKENS


def test_the_forecast_equals_what_vllm_printed(host):
    (record,) = [
        json.loads(host.file(path).content_string)
        for path in host.check_output("ls /var/lib/vllm/measured/*.json").splitlines()
    ]
    report = _json(host, "cat /var/lib/vllm/reports/demo/latest.json")
    (tokens,) = [row for row in report["forecast"] if row["id"] == "tokens"]
    assert record["kv_cache_tokens"] == tokens["forecast"] == tokens["measured"] == STRIPPED_TOKENS


def test_the_report_came_to_the_controller(host):
    (page,) = (EPHEMERAL / "reports").glob("**/latest.html")
    assert "Paris" in page.read_text()


def test_check_mode_on_a_fresh_host_told_what_would_be_done():
    said = (EPHEMERAL / "check-on-a-fresh-host.log").read_text()
    recap = re.search(r"site-debian12\s+: ok=\d+\s+changed=(\d+)\s+unreachable=0\s+failed=0", said)
    assert recap, said[-3000:]
    assert int(recap[1]) > 0
    assert "demo/smollm2-135m at " in said  # the plan is made all the same, from the controller
