"""When a driver is left alone, installed, matched to its container's host or refused; and when a reboot is needed and allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu import info, kernel
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.decision import decide, reboot
from clients import client, refuse
from machines import OPEN, PROPRIETARY, add_gpu, load_module, write

REAL = json.loads((Path(__file__).parent / "data/h200.json").read_text())
NO_LIBRARY = {"nvmlInit": refuse(12)}
NOT_LOADED = {"nvmlInit": refuse(9)}


@pytest.fixture
def facts(tmp_path, monkeypatch):
    """Facts of a machine with one Blackwell; ``module`` is the loaded release, None for none."""
    nodes = {"gpus": ["/dev/nvidia0"], "control": True, "uvm": True, "uvm_tools": True}
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: nodes)

    def make(module="580.95.05", container="", text=None, gpus=1, pynvml=True, **calls):
        if gpus:
            add_gpu(tmp_path, 0)
        if module:
            load_module(tmp_path, module, **({"text": text} if text else {}))
        if container:
            write(tmp_path, "run/systemd/container", container)
        calls.setdefault("nvmlSystemGetDriverVersion", lambda: module)
        return info.collect(client(gpus, **calls) if pynvml else None, tmp_path)

    return make


def test_the_real_h200_is_left_alone():
    assert decide(REAL, "580")["action"] == "none"


def test_a_fresh_machine_gets_everything(facts):
    decision = decide(facts(module=None, **NO_LIBRARY), "580")
    assert (decision["action"], decision["release"], decision["exact"]) == ("everything", "580", False)
    assert decision["reasons"] == ["NVML does not start: library_missing"]


def test_a_working_driver_is_left_alone(facts):
    assert decide(facts(), "580")["action"] == "none"


@pytest.mark.parametrize(
    ("module", "settings", "action"),
    [
        ("570.133.20", {}, "everything"),
        ("590.44.01", {}, "none"),  # newer, and it works
        ("590.44.01", {"downgrade": True}, "everything"),
        ("580.95.05", {"version": "580.95.05"}, "none"),
        ("580.95.05", {"version": "580.105.08"}, "everything"),
        ("580.95.05", {"kernel_modules": "skip"}, "none"),
    ],
)
def test_which_driver_does(facts, module, settings, action):
    library = f"13.{module}"
    assert decide(facts(module, nvmlSystemGetNVMLVersion=lambda: library), "580", **settings)["action"] == action


def test_numbers_from_yaml_are_releases_too(facts):
    found = facts()
    assert decide(found, 580)["action"] == "none"
    assert decide(found, 590)["release"] == "590"


# Under the proprietary flavour NVML starts and counts no Blackwell.
REFUSED_BLACKWELL = {"text": PROPRIETARY, "nvmlDeviceGetCount": lambda: 0}


@pytest.mark.parametrize(
    "wrong",
    [
        REFUSED_BLACKWELL,
        {**REFUSED_BLACKWELL, "pynvml": False},
        {"text": PROPRIETARY},  # counted all the same, as by the library of the test hosts
        {"nvmlSystemGetNVMLVersion": lambda: "13.580.105.08"},
    ],
)
def test_the_wrong_flavour_and_a_mismatch_are_mended_on_a_machine(facts, wrong):
    assert decide(facts(**wrong), "580")["action"] == "everything"


def test_without_a_gpu_nothing_is_installed(facts):
    decision = decide(facts(module=None, gpus=0, **NO_LIBRARY), "580")
    assert (decision["action"], "no NVIDIA GPU" in decision["reasons"][0]) == ("refuse", True)


def test_an_image_is_built_without_a_gpu(facts):
    built = facts(module=None, gpus=0, container="systemd-nspawn", **NO_LIBRARY)
    assert decide(built, "580", kernel_modules="install")["action"] == "everything"


def test_a_container_gets_the_library_of_its_hosts_module(facts):
    decision = decide(facts("575.57.08", container="lxc", **NO_LIBRARY), "580")
    assert (decision["action"], decision["release"], decision["exact"]) == ("user_space", "575.57.08", True)
    assert "it must be 575.57.08" in decision["reasons"][0]


def test_a_container_is_told_when_its_host_is_behind_the_branch():
    assert len(decide(REAL, "580")["reasons"]) == 1
    behind = "branch 595 is wanted, and must be installed on the host of this container first"
    assert decide(REAL, "595")["reasons"][1:] == [behind]
    assert len(decide(REAL, "595", version=REAL["driver_version"])["reasons"]) == 1


@pytest.mark.parametrize("state", [NO_LIBRARY, NOT_LOADED])
def test_a_container_whose_host_has_no_driver_is_refused(facts, state):
    decision = decide(facts(module=None, container="lxc", **state), "580")
    assert (decision["action"], "must be on the host of this container" in decision["reasons"][0]) == ("refuse", True)


@pytest.mark.parametrize("calls", [REFUSED_BLACKWELL, {"text": PROPRIETARY}])
def test_a_container_on_the_proprietary_flavour_is_refused(facts, calls):
    decision = decide(facts(container="lxc", **calls), "580")
    assert (decision["action"], "proprietary" in decision["reasons"][0]) == ("refuse", True)


def test_a_container_cannot_have_another_release_than_its_host(facts):
    decision = decide(facts(container="lxc"), "580", version="580.105.08")
    assert (decision["action"], "the two must be equal" in decision["reasons"][0]) == ("refuse", True)


def test_wsl_is_not_ours(facts):
    assert decide(facts(container="wsl"), "580")["action"] == "refuse"


def test_in_check_mode_without_pynvml_the_kernel_tells(facts):
    assert decide(facts(pynvml=False), "580")["action"] == "none"


def test_in_check_mode_without_pynvml_and_module_it_would_install(facts):
    assert decide(facts(module=None, pynvml=False), "580")["reasons"] == ["no driver is loaded"]


@pytest.mark.parametrize(
    ("module", "installed", "allowed", "local", "needed", "do"),
    [
        ("580.95.05", "580.95.05", True, False, False, False),
        ("580.95.05", "590.44.01", True, False, True, True),
        ("580.95.05", "590.44.01", False, False, True, False),
        ("580.95.05", "590.44.01", True, True, True, False),
        (None, "590.44.01", True, False, True, True),
    ],
)
def test_reboot(facts, module, installed, allowed, local, needed, do):
    calls = {} if module else NOT_LOADED
    found = reboot(facts(module, **calls), installed, allowed, local)
    assert (found["needed"], found["do"]) == (needed, do)
    assert bool(found["why"]) == needed


def test_what_a_boot_did_not_mend_is_not_booted_again(facts):
    """Each run would else reboot a machine whose firmware refuses the module."""
    found = reboot(facts(None, **NOT_LOADED), "590.44.01", True, False, tried=True)
    assert (found["needed"], found["do"]) == (False, False)
    assert found["why"] == [
        "the kernel module nvidia could not be loaded",
        "a boot since the installation did not help, see `dmesg`",
    ]


def _flavours(facts, text, installed):
    found = facts(text=text)
    found["kernel_module"]["installed_flavour"] = installed
    return found


@pytest.mark.parametrize(
    ("text", "installed", "needed"),
    [
        (PROPRIETARY, "open", True),
        (OPEN, "proprietary", True),
        (OPEN, "open", False),
        (PROPRIETARY, "proprietary", False),
        (PROPRIETARY, None, False),  # no modinfo
    ],
)
def test_the_other_flavour_of_the_same_release_needs_a_boot(facts, text, installed, needed):
    found = reboot(_flavours(facts, text, installed), "580.95.05", True, False)
    assert (found["needed"], found["do"], bool(found["why"])) == (needed, needed, needed)


def test_another_flavour_is_told_and_booted_once(facts):
    found = _flavours(facts, PROPRIETARY, "open")
    why = "kernel module 580.95.05 of the proprietary flavour is loaded, the open one is installed"
    assert reboot(found, "", True, False) == {"needed": True, "do": True, "why": [why]}
    again = reboot(found, "580.95.05", True, False, tried=True)
    assert (again["needed"], again["do"]) == (False, False)
    assert again["why"] == [why, "a boot since the installation did not help, see `dmesg`"]


def test_another_release_than_the_loaded_one_is_booted_whenever_it_came(facts):
    """An unattended upgrade leaves no note of ours."""
    assert reboot(facts("580.95.05"), "590.44.01", True, False, tried=True)["do"]


def test_options_that_changed_need_a_reboot_like_any_other(facts):
    good = facts()
    assert not reboot(good, "580.95.05", True, False)["needed"]
    found = reboot(good, "", False, False, options_changed=True)
    assert (found["needed"], found["do"]) == (True, False)
    assert found["why"][0] == "the options of the kernel modules changed since they were loaded"
    assert reboot(good, "", True, False, tried=True, options_changed=True)["do"]


def test_a_container_is_never_rebooted(facts):
    found = reboot(facts(container="lxc"), "590.44.01", True, False)
    assert (found["do"], found["why"][-1]) == (False, "this is a container: reboot its host")
