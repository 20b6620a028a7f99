"""Test hosts that really boot: what they offer, and that nothing of them stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.host import machine, network, paths, processes

TESTHOST = paths.CHECKOUT / "tests/host/testhost"
FAKE_COUNT = (
    "import ctypes; count = ctypes.c_uint(); nvml = ctypes.CDLL('libnvidia-ml.so.1');"
    " nvml.nvmlInit_v2(); nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)); print(count.value)"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("testhost"),
    pytest.mark.skipif(os.geteuid() != 0, reason="test hosts need root"),
]


def call(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(TESTHOST), *(str(word) for word in words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)
    assert not check or done.returncode == 0, done.stderr
    return done


def on(name: str, command: str) -> str:
    return call("login", name, "--", command).stdout.strip()


def traces(name: str) -> list[str]:
    """What this machine still has of a host."""
    found = [str(path) for path in (paths.HOSTS / name, machine.SOCKETS / f"{name}.ssh") if path.exists()]
    found += [
        line
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if f"/{name}/" in line or f"gpuhost-{name} " in line
    ]
    found += [str(path) for path in Path("/sys/fs/cgroup").rglob(f"gpuhost-{name}")]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes()
        except OSError:
            continue
        if f"/hosts/{name}".encode() in words and command.parent.name != str(os.getpid()):
            found.append(f"process {command.parent.name}: {words!r}")
    return found


@pytest.fixture
def cleanup() -> Iterator[list[str]]:
    """Names of hosts to destroy when the test is over."""
    names: list[str] = []
    yield names
    for name in names:
        call("destroy", name)


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def described(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A running host of each release, as `create` described it."""
    name = f"selftest-{request.param}"
    call("destroy", name)
    yield json.loads(
        call("create", name, "--release", request.param, "--ro", f"{paths.CHECKOUT}/docs:/srv/docs").stdout
    )
    call("destroy", name)
    assert traces(name) == []


def test_a_host_is_a_whole_machine(described: dict[str, Any]) -> None:
    name = described["name"]
    assert on(name, "systemctl is-system-running") == "running"
    assert on(name, "cat /proc/1/comm") == "systemd"
    assert on(name, "systemctl list-jobs --no-legend") == ""
    assert on(name, "hostname") == name
    assert on(name, f"getent hosts {name}").split() == [described["address"], name]
    assert described["release"] in on(name, "cat /etc/os-release")


def test_ssh_and_ansible_reach_it_with_host_keys_checked(described: dict[str, Any]) -> None:
    options = [
        "-i",
        described["key"],
        "-o",
        f"UserKnownHostsFile={described['known_hosts']}",
        "-o",
        "GlobalKnownHostsFile=none",
    ]
    ssh = ["ssh", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", *options]
    done = subprocess.run([*ssh, f"root@{described['address']}", "id -un"], capture_output=True, text=True, check=True)
    assert done.stdout == "root\n"
    ping = [
        Path(sys.executable).with_name("ansible"),
        "-i",
        described["inventory"],
        "vllm",
        "-m",
        "ansible.builtin.ping",
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(paths.CHECKOUT / "ansible.cfg")}
    done = subprocess.run(ping, capture_output=True, text=True, check=True, env=environment)
    assert "pong" in done.stdout


def test_it_reaches_this_machine_and_nothing_else(described: dict[str, Any]) -> None:
    name = described["name"]
    assert on(name, "ip -4 route").splitlines() == [
        f"{network.SUBNET} dev host0 proto kernel scope link src {described['address']}"
    ]
    assert on(name, "ip -6 addr show dev host0") == ""
    listener = subprocess.Popen(
        ["python3", "-m", "http.server", "--bind", str(network.GATEWAY), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert listener.stdout is not None
        port = listener.stdout.readline().split(" port ")[1].split()[0]
        assert on(name, f"curl -s -o /dev/null -w '%{{http_code}}' http://{network.GATEWAY}:{port}/") == "200"
    finally:
        listener.kill()
        listener.wait()


def test_binds_are_read_only(described: dict[str, Any]) -> None:
    assert "architecture.md" in on(described["name"], "ls /srv/docs")
    assert "Read-only" in on(described["name"], "touch /srv/docs/x 2>&1 || true")


def test_units_have_control_groups_of_their_own(described: dict[str, Any]) -> None:
    name = described["name"]
    on(name, "systemd-run --quiet --unit=sleeper --slice=system.slice sleep 60")
    pid = on(name, "systemctl show -P MainPID sleeper")
    assert "/system.slice/sleeper.service" in on(name, f"cat /proc/{pid}/cgroup")
    on(name, "systemctl stop sleeper")
    assert on(name, f"test -d /proc/{pid} || echo ended") == "ended"


def test_a_small_file_system_can_be_filled(described: dict[str, Any]) -> None:
    name = described["name"]
    on(name, "mkdir -p /srv/small && mount -t tmpfs -o size=1m tmpfs /srv/small")
    assert "No space left" in on(name, "dd if=/dev/zero of=/srv/small/x bs=1M count=2 2>&1 || true")
    on(name, "umount /srv/small")


def test_fake_gpus_are_there_and_can_be_changed(described: dict[str, Any], tmp_path: Path) -> None:
    name = described["name"]
    assert on(name, f'python3 -c "{FAKE_COUNT}"') == "8"
    assert on(name, "ls /dev/nvidia[0-9]* | wc -l") == "8"
    assert "Open Kernel Module for x86_64  580.95.05" in on(name, "cat /proc/driver/nvidia/version")
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": 2, "kernel_module": "proprietary"}))
    call("gpus", name, tmp_path / "gpus.json")
    assert on(name, f'python3 -c "{FAKE_COUNT}"') == "2"
    assert on(name, "ls /dev/nvidia*").split() == [f"/dev/nvidia{x}" for x in ("-uvm", "-uvm-tools", "0", "1", "ctl")]
    (tmp_path / "gpus.json").write_text(json.dumps({"errors": {"nvmlInit": "DRIVER_NOT_LOADED"}}))
    call("gpus", name, tmp_path / "gpus.json")
    assert on(name, "ls /dev/nvidia* /proc/driver/nvidia 2>/dev/null || true") == ""


def test_it_reboots(described: dict[str, Any]) -> None:
    name = described["name"]
    since = "systemctl show -P UserspaceTimestampMonotonic"
    on(name, "echo kept > /root/note")
    before = on(name, since)
    call("login", name, "--", "systemctl reboot", check=False)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        after = call("login", name, "--", since, check=False).stdout.strip()
        if after not in ("", before):
            break
        time.sleep(0.2)
    assert after not in ("", before)
    assert on(name, "systemctl is-system-running --wait") == "running"
    assert on(name, "cat /root/note") == "kept"
    assert "running" in next(line for line in call("list").stdout.splitlines() if line.startswith(name))


def test_several_at_once_reach_each_other(cleanup: list[str]) -> None:
    names = ["selftest-p1", "selftest-p2", "selftest-p3"]
    cleanup += names
    with ThreadPoolExecutor() as pool:
        hosts = [json.loads(done.stdout) for done in pool.map(lambda name: call("create", name), names)]
    assert len({host["address"] for host in hosts}) == 3
    banner = f"python3 -c \"import socket; print(socket.create_connection(('{hosts[2]['address']}', 22)).recv(7))\""
    assert "SSH-2.0" in on(names[0], banner)


def test_a_second_host_of_the_same_name_is_refused_and_harms_nothing(cleanup: list[str]) -> None:
    cleanup.append("selftest-twice")
    call("create", "selftest-twice")
    second = call("create", "selftest-twice", check=False)
    assert second.returncode == 1
    assert "there is already a test host 'selftest-twice'" in second.stderr
    assert on("selftest-twice", "hostname") == "selftest-twice"


def test_a_host_that_does_not_come_up_says_why_and_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_text('{"gpus": "many"}')
    done = call("create", "selftest-broken", "--gpus", tmp_path / "gpus.json", check=False)
    assert done.returncode == 1
    assert "testhost-setup.service" in done.stderr
    assert traces("selftest-broken") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.6, 1.0])
def test_interrupted_it_leaves_nothing(number: signal.Signals, after_s: float) -> None:
    process = subprocess.Popen(
        [TESTHOST, "create", "selftest-cut"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(after_s)
    process.send_signal(number)
    code = process.wait(timeout=60)
    if code == 0:  # it was up before the signal came
        call("destroy", "selftest-cut")
    assert code in (0, 130, -number)  # the last one: before Python had started
    assert traces("selftest-cut") == []


def test_a_create_that_was_killed_is_shown_and_can_be_destroyed() -> None:
    process = subprocess.Popen([TESTHOST, "create", "selftest-killed"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (paths.HOSTS / "selftest-killed/console.log").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert "selftest-killed" in call("list").stdout
    call("destroy", "selftest-killed")
    assert traces("selftest-killed") == []


@pytest.mark.parametrize("how", ["supervisor killed", "nspawn killed", "powered off"])
def test_a_host_that_died_is_shown_as_dead_and_can_be_destroyed(how: str, cleanup: list[str]) -> None:
    name = "selftest-dying"
    cleanup.append(name)
    call("create", name)
    host = machine.load(name)
    if how == "powered off":
        call("login", name, "--", "systemctl poweroff", check=False)
    else:
        os.kill(
            host.supervisor if how == "supervisor killed" else processes.children(host.supervisor)[0], signal.SIGKILL
        )
    deadline = time.monotonic() + 30
    while host.status != "dead" and time.monotonic() < deadline:
        time.sleep(0.05)
    described = {entry["name"]: entry["status"] for entry in json.loads(call("list", "--json").stdout)}
    assert described[name] == "dead"
    call("destroy", name)
    assert traces(name) == []


def test_a_saved_host_is_what_others_start_from(cleanup: list[str]) -> None:
    cleanup += ["selftest-saved", "selftest-again"]
    call("create", "selftest-saved")
    first = on("selftest-saved", "echo built > /opt/built && rm /etc/issue && cat /etc/machine-id")
    call("save", "selftest-saved", "selftest-layer")
    assert traces("selftest-saved") == []
    try:
        call("create", "selftest-again", "--layer", "selftest-layer")
        assert on("selftest-again", "cat /opt/built") == "built"
        assert on("selftest-again", "test -e /etc/issue || echo gone") == "gone"
        assert on("selftest-again", "cat /etc/machine-id") != first
        assert on("selftest-again", "hostname") == "selftest-again"
        in_use = call("layers", "--remove", "selftest-layer", check=False)
        assert "in use by selftest-again" in in_use.stderr
        call("destroy", "selftest-again")
    finally:
        call("destroy", "selftest-again")
        call("layers", "--remove", "selftest-layer")
    missing = call("create", "selftest-again", "--layer", "selftest-layer", check=False)
    assert "make it with" in missing.stderr


def test_memory_is_limited_for_all_its_processes(cleanup: list[str]) -> None:
    cleanup.append("selftest-memory")
    call("create", "selftest-memory", "--memory", "400M")
    assert on("selftest-memory", "python3 -c 'bytearray(300 << 20)' && echo fits") == "fits"
    assert on("selftest-memory", "python3 -c 'bytearray(600 << 20)' || echo killed").endswith("killed")
