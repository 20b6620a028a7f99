"""A deploy is a transaction: what does not become healthy is taken back, and the good ones are kept."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.deployment import (
    Deployment,
    Places,
    apply,
    apply_to_next_start,
    difference,
    exists,
    gpu_conflicts,
    records,
    remove,
    require_instances,
    roll_back,
)
from ansible_collections.gpuhost.vllm.plugins.modules import vllm_deployment

from tests.unit.module_process import module_process


class FakeSystemd:
    """Starts a unit if its text does not say ``broken``; ``log`` is what was asked of it."""

    def __init__(self, units: Path) -> None:
        self.units = units
        self.running: set[str] = set()
        self.enabled: set[str] = set()
        self.log: list[str] = []

    def is_running(self, unit: str) -> bool:
        return unit in self.running

    def start(self, unit: str) -> float:
        self.log.append(f"start {unit}")
        self.running.discard(unit)
        if "broken" in (self.units / unit).read_text():
            raise VllmHostError(
                "service_not_ready", f"{unit} did not become healthy.", cause={"id": "x"}, log=["last words"]
            )
        self.running.add(unit)
        return 31.5

    def stop(self, unit: str) -> None:
        self.log.append(f"stop {unit}")
        self.running.discard(unit)

    def enable(self, unit: str) -> bool:
        self.enabled.add(unit)
        return True

    def remove(self, unit: str) -> None:
        self.running.discard(unit)
        self.enabled.discard(unit)

    def reload(self) -> None:
        self.log.append("reload")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "deployments", tmp_path / "etc", tmp_path / "units")


@pytest.fixture
def systemd(places: Places) -> FakeSystemd:
    return FakeSystemd(places.units)


@pytest.fixture
def look(places: Places) -> Callable[[], dict[str, str]]:
    return lambda: {path.name: path.read_text() for path in places.live("tiny").values() if path.exists()}


ONE = Deployment(
    "tiny", "unit 1", "config 1", 'VLLM_API_KEY="hunter 1"\n', {"instance": "tiny", "device": "cuda", "gpus": [0]}
)
TWO = replace(ONE, unit="unit 2", config="config 2", environment='VLLM_API_KEY="hunter 2"\n')
BROKEN = replace(ONE, unit="broken", config="config broken")
FILES_OF_ONE = {"vllm-tiny.service": "unit 1", "tiny.yaml": "config 1", "tiny.env": 'VLLM_API_KEY="hunter 1"\n'}


def test_the_first_deploy(places: Places, systemd: FakeSystemd, look: Callable[[], dict[str, str]]) -> None:
    assert difference(ONE, places, running=False).restart
    assert apply(ONE, places, systemd) == 31.5
    assert look() == FILES_OF_ONE
    assert systemd.enabled == systemd.running == {"vllm-tiny.service"}
    assert stat.S_IMODE((places.configuration / "tiny.env").stat().st_mode) == 0o600
    assert stat.S_IMODE((places.deployments / "tiny/current/environment").stat().st_mode) == 0o600
    assert stat.S_IMODE((places.deployments / "tiny").stat().st_mode) == 0o700
    assert not difference(ONE, places, running=True).restart
    assert records(places) == {"tiny": ONE.record}


def test_a_stopped_service_is_started_although_no_file_differs(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    found = difference(ONE, places, running=False)
    assert found.restart and "not running" in found.before


def test_the_first_deploy_fails_and_leaves_nothing(
    places: Places, systemd: FakeSystemd, look: Callable[[], dict[str, str]]
) -> None:
    with pytest.raises(VllmHostError, match="did not become healthy.*no earlier deployment") as raised:
        apply(BROKEN, places, systemd)
    assert raised.value.code == "deploy_failed"
    assert raised.value.details["cause"] == {"id": "x"}
    assert raised.value.details["restored"]["deployment"] is None
    assert look() == {} and systemd.enabled == systemd.running == set()
    assert records(places) == {} and not exists("tiny", places)


def test_a_failed_deploy_goes_back(places: Places, systemd: FakeSystemd, look: Callable[[], dict[str, str]]) -> None:
    apply(ONE, places, systemd)
    with pytest.raises(VllmHostError, match="put back and is healthy") as raised:
        apply(BROKEN, places, systemd)
    assert raised.value.details["restored"]["healthy"]
    assert look() == FILES_OF_ONE and systemd.running == {"vllm-tiny.service"}
    # The broken one is stopped before its files are replaced: systemd would be restarting it meanwhile.
    assert systemd.log[-3:] == ["stop vllm-tiny.service", "reload", "start vllm-tiny.service"]
    assert not difference(ONE, places, running=True).restart


def test_other_time_outs_wait_for_the_next_start(places: Places, systemd: FakeSystemd) -> None:
    unit = "ExecStartPost=+python -m ready --url=http://x --timeout={0}\nTimeoutStartSec={0}\nRestart=always\n"
    environment = 'VLLM_ENGINE_READY_TIMEOUT_S="{}"\n'
    old, new = (replace(ONE, unit=unit.format(time), environment=environment.format(time)) for time in (900, 1800))
    apply(TWO, places, systemd)
    apply(old, places, systemd)
    log = list(systemd.log)
    found = difference(new, places, running=True)
    assert found.changed and not found.restart and "1800" in found.after
    apply_to_next_start(new, places, systemd)
    assert systemd.log == [*log, "reload"]
    assert not difference(new, places, running=True).changed
    assert (places.deployments / "tiny/current/unit").read_text() == new.unit
    assert (places.deployments / "tiny/previous/unit").read_text() == TWO.unit, "what a rollback goes to stays"
    assert difference(replace(new, unit=new.unit.replace("always", "no")), places, running=True).restart
    assert difference(new, places, running=False).restart


@pytest.mark.parametrize("where", ["configuration", "units", "deployments"])
def test_what_cannot_be_written_stops_nothing(
    places: Places, systemd: FakeSystemd, look: Callable[[], dict[str, str]], where: str
) -> None:
    apply(ONE, places, systemd)
    log = list(systemd.log)
    blocked = getattr(places, where) / "in-the-way"
    blocked.write_text("a file where a folder is wanted")
    with pytest.raises(VllmHostError, match="cannot be written.*The service was not touched") as raised:
        apply(TWO, replace(places, **{where: blocked}), systemd)
    assert raised.value.code == "files_not_written"
    blocked.unlink()
    assert look() == FILES_OF_ONE and systemd.log == log
    assert [path.name for path in (places.deployments / "tiny").iterdir()] == ["current"]
    assert not [path for folder in (places.units, places.configuration) for path in folder.glob(".*")]


def test_what_was_installed_by_hand_is_worth_going_back_to(
    places: Places, systemd: FakeSystemd, look: Callable[[], dict[str, str]]
) -> None:
    apply(ONE, places, systemd)
    remove_store = places.deployments / "tiny/current"
    for path in remove_store.iterdir():
        path.unlink()
    remove_store.rmdir()
    with pytest.raises(VllmHostError):
        apply(BROKEN, places, systemd)
    assert look() == FILES_OF_ONE


def test_the_last_good_one_does_not_start_either(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    start = systemd.start

    def fail(unit: str) -> float:
        start(unit)
        raise VllmHostError("service_not_ready", "the disk is full.")

    systemd.start = fail  # type: ignore[method-assign]
    with pytest.raises(VllmHostError, match="does not start either: the disk is full") as raised:
        apply(TWO, places, systemd)
    assert not raised.value.details["restored"]["healthy"]


def test_roll_back_swaps(places: Places, systemd: FakeSystemd, look: Callable[[], dict[str, str]]) -> None:
    apply(ONE, places, systemd)
    with pytest.raises(VllmHostError) as raised:
        roll_back("tiny", places, systemd)
    assert raised.value.code == "nothing_to_roll_back_to"
    apply(TWO, places, systemd)
    roll_back("tiny", places, systemd, dry=True)
    assert look()["vllm-tiny.service"] == "unit 2"
    assert roll_back("tiny", places, systemd)["gpus"] == [0]
    assert look() == FILES_OF_ONE
    roll_back("tiny", places, systemd)
    assert look()["vllm-tiny.service"] == "unit 2"


def test_roll_back_to_a_release_that_is_gone(places: Places, systemd: FakeSystemd, tmp_path: Path) -> None:
    apply(replace(ONE, record={"release": str(tmp_path / "releases/0.31.0-x")}), places, systemd)
    apply(TWO, places, systemd)
    with pytest.raises(VllmHostError, match=r"0\.31\.0-x, which is gone") as raised:
        roll_back("tiny", places, systemd)
    assert raised.value.code == "rollback_incomplete"


def test_deploying_the_same_again_keeps_the_one_before(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    apply(TWO, places, systemd)
    apply(TWO, places, systemd)
    assert (places.deployments / "tiny/previous/unit").read_text() == "unit 1"


def test_secrets_are_not_shown(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    found = difference(
        replace(ONE, environment='VLLM_API_KEY="hunter 2\nof two lines"\nA="same"\n'), places, running=True
    )
    assert found.restart
    assert "hunter" not in found.before + found.after and "two lines" not in found.after
    assert "VLLM_API_KEY=(another value)" in found.after


def test_remove(places: Places, systemd: FakeSystemd) -> None:
    assert not exists("tiny", places)
    apply(ONE, places, systemd)
    assert exists("tiny", places)
    remove("tiny", places, systemd)
    assert not exists("tiny", places) and systemd.running == systemd.enabled == set()


def test_a_new_name(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    apply(replace(ONE, instance="big", record={"instance": "big"}), places, systemd, replaces=["tiny"])
    assert systemd.running == {"vllm-big.service"}
    assert not exists("tiny", places) and list(records(places)) == ["big"]


def test_a_new_name_that_fails_leaves_the_old_one_running(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    with pytest.raises(VllmHostError, match=r"vllm-tiny\.service, which was to be replaced, runs again"):
        apply(replace(BROKEN, instance="big"), places, systemd, replaces=["tiny"])
    assert systemd.running == {"vllm-tiny.service"}
    assert not (places.units / "vllm-big.service").exists()


@pytest.mark.parametrize(
    "gpus, device, others, conflicts",
    [
        ([0, 1], "cuda", {"a": {"gpus": [2, 3]}}, []),
        ([0, 1], "cuda", {"a": {"gpus": [1, 2]}}, [{"instance": "a", "gpus": [1]}]),
        ([], "cuda", {"a": {"gpus": [1, 2]}}, [{"instance": "a", "gpus": [1, 2]}]),
        ([3], "cuda", {"a": {"gpus": []}}, [{"instance": "a", "gpus": [3]}]),
        ([], "cuda", {"a": {}}, [{"instance": "a", "gpus": []}]),
        ([], "cpu", {"a": {"gpus": []}}, []),
        ([], "cuda", {"a": {"device": "cpu"}}, []),
    ],
)
def test_gpus_that_another_instance_claims(gpus: list[int], device: str, others: dict, conflicts: list) -> None:  # type: ignore[type-arg]
    assert gpu_conflicts(gpus, device, others) == conflicts


def test_the_record_is_json(places: Places, systemd: FakeSystemd) -> None:
    apply(ONE, places, systemd)
    assert json.loads((places.deployments / "tiny/current/record.json").read_text()) == ONE.record


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "x/../..", "a b", "UPPER", "ü", "a\n", "-a", "a-", "a" * 41, "a" * 5000, "a.b", "/"]
)
def test_what_is_no_name_of_an_instance_is_refused(name: str) -> None:
    """A name becomes folders that are removed: '..' would be all of /var/lib/vllm."""
    with pytest.raises(VllmHostError) as caught:
        require_instances("kimi-k25", name)
    assert (
        caught.value.code == "instance_invalid" and len(caught.value.message) < 400 and "\n" not in caught.value.message
    )


def test_the_module_removes_nothing_for_such_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (
        {"instance": "..", "state": "absent"},
        {"instance": "x/../../y", "state": "previous"},
        {"instance": "x", "unit": "", "config": "", "replaces": [".."]},
    ):
        with (
            module_process(options),
            pytest.raises(SystemExit),
            mock.patch.object(vllm_deployment, "SystemdService") as systemd,
        ):
            vllm_deployment.main()
        assert json.loads(capsys.readouterr().out)["failure"]["code"] == "instance_invalid"
        assert not systemd.return_value.mock_calls


@pytest.mark.parametrize("text", ["{", "[]", "5", "[" * 100_000, "\x00"])
def test_a_damaged_record_is_named(places: Places, systemd: FakeSystemd, text: str) -> None:
    apply(ONE, places, systemd)
    path = places.saved("tiny", "current") / "record.json"
    path.write_text(text)
    with pytest.raises(VllmHostError, match="record.json is damaged") as caught:
        records(places)
    assert caught.value.code == "record_unreadable"


def test_a_file_of_somebody_s_hand_is_put_back_byte_for_byte(places: Places, systemd: FakeSystemd) -> None:
    by_hand = {"unit": b"unit 1\r\n", "config.yaml": b"model: \xff\r\n", "environment": b'A="\xe9"\n'}
    for name, path in places.live("tiny").items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(by_hand[name])
    shown = difference(BROKEN, places, running=True)
    json.dumps([shown.before, shown.after], ensure_ascii=False).encode("utf-8")
    with pytest.raises(VllmHostError):
        apply(BROKEN, places, systemd)
    assert {name: path.read_bytes() for name, path in places.live("tiny").items()} == by_hand
