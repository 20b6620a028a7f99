"""What the test host tools decide before anything boots."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.host import cgroups, cli, command, image, layers, machine, network, paths, processes
from tests.host.errors import HostError
from tests.host.locks import locked


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hosts and layers in a folder of this test."""
    monkeypatch.setattr(machine, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(machine, "REGISTRY_LOCK", tmp_path / "hosts/.lock")
    monkeypatch.setattr(layers, "LAYERS", tmp_path / "layers")
    monkeypatch.setattr(machine, "ensure_image", no_host_here)
    return tmp_path


def no_host_here(release: str) -> image.Image:
    raise AssertionError(f"these tests must not come as far as an image of {release}")


def host(**changes: Any) -> machine.Host:
    return machine.Host(
        **{"name": "one", "release": "bookworm", "address": "10.231.0.7", "image": "bookworm-0", **changes}
    )


@pytest.mark.parametrize("name", ["", "One", "1host", "a" * 41, "a_b", "../etc", "a/b", "-a"])
def test_names_that_are_no_host_names_are_refused(store: Path, name: str) -> None:
    with pytest.raises(HostError, match="is no name for a host"):
        machine.create(name, "bookworm")
    assert not (store / "hosts").exists()


@pytest.mark.parametrize("bind", ["/no/such/folder:/x", "/tmp", "/tmp:relative", ":/x"])
def test_binds_are_checked_before_anything_is_made(store: Path, bind: str) -> None:
    with pytest.raises(HostError, match="wanted SRC:DST"):
        machine.create("one", "bookworm", binds=[bind])
    assert not (store / "hosts").exists()


def test_fake_gpus_must_be_json(store: Path, tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_text("{")
    with pytest.raises(HostError, match=r"gpus\.json is no JSON"):
        machine.create("one", "bookworm", gpus=tmp_path / "gpus.json")


def test_unknown_host_and_release_are_named() -> None:
    with pytest.raises(HostError, match="no test host 'nobody'"):
        machine.load("nobody")
    with pytest.raises(HostError, match="bookworm, trixie"):
        image.image("sid")


def test_addresses_are_given_out_from_below_and_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "SUBNET", network.ipaddress.IPv4Network("10.9.9.0/29"))
    monkeypatch.setattr(network, "GATEWAY", network.ipaddress.IPv4Address("10.9.9.1"))
    assert network.free_address([]) == "10.9.9.2"
    assert network.free_address(["10.9.9.2", "10.9.9.4"]) == "10.9.9.3"
    with pytest.raises(HostError, match="all addresses"):
        network.free_address(f"10.9.9.{number}" for number in range(1, 7))


def test_mac_addresses_are_local_unicast_and_follow_the_address() -> None:
    assert network.mac_address("10.231.0.7") == "02:67:0a:e7:00:07"


def test_inventory_keeps_host_key_checking(store: Path) -> None:
    inventory = yaml.safe_load(machine.inventory(host(), "gpus"))
    variables = inventory["all"]["children"]["gpus"]["hosts"]["one"]
    assert variables["ansible_host"] == "10.231.0.7"
    assert f"UserKnownHostsFile={store}/hosts/one/known_hosts" in variables["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=no" not in variables["ansible_ssh_common_args"]


def test_a_control_socket_fits_into_a_socket_address() -> None:
    longest = str(host(name="a" * 40).control_socket) + ".0123456789abcdef"  # as ssh names it while it is being made
    assert len(longest) < 108


def test_a_host_is_read_as_it_was_recorded(store: Path) -> None:
    written = host(layers=["vllm"], binds=["/a:/b"], memory_bytes=1)
    written.folder.mkdir(parents=True)
    written.record()
    assert machine.load("one") == written
    assert machine.all_hosts() == [written]
    assert written.status == "dead"


def test_a_process_number_given_away_again_is_not_mistaken() -> None:
    own = os.getpid()
    assert processes.is_alive(own, processes.start_time(own))
    assert not processes.is_alive(own, "1")
    assert not processes.is_alive(own, "")
    assert processes.start_time(4194999) == ""


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + 10
    while processes.start_time(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes.start_time(process.pid) == ""
    process.wait()


def test_locks_keep_others_out(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_failed_program_is_quoted() -> None:
    with pytest.raises(HostError, match=r"exit code 3 from sh -c 'echo because >&2; exit 3'\nbecause"):
        command.run("sh", "-c", "echo because >&2; exit 3")
    with pytest.raises(HostError, match="no-such-program is not installed"):
        command.run("no-such-program")


def test_the_image_is_named_by_what_goes_into_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = image.image("bookworm")
    assert image.image("bookworm") == before
    assert image.image("trixie").base != before.base
    assert image.image("trixie").extras == before.extras
    monkeypatch.setattr(image, "MMDEBSTRAP", (*image.MMDEBSTRAP, "--include=vim"))
    assert image.image("bookworm").base != before.base
    (tmp_path / "sshd.conf").write_text("")
    monkeypatch.setattr(image, "GUEST", tmp_path)
    assert image.image("bookworm").extras != before.extras


def test_a_build_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(image, "IMAGES", tmp_path)

    def broken(root: Path) -> None:
        root.mkdir()
        raise HostError("no mirror")

    with pytest.raises(HostError, match="no mirror"):
        image._ensure(tmp_path / "bookworm-1", broken)
    assert [path.name for path in tmp_path.iterdir()] == [".bookworm-1.lock"]


def test_parallel_builders_build_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(image, "IMAGES", tmp_path)
    builds: list[Path] = []

    def slow(root: Path) -> None:
        builds.append(root)
        time.sleep(0.1)
        root.mkdir()

    threads = [threading.Thread(target=image._ensure, args=(tmp_path / "bookworm-1", slow)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(builds) == 1
    assert (tmp_path / "bookworm-1").is_dir()


def test_a_layer_keeps_what_was_changed_but_not_who_the_host_was(store: Path) -> None:
    upper = store / "upper"
    for name in ("etc/machine-id", "etc/testhost/network.env", "opt/vllm/x", "root/.ssh/authorized_keys", "var/tmp/y"):
        (upper / name).parent.mkdir(parents=True, exist_ok=True)
        (upper / name).write_text("")
    layers.save_layer(upper, "vllm-1", "bookworm-0")
    root = layers.find_layer("vllm-1", "bookworm-0")
    assert [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()] == ["opt/vllm/x"]
    assert layers.all_layers() == {"vllm-1": "bookworm-0"}
    with pytest.raises(HostError, match="belongs on image bookworm-0"):
        layers.find_layer("vllm-1", "trixie-0")
    layers.remove_layer("vllm-1")
    with pytest.raises(HostError, match="make it with"):
        layers.find_layer("vllm-1", "bookworm-0")


@pytest.mark.parametrize("key", ["", "../x", "A", "a/b"])
def test_layer_keys_stay_in_their_folder(store: Path, key: str) -> None:
    with pytest.raises(HostError):
        layers.save_layer(store, key, "bookworm-0")
    with pytest.raises(HostError):
        layers.remove_layer(key)


@pytest.mark.parametrize(("text", "size"), [("512M", 512 << 20), ("2g", 2 << 30), ("4096", 4096), ("1K", 1024)])
def test_sizes(text: str, size: int) -> None:
    assert cli._size(text) == size


@pytest.mark.parametrize("text", ["", "M", "1T", "1.5G", "-1", "0"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        cli._size(text)


def test_every_hierarchy_gives_a_host_its_own_group() -> None:
    found = cgroups.folders("one")
    assert found
    assert {folder.name for folder in found.values()} == {"gpuhost-one"}


def test_the_network_is_told_without_making_it() -> None:
    assert json.loads(json.dumps(network.describe()))["address"] == str(network.GATEWAY)
    assert paths.HOSTS.is_relative_to(paths.CACHE)
