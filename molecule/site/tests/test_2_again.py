"""The road once more: nothing changes; and bad input, which stops it before anything is changed."""

from __future__ import annotations

import subprocess

import pytest

from tests.playbook import CHECKOUT

# As in molecule.yml.
ENGINE_ARGS = {"dtype": "float16", "enforce_eager": True, "max_model_len": 2048}
TESTHOST = CHECKOUT / "tests/host/testhost"


def _state(host) -> list[str]:
    return [
        host.check_output("systemctl show -p MainPID,ActiveState,NRestarts vllm-demo.service"),
        host.check_output("sh -c 'sha256sum /etc/vllm/* /etc/systemd/system/vllm-* /var/lib/vllm/measured/*'"),
        host.check_output(
            "find /opt/vllm/releases /var/lib/vllm/checkpoints -maxdepth 4 ! -name '.*lock' -printf '%p %T@\\n'"
        ),
    ]


def test_check_mode_on_a_converged_host_has_nothing_to_do(host, travel):
    before = _state(host)
    done = travel("--check", "--diff")
    assert (done.ok, done.changed) == (True, 0), done.text[-4000:]
    assert "report: none, for check mode writes nothing" in done.text
    assert "[WARNING]" not in done.text
    assert _state(host) == before


def test_check_mode_tells_of_a_restart_and_verifies_no_service_that_would_not_be_the_one(host, travel):
    before = _state(host)
    asked = host.check_output("journalctl -u vllm-demo.service -b --no-pager -o cat | grep -c 'POST /v1' || true")
    done = travel("--check", "--diff", vllm_engine_args={**ENGINE_ARGS, "max_model_len": 1024})
    assert (done.ok, done.changed) == (True, 1), done.text[-4000:]
    assert "vllm-demo.service would be started anew" in done.text
    assert "vllm-demo.service is not verified in check mode" in done.text
    assert "verdict" not in done.text and "latest.html" not in done.text
    assert (
        host.check_output("journalctl -u vllm-demo.service -b --no-pager -o cat | grep -c 'POST /v1' || true") == asked
    )
    assert _state(host) == before


@pytest.mark.parametrize(
    ("tag", "variables", "says"),
    [
        ("plan", {"vllm_device": "cuda"}, "8 x RTX PRO 6000"),
        ("fetch", {}, "Fetch demo/smollm2-135m"),
        ("install", {}, "Build the release aside"),
        ("patch", {}, "demo serves"),
        ("serve", {}, "Deploy, or go back to the last good deployment"),
        ("verify", {"verify_depth": "quick"}, "verdict:"),
    ],
)
def test_each_tag_brings_what_its_part_needs(host, travel, tag, variables, says):
    before = _state(host)
    done = travel(f"--tags={tag}", **variables)
    assert (done.ok, done.changed) == (True, 0), done.text[-4000:]
    assert says in done.text
    assert _state(host) == before


def test_a_tag_that_is_skipped_leaves_out_its_part_alone(host, travel):
    done = travel("--skip-tags=serve,verify")
    assert (done.ok, done.changed) == (True, 0), done.text[-4000:]
    assert "demo serves" in done.text
    assert "Deploy, or go back" not in done.text and "verdict:" not in done.text


@pytest.mark.parametrize(
    ("playbook", "variables", "says"),
    [
        ("site.yml", {"vllm_port": 80}, "vllm_port is 80: vLLM binds ports from 1024 to 65535. Nothing was changed."),
        ("site.yml", {"vllm_engine_arg": {}}, "did you mean vllm_engine_args?"),
        ("playbooks/teardown.yml", {"teardown_instnace": "demo"}, "did you mean teardown_instance?"),
        (
            "playbooks/teardown.yml",
            {"teardown_instance": "dem"},
            "There is no instance dem; there are: demo. Nothing was changed.",
        ),
        (
            "playbooks/rollback.yml",
            {"rollback_instance": "dem"},
            "has no instance dem; there are: demo. Nothing was changed.",
        ),
    ],
)
def test_a_slip_of_the_pen_changes_nothing(host, play, playbook, variables, says):
    before = _state(host)
    done = play(playbook, **variables)
    assert (done.changed, done.failed) == (0, 1), done.text[-4000:]
    assert says in done.error
    assert _state(host) == before


def test_a_second_converge_looks_quickly_and_changes_nothing(host, travel):
    before = _state(host)
    report = host.file("/var/lib/vllm/reports/demo/latest.json").content_string
    done = travel()
    assert (done.ok, done.changed) == (True, 0), done.text[-4000:]
    assert "quick: nothing changed since the full report of" in done.text
    assert _state(host) == before
    assert host.file("/var/lib/vllm/reports/demo/latest.json").content_string == report


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"vllm_model": "demo/not-there"}, ["demo/not-there", "Check the name"]),
        ({"vllm_model": "not a model"}, ["vllm_model is 'not a model'", "give a repository as organization/name"]),
        ({"vllm_hub_endpoint": "http://10.231.0.1:9"}, ["http://10.231.0.1:9", "Check the endpoint"]),
        (
            {"vllm_device": "cuda", "drivers_minimum_compute_capability": "19.0"},
            ["at least 19.0 is needed (drivers_minimum_compute_capability)", "leave it out with vllm_gpus"],
        ),
        ({"vllm_engine_args": {"max_model_leng": 2048}}, ["'max_model_leng'", "did you mean 'max_model_len'"]),
        ({"vllm_engine_args": {"max_model_len": 1_000_000}}, ["max_model_len 1000000", "the model's own 8192"]),
    ],
    ids=[
        "unknown model",
        "no model's name",
        "unreachable Hub",
        "wrong GPUs",
        "bad engine argument",
        "does not fit",
    ],
)
def test_bad_input_stops_before_anything_is_changed(host, travel, variables, says):
    before = _state(host)
    done = travel(**variables)
    assert (done.changed, done.failed) == (0, 1), done.text[-4000:]
    failure = done.error
    assert all(word in failure for word in says), failure[:3000]
    assert _state(host) == before


def test_a_port_in_use_is_refused_naming_who_has_it(host, travel):
    host.check_output("systemd-run --unit=squatter python3 -m http.server 8123 --bind 127.0.0.1")
    try:
        before = _state(host)
        done = travel(vllm_port=8123)
        failure = done.error
        assert "8123" in failure
        assert _state(host) == before
    finally:
        host.check_output("systemctl stop squatter")


def test_a_disk_that_is_too_small_stops_it_before_the_download(host, travel):
    host.check_output("sh -c 'mkdir -p /tmp/small && mount -t tmpfs -o size=64m tmpfs /tmp/small'")
    try:
        before = _state(host)
        done = travel(plan_store="/tmp/small/store", checkpoint_fetch_store="/tmp/small/store")
        failure = done.error
        assert "/tmp/small" in failure
        assert "free" in failure
        assert _state(host) == before
        assert host.check_output("find /tmp/small -type f") == ""
    finally:
        host.check_output("umount /tmp/small")


def test_no_gpu_at_all_is_said_with_a_remedy(host, travel, tmp_path):
    (tmp_path / "gpus.json").write_text('{"errors": {"nvmlInit": "DRIVER_NOT_LOADED"}}')
    subprocess.run([TESTHOST, "gpus", "site-debian12", str(tmp_path / "gpus.json")], check=True)
    try:
        before = _state(host)
        done = travel(vllm_device="cuda")
        failure = done.error
        assert "The kernel module nvidia is not loaded" in failure
        assert "install and load the driver there" in failure
        assert _state(host) == before
    finally:
        (tmp_path / "gpus.json").write_text("{}")
        subprocess.run([TESTHOST, "gpus", "site-debian12", str(tmp_path / "gpus.json")], check=True)
