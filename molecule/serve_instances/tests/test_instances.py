"""Several instances on disjoint GPUs: claims, moves, names, removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Run

Answers = Callable[[int], dict[str, Any]]
Deploy = Callable[..., Run]
A = {"vllm_instance": "a", "vllm_gpus": [0, 1], "vllm_port": 8001}
B = {"vllm_instance": "b", "vllm_gpus": [2, 3], "vllm_port": 8002}


def _state(host: Any) -> str:
    return host.check_output(
        "sh -c 'sha256sum /etc/vllm/* /etc/systemd/system/vllm-*; systemctl is-active vllm-a vllm-b || true'"
    )


@pytest.fixture(scope="module")
def converged(host: Any) -> dict[str, str]:
    return {"state": _state(host)}


@pytest.fixture(autouse=True)
def as_converged(play: Callable[..., Run], deploy: Deploy, host: Any, converged: dict[str, str]) -> None:
    """Each test begins with a and b, and nothing else."""
    if _state(host) == converged["state"]:
        return
    for unit in host.run("ls /etc/systemd/system/ | grep '^vllm-'").stdout.split():
        name = unit[len("vllm-") : -len(".service")]
        if name not in ("a", "b"):
            play("playbooks/teardown.yml", teardown_instance=name)
    run = deploy(A, B)
    assert run.ok, run.text
    converged["state"] = _state(host)


def test_each_sees_its_own_gpus(answers: Answers, host: Any) -> None:
    assert answers(8001)["gpus"] == "0,1" and answers(8002)["gpus"] == "2,3"
    assert 'CUDA_DEVICE_ORDER="PCI_BUS_ID"' in host.file("/etc/vllm/a.env").content_string


def test_units_pass_systemds_own_checks(host: Any) -> None:
    assert host.run("systemd-analyze verify /etc/systemd/system/vllm-a.service").stderr == ""
    overall = host.check_output("systemd-analyze security --no-pager vllm-a.service | tail -1")
    assert float(overall.split(":")[1].split()[0]) <= 4.0


@pytest.mark.parametrize(
    "other, told",
    [
        ({"vllm_instance": "c", "vllm_gpus": [1, 4], "vllm_port": 8003}, "The instance 'a' on this host uses GPU 1"),
        ({"vllm_instance": "c", "vllm_gpus": [], "vllm_port": 8003}, "The instance 'a' on this host uses GPU 0, 1"),
        ({"vllm_instance": "c", "vllm_gpus": [4], "vllm_port": 8002}, "Port 8002 is in use by pid"),
        ({**A, "vllm_gpus": [1, 2]}, "The instance 'b' on this host uses GPU 2"),
    ],
)
def test_an_overlap_is_refused(deploy: Deploy, answers: Answers, host: Any, other: dict[str, Any], told: str) -> None:
    before = answers(8001), answers(8002)
    run = deploy(other)
    assert not run.ok and told in run.text
    assert (answers(8001), answers(8002)) == before
    assert not host.file("/etc/systemd/system/vllm-c.service").exists


@pytest.mark.parametrize("version, refused", [("12.8", True), ("13.0", False)])
def test_a_cuda_compiler_that_does_not_know_these_gpus(
    play: Callable[..., Run], answers: Answers, host: Any, version: str, refused: bool
) -> None:
    before = answers(8001)
    folder = f"/srv/cuda-{version}"
    host.check_output(
        f"mkdir -p {folder}/bin && printf '#!/bin/sh\\necho Cuda compilation tools, release {version}, V{version}.93\\n' > {folder}/bin/nvcc && "
        f"chmod 755 {folder}/bin/nvcc"
    )
    gpus = [{"index": 0, "name": "a Blackwell", "compute_capability": "12.0"}]
    run = play(
        "molecule/serve_instances/converge.yml",
        "--check",
        instances=[A],
        serve_found_gpus=gpus,
        serve_cuda_home=folder,
    )
    assert run.ok != refused, run.text
    assert (
        f"{folder}/bin/nvcc is of CUDA {version}, but GPUs of compute capability 12 need at least 12.9" in run.text
    ) == refused
    assert answers(8001) == before


def test_moving_to_other_gpus(deploy: Deploy, answers: Answers) -> None:
    untouched = answers(8002)
    assert deploy({**A, "vllm_gpus": [4, 5]}).ok
    assert answers(8001)["gpus"] == "4,5" and answers(8002) == untouched
    # What it left is free for another.
    assert deploy({**B, "vllm_gpus": [0, 1]}).ok
    assert answers(8002)["gpus"] == "0,1"
    assert deploy(B).ok


def test_a_new_name_on_the_same_gpus_and_port(deploy: Deploy, answers: Answers, host: Any) -> None:
    old = answers(8001)["pid"]
    run = deploy({**A, "vllm_instance": "big", "serve_replaces": ["a"]})
    assert run.ok, run.text
    assert answers(8001)["pid"] != old
    assert host.service("vllm-big").is_running and host.service("vllm-big").is_enabled
    assert not host.file("/etc/systemd/system/vllm-a.service").exists and not host.file("/etc/vllm/a.env").exists
    assert deploy({**A, "vllm_instance": "big", "serve_replaces": ["a"]}).changed == 0


def test_a_new_name_that_does_not_come_up(deploy: Deploy, answers: Answers, host: Any) -> None:
    host.check_output(
        "mkdir -p /srv/checkpoints/ends && echo {} > /srv/checkpoints/ends/config.json && echo 3 > /srv/checkpoints/ends/exit"
    )
    run = deploy({**A, "vllm_instance": "big", "serve_replaces": ["a"], "serve_model_path": "/srv/checkpoints/ends"})
    assert not run.ok and "vllm-a.service, which was to be replaced, runs again" in run.text
    assert answers(8001)["gpus"] == "0,1"
    assert not host.file("/etc/systemd/system/vllm-big.service").exists


@pytest.mark.parametrize("status", [0, 3])
def test_a_server_that_ends_is_taken_back_at_once(deploy: Deploy, answers: Answers, host: Any, status: int) -> None:
    """A dead engine may end the server with status 0 (vllm #48966)."""
    host.check_output(
        f"mkdir -p /srv/checkpoints/ends && echo {{}} > /srv/checkpoints/ends/config.json && echo {status} > /srv/checkpoints/ends/exit"
    )
    run = deploy({**A, "serve_model_path": "/srv/checkpoints/ends"})
    assert not run.ok and "CUDA out of memory" in run.text and "put back and is healthy" in run.text
    assert answers(8001)["gpus"] == "0,1"


def test_a_release_that_cannot_start_is_taken_back(deploy: Deploy, answers: Answers, host: Any) -> None:
    """Its parser answers, so the arguments pass the check; its server ends at once."""
    host.check_output(
        "mkdir -p /opt/vllm/releases/0.33.0-broken/bin && cd /opt/vllm/releases/0.33.0-broken/bin && cp ../../0.32.0-standin/bin/python . && "
        "printf '#!/bin/sh\\necho RuntimeError: libcudart.so.13: cannot open shared object file: No such file or directory >&2; exit 1\\n' > vllm && "
        "chmod 755 vllm"
    )
    before = _state(host)
    run = deploy({**A, "serve_release": "/opt/vllm/releases/0.33.0-broken"})
    assert not run.ok and "did not become healthy" in run.text and "put back and is healthy" in run.text
    assert "The shared library libcudart.so.13 is not installed or not found" in run.text
    assert _state(host) == before and answers(8001)["gpus"] == "0,1"


def test_other_time_outs_restart_nothing(deploy: Deploy, answers: Answers, host: Any) -> None:
    """The plan corrects its forecast of the load after each start."""
    before = answers(8001)
    run = deploy({**A, "serve_start_timeout_s": 70})
    assert run.ok and run.changed == 1, run.text
    assert answers(8001) == before
    assert host.check_output("systemctl show --value --property=TimeoutStartUSec vllm-a") == "2min 30s"
    assert 'VLLM_ENGINE_READY_TIMEOUT_S="70"' in host.file("/etc/vllm/a.env").content_string
    assert deploy({**A, "serve_start_timeout_s": 70}).changed == 0


def test_a_full_disk_under_the_configuration(deploy: Deploy, answers: Answers, host: Any) -> None:
    before = answers(8001)
    host.check_output(
        "cp -a /etc/vllm /root/kept && mount -t tmpfs -o size=32k full /etc/vllm && cp -a /root/kept/. /etc/vllm && rm -r /root/kept"
    )
    try:
        host.run("head -c 64k /dev/zero > /etc/vllm/rest")
        run = deploy({**A, "vllm_engine_args": {"max_model_len": 1024}})
    finally:
        host.check_output("umount /etc/vllm")
    assert not run.ok and "cannot be written (No space left on device): make room there" in run.text
    assert answers(8001) == before


def test_a_change_then_back_by_hand(deploy: Deploy, play: Callable[..., Run], answers: Answers) -> None:
    assert answers(8001)["length"] is None
    changed = {**A, "vllm_engine_args": {"max_model_len": 1024}}
    foreseen = play("molecule/serve_instances/converge.yml", "--check", instances=[changed])
    assert foreseen.ok and foreseen.changed > 0 and answers(8001)["length"] is None
    assert deploy(changed).ok and answers(8001)["length"] == "1024"
    unclear = play("playbooks/rollback.yml")
    assert not unclear.ok and "say which one with -e rollback_instance=NAME" in unclear.text
    run = play("playbooks/rollback.yml", rollback_instance="a")
    assert run.ok and "healthy after" in run.text, run.text
    assert answers(8001)["length"] is None


def test_a_stranger_on_the_port_is_not_taken_for_the_service(host: Any, answers: Answers) -> None:
    """It came while the service was down, and answers 200 to everything."""
    host.check_output("systemctl stop vllm-a")
    host.check_output(
        "mkdir -p /srv/stranger/health && echo '{}' > /srv/stranger/health/index.html && systemd-run --quiet --unit=stranger "
        "python3 -m http.server --directory /srv/stranger --bind 127.0.0.1 8001"
    )
    try:
        host.check_output("timeout 20 sh -c 'until curl -fsSL http://127.0.0.1:8001/health; do sleep 0.2; done'")
        since = host.check_output("date +@%s.%N")
        assert host.run("systemctl start vllm-a").rc != 0
        log = host.check_output(f"journalctl --quiet --output=cat --since={since} --unit=vllm-a")
        assert "Another process listens on the API port" in log
    finally:
        host.run("systemctl stop stranger vllm-a; systemctl reset-failed")
        host.check_output("systemctl start vllm-a")
    assert answers(8001)["gpus"] == "0,1"


def test_profiles(deploy: Deploy, host: Any) -> None:
    assert deploy({**A, "serve_environment_profile": "p2p_off"}).ok
    assert 'NCCL_P2P_DISABLE="1"' in host.file("/etc/vllm/a.env").content_string
    assert "disable-custom-all-reduce: true" in host.file("/etc/vllm/a.yaml").content_string


def test_teardown_of_one(play: Callable[..., Run], answers: Answers, host: Any) -> None:
    untouched = answers(8002)
    run = play("playbooks/teardown.yml", teardown_instance="a")
    assert run.ok and run.changed > 0
    assert answers(8001) == {} and answers(8002) == untouched
    for path in (
        "/etc/systemd/system/vllm-a.service",
        "/etc/vllm/a.yaml",
        "/etc/vllm/a.env",
        "/var/cache/vllm/a",
        "/var/lib/vllm/deployments/a",
    ):
        assert not host.file(path).exists, path
    assert host.file("/srv/checkpoints/tiny/config.json").exists
    assert play("playbooks/teardown.yml", teardown_instance="a").changed == 0


def test_teardown_of_everything(deploy: Deploy, play: Callable[..., Run], host: Any) -> None:
    both = play("playbooks/teardown.yml", teardown_instance="a", teardown_everything=True)
    assert not both.ok and "give one of the two" in both.text
    assert host.service("vllm-a").is_running and host.service("vllm-b").is_running
    run = play("playbooks/teardown.yml", teardown_everything=True)
    assert run.ok and run.changed > 0
    left = "/opt/vllm /etc/vllm /var/lib/vllm /var/cache/vllm /etc/systemd/system/vllm-* /etc/systemd/system/*.wants/vllm-*"
    assert host.run(f"ls -d {left} 2>/dev/null").stdout == ""
    assert host.run("ps -u vllm").rc != 0, "no process of the service's user is left"
    assert host.file("/srv/checkpoints/tiny/config.json").exists, "the collection did not put it there"
    assert play("playbooks/teardown.yml", teardown_everything=True).changed == 0
    # The host is as good as new.
    again = deploy(A, B)
    assert again.ok, again.text
