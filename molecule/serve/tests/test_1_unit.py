"""What a user would look at after the deploy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from conftest import KEY, UNIT, Service

VALUES = Path(__file__).resolve().parents[3] / "tests/unit/service/data/environment_values.json"


def test_active_enabled_and_healthy(host: Any, service: Service) -> None:
    assert host.service(UNIT).is_running and host.service(UNIT).is_enabled
    assert service.healthy()


def test_it_answers(service: Service) -> None:
    answer = service.ask("The sea")
    assert answer["model"] == "demo/tiny-mla"
    assert answer["usage"]["completion_tokens"] == 8


def test_every_socket_is_on_loopback(host: Any, service: Service) -> None:
    listening = [
        line
        for line in host.check_output("ss -Hltnp").splitlines()
        if any(f"pid={pid}," in line for pid in service.pids())
    ]
    assert any("127.0.0.1:8001" in line for line in listening)
    assert all(line.split()[3].startswith("127.0.0.1:") for line in listening), listening


def test_systemd_is_content(host: Any) -> None:
    assert host.run(f"systemd-analyze verify /etc/systemd/system/{UNIT}").stderr == ""
    overall = host.check_output(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    assert float(overall.split(":")[1].split()[0]) <= 4.0


def test_unit_names_the_release_in_full_and_carries_no_option(host: Any) -> None:
    text = host.file(f"/etc/systemd/system/{UNIT}").content_string
    start = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert start.endswith("/bin/vllm serve --config /etc/vllm/tiny.yaml") and "/opt/vllm/releases/0.32.0-" in start
    for line in ("Restart=always", "KillMode=mixed", "LimitMEMLOCK=infinity", "StartLimitBurst=4", "User=vllm"):
        assert line in text.splitlines()


def test_modes(host: Any) -> None:
    environment = host.file("/etc/vllm/tiny.env")
    assert (environment.mode, environment.user) == (0o600, "root")
    assert host.file("/etc/vllm/tiny.yaml").mode == 0o644
    assert host.file("/var/lib/vllm/deployments").mode == 0o700
    assert 'HF_HUB_OFFLINE="1"' in environment.content_string
    assert host.user("vllm").shell.endswith("nologin")


def test_the_key_is_asked_for_and_lives_in_the_environment_file_alone(host: Any, service: Service) -> None:
    code = f"curl -s -o /dev/null -w '%{{http_code}}' {service.url}/v1/models"
    assert host.check_output(code) == "401"
    assert host.check_output(code.replace("%", "%%") + " -H %s", f"Authorization: Bearer {KEY}") == "200"
    # As systemd's quoting leaves it, it still begins like this.
    start = KEY.partition("$")[0]
    holders = host.check_output("grep -rlF %s /etc /var/lib/vllm /var/cache/vllm", start).split()
    saved = "/var/lib/vllm/deployments/tiny/"
    assert "/etc/vllm/tiny.env" in holders
    for path in holders:
        assert path == "/etc/vllm/tiny.env" or (path.startswith(saved) and path.endswith("/environment")), path
        assert (host.file(path).mode, host.file(path).user) == (0o600, "root")
    assert start not in host.check_output(f"systemctl show {UNIT}; ps -eo args; journalctl --quiet --output=cat")


def test_the_service_can_write_its_cache_and_nothing_else(host: Any, service: Service) -> None:
    """From inside the service's own mount namespace, as its user."""
    release = host.check_output("ls -d /opt/vllm/releases/0*")
    inside = f"nsenter --target {service.show('MainPID')} --mount -- setpriv --reuid=vllm --regid=vllm --init-groups --no-new-privs"
    for path in (
        f"{release}/x",
        f"{release}/lib/python3.11/site-packages/vllm/x",
        "/srv/models/tiny-mla/x",
        "/etc/vllm/x",
        "/var/lib/vllm/x",
        "/home/x",
        "/root/x",
    ):
        assert host.run(f"{inside} touch {path}").rc != 0, path
    assert host.run(f"{inside} touch /var/cache/vllm/tiny/{Path(release).name}/x /dev/shm/x /tmp/x").rc == 0
    assert host.run(f"{inside} cat /etc/vllm/tiny.env").rc != 0
    # Its /dev/shm and /tmp are its own.
    assert not host.file("/dev/shm/x").exists and not host.file("/tmp/x").exists


def test_the_release_is_as_it_was_built(host: Any) -> None:
    """Starting it, and asking its parser, wrote nothing."""
    release = host.check_output("ls -d /opt/vllm/releases/0*")
    assert host.check_output(f"find {release} -newer {release}/release.json -not -path {release}") == ""
    assert host.check_output(f"find {release} -mindepth 1 -perm /222 -not -type l") == ""
    assert host.check_output(f"{release}/bin/vllm --version").splitlines()[-1] == "0.32.0+cpu"


def test_systemd_reads_the_environment_as_it_was_meant(host: Any) -> None:
    """The renderer of the collection, on the host, and systemd's own reader."""
    values = json.loads(VALUES.read_text())
    render = (
        "import json, sys; from gpuhost_vllm.service.environment_file import render_environment_file as render; "
        "open('/run/values.env', 'w', encoding='utf-8').write(render(json.loads(sys.argv[1])))"
    )
    host.check_output("/opt/vllm/tools/bin/python -c %s %s", render, json.dumps(values))
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    words = f"systemd-run --quiet --wait --pipe --property=EnvironmentFile=/run/values.env /opt/vllm/tools/bin/python -c {shlex.quote(show)}"
    found = json.loads(host.check_output(words))
    assert {name: found.get(name) for name in values} == values


def test_measurements_are_kept_for_the_next_plan(host: Any) -> None:
    record = json.loads(host.check_output("cat $(ls -t /var/lib/vllm/measured/*.json | head -1)"))
    assert record["kv_cache_tokens"] > 100_000
    assert record["key"]["model"] == "demo/tiny-mla" and record["key"]["release"] == "0.32.0"


def test_fact(host: Any) -> None:
    fact = json.loads(host.file("/root/vllm_service.json").content_string)
    assert fact["unit"] == UNIT and fact["url"] == "http://127.0.0.1:8001"
    assert fact["measured"]["kv_cache_tokens"] > 100_000
