"""Each known trouble is found from the facts that show it, and only from them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu import info, kernel
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.problems_data import KNOWN
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu.requirements import report, unmet
from clients import client, fabric, refuse
from machines import PROPRIETARY, add_gpu, add_nvswitch, load_module, write

DATA = Path(__file__).parent / "data"
NODES = {"gpus": ["/dev/nvidia0", "/dev/nvidia1"], "control": True, "uvm": True, "uvm_tools": True}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A healthy host with two GPUs; tests then break one thing. Device nodes need root, so they are given."""
    add_gpu(tmp_path, 0, iommu="identity")
    add_gpu(tmp_path, 1, iommu="identity")
    load_module(tmp_path)
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: NODES)
    return tmp_path


def _found(root, nvml=None, **options):
    return {problem["id"]: problem for problem in info.collect(nvml or client(2), root, **options)["problems"]}


def test_a_healthy_host_has_no_problems(host):
    assert _found(host) == {}


def test_the_real_h200_had_no_problems_and_can_serve():
    facts = json.loads((DATA / "h200.json").read_text())
    assert unmet(facts, minimum_driver="580", minimum_compute_capability="9.0", expected_gpus=1) == []
    assert facts["gpus"][0]["cuda_visible_bytes"] == 150_109_880_320  # cudaMemGetInfo on the same machine
    assert report(facts)[1] == "1 x NVIDIA H200, 143,771 MiB, compute capability 9.0: GPU 0"


def test_facts_have_the_shape_of_the_real_ones(host):
    real = json.loads((DATA / "h200.json").read_text())
    ours = info.collect(client(1), host, log=[])
    assert sorted(ours) == sorted(real)
    assert sorted(ours["gpus"][0]) == sorted(real["gpus"][0])
    for key in ("kernel_module", "nvml", "device_nodes", "p2p"):
        assert sorted(ours[key]) == sorted(real[key])
    for key in ("pcie", "fabric", "ecc", "mig", "power", "temperature", "remapped_rows"):
        assert sorted(ours["gpus"][0][key]) == sorted(real["gpus"][0][key])
    assert sorted(ours["pci_gpus"][0]) == sorted(real["pci_gpus"][0])


@pytest.mark.parametrize(
    ("calls", "identity", "severity"),
    [
        ({"nvmlInit": refuse(12)}, "library_missing", "error"),
        ({"nvmlInit": refuse(9)}, "driver_not_loaded", "error"),
        ({"nvmlInit": refuse(4)}, "nvml_no_permission", "error"),
        ({"nvmlInit": refuse(18)}, "driver_library_mismatch", "error"),
        ({"nvmlInit": refuse(999)}, "nvml_error", "error"),
        ({"nvmlSystemGetNVMLVersion": lambda: "13.580.105.08"}, "driver_library_mismatch", "error"),
        ({"nvmlDeviceGetHandleByIndex": refuse(15)}, "gpu_lost", "error"),
        ({"nvmlDeviceGetPersistenceMode": refuse(15)}, "gpu_lost", "error"),
        ({"nvmlDeviceGetMemoryInfo": refuse(16)}, "gpu_reset_required", "error"),
        ({"nvmlDeviceGetCount": lambda: 0}, "gpu_not_served", "error"),
        ({"nvmlDeviceGetCount": lambda: 1}, "gpu_not_served", "error"),
        ({"nvmlDeviceGetRemappedRows": lambda _h: (0, 3, 0, 1)}, "row_remap_failed", "error"),
        ({"nvmlDeviceGetRemappedRows": lambda _h: (0, 3, 1, 0)}, "row_remap_pending", "warning"),
        ({"nvmlDeviceGetTotalEccErrors": lambda *_a: 2}, "ecc_uncorrected", "warning"),
        ({"nvmlDeviceGetComputeMode": lambda _h: 2}, "prohibited", "error"),
        ({"nvmlDeviceGetMigMode": lambda _h: [1, 1]}, "mig_enabled", "warning"),
        ({"nvmlDeviceGetPersistenceMode": lambda _h: 0}, "persistence_off", "warning"),
        ({"nvmlDeviceGetEnforcedPowerLimit": lambda _h: 300_000}, "power_limited", "warning"),
        ({"nvmlDeviceGetTemperature": lambda *_a: 90}, "hot", "warning"),
        ({"nvmlDeviceGetCurrPcieLinkWidth": lambda _h: 4}, "pcie_width", "warning"),
        ({"nvmlDeviceGetP2PStatus": lambda *_a: 1}, "p2p_unavailable", "warning"),
        ({"nvmlDeviceGetName": lambda h: f"kind {h}"}, "mixed_gpus", "warning"),
    ],
)
def test_a_trouble_that_nvml_shows(host, calls, identity, severity):
    problem = _found(host, client(2, **calls))[identity]
    assert problem["severity"] == severity
    assert problem["found"] and problem["cost"] and problem["remedy"] and problem["source"]


def test_without_pynvml(host):
    assert info.collect(None, host)["problems"][0]["id"] == "client_missing"


def test_a_mismatch_names_both_releases(host):
    found = _found(host, client(2, nvmlInit=refuse(18), nvmlSystemGetNVMLVersion=lambda: "13.580.105.08"))
    assert "library 580.105.08, kernel module 580.95.05" in found["driver_library_mismatch"]["found"]


def test_under_the_proprietary_flavour_a_blackwell_is_not_counted(host):
    write(host, "proc/driver/nvidia/version", PROPRIETARY.format("580.95.05"))
    found = _found(host, client(0))
    assert set(found) == {"proprietary_on_blackwell", "gpu_not_served"}
    assert found["proprietary_on_blackwell"]["found"] == (
        "module 580.95.05 is the proprietary flavour, which does not start 0000:01:00.0 (10de:2bb5), 0000:02:00.0 (10de:2bb5)"
    )


def test_under_the_proprietary_flavour_a_blackwell_beside_another_gpu_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: NODES)
    add_gpu(tmp_path, 0, device="2330")
    add_gpu(tmp_path, 1)
    load_module(tmp_path, text=PROPRIETARY)
    hopper = {"nvmlDeviceGetCudaComputeCapability": lambda _h: (9, 0)}
    found = _found(tmp_path, client(1, **hopper))["proprietary_on_blackwell"]
    assert (found["gpus"], "0000:02:00.0 (10de:2bb5)" in found["found"]) == ([], True)
    write(tmp_path, "run/systemd/container", "lxc\n")  # which was given the Hopper only
    assert _found(tmp_path, client(1, **hopper)) == {}


def test_a_card_that_we_do_not_know_is_told_by_the_kernel_log(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: NODES)
    add_gpu(tmp_path, 0, device="3999")
    load_module(tmp_path, text=PROPRIETARY)
    log = [
        "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:3999)",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
    ]
    assert "proprietary_on_blackwell" not in _found(tmp_path, client(0))
    assert "proprietary_on_blackwell" in _found(tmp_path, client(0), log=log)
    load_module(tmp_path, uvm=False)  # the open one was loaded since: the log is of before
    assert "proprietary_on_blackwell" not in _found(tmp_path, client(0), log=log)


def test_a_gpu_that_a_virtual_machine_has_is_not_the_drivers(host):
    write(host, "proc/driver/nvidia/version", PROPRIETARY.format("580.95.05"))
    (host / "drivers/vfio-pci").mkdir(parents=True)
    for gpu in ("0000:01:00.0", "0000:02:00.0"):
        (host / "sys/bus/pci/devices" / gpu / "driver").symlink_to(host / "drivers/vfio-pci")
    assert "proprietary_on_blackwell" not in _found(host, client(0))


def test_the_proprietary_flavour_is_refused_on_blackwell_only(host):
    """No real driver counts such a GPU, but the test hosts' library does: their PCI bus has none."""
    load_text = PROPRIETARY.format("580.95.05")
    write(host, "proc/driver/nvidia/version", load_text)
    assert _found(host)["proprietary_on_blackwell"]["gpus"] == [0, 1]
    assert _found(host, client(2, nvmlDeviceGetCudaComputeCapability=lambda _h: (9, 0))) == {}


@pytest.mark.parametrize(
    ("nodes", "identity"),
    [
        ({"uvm": False}, "uvm_node_missing"),
        ({"gpus": []}, "device_node_missing"),
        ({"control": False}, "device_node_missing"),
    ],
)
def test_missing_device_nodes(host, monkeypatch, nodes, identity):
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: {**NODES, **nodes})
    assert identity in _found(host)


def test_a_container_that_was_given_some_gpus_is_not_blamed_for_the_others(host):
    write(host, "run/systemd/container", "lxc\n")
    assert _found(host, client(1)) == {}


def test_links(host):
    add_gpu(host, 2, acs_control=0x1D, iommu="DMA-FQ")
    found = _found(host, client(3))
    assert (found["acs_redirect"]["gpus"], found["iommu_translates"]["gpus"]) == ([2], [2])


def test_one_gpu_has_no_peers_to_miss(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: NODES)
    add_gpu(tmp_path, 0, acs_control=0x1D, iommu="DMA")
    load_module(tmp_path)
    assert _found(tmp_path, client(1)) == {}


@pytest.mark.parametrize(
    ("now", "most", "card", "slot", "found"),
    [
        (8, 8, 16, 8, "x8 of x16, in a slot of x8"),  # NVML's maximum is that of card and slot together
        (8, 16, 16, 16, "x8 of x16"),  # a bad riser, or a bifurcation
        (None, None, 16, 8, "x8 of x16, in a slot of x8"),  # sysfs alone: 8 lanes now
        (4, 16, None, None, "x4 of x16"),  # NVML alone
        (8, 8, 8, 16, None),  # a card of 8 lanes
        (16, 16, 16, 16, None),
        (8, 8, None, None, None),
        (None, None, None, None, None),
    ],
)
def test_a_link_narrower_than_the_card(tmp_path, monkeypatch, now, most, card, slot, found):
    monkeypatch.setattr(kernel, "device_nodes", lambda _root: NODES)
    gpu = add_gpu(tmp_path, 0, width=8)
    load_module(tmp_path)
    for path, lanes in ((gpu, card), ("0000:00:01.0", slot)):
        write(tmp_path, f"sys/bus/pci/devices/{path}/max_link_width", f"{lanes or 255}\n")
    if card is None:
        write(tmp_path, f"sys/bus/pci/devices/{gpu}/current_link_width", "0\n")

    def answer(value):
        return refuse(3) if value is None else lambda _handle: value

    calls = {"nvmlDeviceGetCurrPcieLinkWidth": answer(now), "nvmlDeviceGetMaxPcieLinkWidth": answer(most)}
    problems = _found(tmp_path, client(1, **calls))
    assert {identity: row["found"] for identity, row in problems.items()} == ({"pcie_width": found} if found else {})


def test_a_generation_that_is_lower_now_is_no_trouble(host):
    """It drops when the GPU is idle."""
    assert _found(host, client(2, nvmlDeviceGetCurrPcieLinkGeneration=lambda _h: 1)) == {}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (fabric(1), "NVML's fabric state is not_started"),
        (fabric(2), "NVML's fabric state is in_progress"),
        (fabric(3, 10), "NVML's fabric state is completed with timeout"),
        (fabric(0), None),
        (fabric(3), None),
        (refuse(3), None),
        (refuse(999), None),
    ],
)
@pytest.mark.parametrize("switches", [0, 4])
def test_gpus_that_wait_for_the_fabric(host, answer, found, switches):
    """Those of Blackwell have no switches on the PCI bus. Where there are some, the fabric manager runs here."""
    for index in range(switches):
        add_nvswitch(host, index)
    write(host, "proc/812/comm", "nv-fabricmanage\n")
    problems = _found(host, client(2, nvmlDeviceGetGpuFabricInfoV=answer))
    assert set(problems) == ({"fabric_not_ready"} if found else set())
    if found:
        problem = problems["fabric_not_ready"]
        assert (problem["severity"], problem["gpus"], problem["found"]) == ("error", [0, 1], found)
        assert "802" in problem["cost"] and "nvidia-fabricmanager" in problem["remedy"]


@pytest.mark.parametrize(
    ("answer", "daemon", "container", "ready"),
    [
        (fabric(0), False, False, False),  # an A100 registers nowhere
        (refuse(13), False, False, False),  # an older driver
        (fabric(0), True, False, True),
        (fabric(3), False, False, True),  # set up, and the daemon stopped since
        (fabric(0), False, True, True),  # the host's processes are not seen
    ],
)
def test_nvswitches_without_their_daemon(host, answer, daemon, container, ready):
    for index in range(6):
        add_nvswitch(host, index)
    write(host, "proc/812/comm", "nv-fabricmanage\n" if daemon else "dbus-daemon\n")
    if container:
        write(host, "run/systemd/container", "lxc\n")
    facts = info.collect(client(2, nvmlDeviceGetGpuFabricInfoV=answer), host)
    assert (facts["nvswitches"], facts["fabric_manager"]) == (6, None if container else daemon)
    assert [(row["id"], row["gpus"], row["found"]) for row in facts["problems"]] == (
        [] if ready else [("fabric_not_ready", [], "6 NVSwitches, and nv-fabricmanager does not run")]
    )


def test_a_small_window(host):
    small = SimpleNamespace(bar1Total=256 * 2**20, bar1Used=0)
    assert (
        _found(host, client(2, nvmlDeviceGetBAR1MemoryInfo=lambda _h: small))["bar1_small"]["found"]
        == "BAR1 0.25 GiB of 96 GiB"
    )


def test_xids_in_the_kernel_log(host):
    log = ["NVRM: Xid (PCI:0000:02:00): 79, pid=1, GPU has fallen off the bus."]
    problem = _found(host, log=log)["xid"]
    assert (problem["gpus"], problem["severity"]) == ([1], "warning")
    assert "fell off the bus" in problem["found"]


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        (("580.95.05", "NVIDIA"), "loaded 580.95.05 (open), on disk 580.95.05 (proprietary)"),
        (("590.44.01", "Dual MIT/GPL"), "loaded 580.95.05, on disk 590.44.01"),
        (("590.44.01", "NVIDIA"), "loaded 580.95.05 (open), on disk 590.44.01 (proprietary)"),
        (("580.95.05", "Dual MIT/GPL"), None),
        (("580.95.05", None), None),
        ((None, None), None),
    ],
)
def test_the_module_on_disk_is_another_one(host, monkeypatch, installed, found):
    monkeypatch.setattr(kernel, "_modinfo", lambda: installed)
    read = kernel.kernel_module
    monkeypatch.setattr(kernel, "kernel_module", lambda root, run_tools: read(root, run_tools=True))
    assert {identity: row["found"] for identity, row in _found(host).items()} == (
        {"reboot_required": found} if found else {}
    )


def test_nouveau_holds_the_gpus(tmp_path):
    add_gpu(tmp_path, 0)
    (tmp_path / "sys/module/nouveau").mkdir(parents=True)
    found = _found(tmp_path, client(nvmlInit=refuse(9)))
    assert {"nouveau_loaded", "driver_not_loaded"} <= set(found)


@pytest.mark.parametrize(
    ("enforced", "installed", "expected"), [(1, "580.95.05", True), (0, "580.95.05", False), (1, None, False)]
)
def test_secure_boot_is_blamed_where_a_module_is_there_and_not_loaded(
    tmp_path, monkeypatch, enforced, installed, expected
):
    add_gpu(tmp_path, 0)
    variable = tmp_path / kernel._SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(bytes([6, 0, 0, 0, enforced]))
    monkeypatch.setattr(kernel, "_modinfo", lambda: (installed, "Dual MIT/GPL" if installed else None))
    read = kernel.kernel_module
    monkeypatch.setattr(kernel, "kernel_module", lambda root, run_tools: read(root, run_tools=True))
    found = _found(tmp_path, client(nvmlInit=refuse(9)))
    assert ("secure_boot" in found) == expected
    for key in ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"):  # Ubuntu's, Debian's
        assert not expected or f"`mokutil --import {key}`" in found["secure_boot"]["remedy"]


def test_errors_come_first(host):
    calls = {"nvmlDeviceGetPersistenceMode": lambda _h: 0, "nvmlDeviceGetComputeMode": lambda _h: 2}
    assert [p["severity"] for p in info.collect(client(2, **calls), host)["problems"]] == ["error", "warning"]


def test_every_row_says_what_it_costs_and_what_to_do():
    for identity, row in KNOWN.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", identity)
        assert row.severity in ("error", "warning", "info")
        assert row.cost and row.remedy and row.source


def test_requirements(host):
    facts = info.collect(client(2), host)
    assert unmet(facts, "580", "12.0", 2) == []
    assert "at least 590" in unmet(facts, minimum_driver="590")[0]
    assert "compute capability 12.0" in unmet(facts, minimum_compute_capability="13.0", gpus=[1])[0]
    assert "8 GPUs are expected" in unmet(facts, expected_gpus=8)[0]
    assert "GPU 5 is asked for" in unmet(facts, gpus=[0, 5])[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minimum_driver", "abc"),
        ("minimum_driver", "latest"),
        ("minimum_driver", "R580"),
        ("minimum_driver", ">=580"),
        ("minimum_driver", "13.0"),  # CUDA's version
        ("minimum_driver", "580 "),
        ("minimum_compute_capability", "sm_90"),
        ("minimum_compute_capability", "sm_120"),
        ("minimum_compute_capability", "90"),
        ("minimum_compute_capability", 120),
        ("minimum_compute_capability", "blackwell"),
    ],
)
@pytest.mark.parametrize("calls", [{}, {"nvmlInit": refuse(999)}])
def test_a_minimum_that_cannot_be_read_is_refused_by_name(host, name, value, calls):
    """Compared as it is, "abc" would let every driver pass and "sm_90" no GPU."""
    facts = info.collect(client(2, **calls), host)
    sentence = unmet(facts, **{name: value})[0]
    assert sentence.startswith(f"drivers_{name} is {str(value)!r}, ")
    assert {"minimum_driver": "580.95.05", "minimum_compute_capability": "9.0"}[name] in sentence
    assert len(unmet(facts, **{name: value})) == (2 if calls else 1)


@pytest.mark.parametrize(
    "minimums",
    [
        {"minimum_driver": 580},
        {"minimum_driver": 580.95},
        {"minimum_driver": "470.57.02"},
        {"minimum_compute_capability": 9.0},
        {"minimum_compute_capability": 9},
        {"minimum_compute_capability": "12.0"},
        {"minimum_driver": "", "minimum_compute_capability": ""},
        {"minimum_driver": None, "minimum_compute_capability": None},
    ],
)
def test_minimums_that_these_gpus_meet(host, minimums):
    assert unmet(info.collect(client(2), host), **minimums) == []


def test_a_broken_gpu_stops_only_those_who_use_it(host):
    def handle(index):
        if index == 1:
            raise pynvml.NVMLError(15)
        return index

    facts = info.collect(client(2, nvmlDeviceGetHandleByIndex=handle), host)
    assert unmet(facts, gpus=[0]) == []
    assert unmet(facts, gpus=[1])[0].startswith("[gpu_lost] GPU 1: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")
def test_device_nodes_are_devices(tmp_path):
    for name in ("nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        os.mknod(tmp_path / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    write(tmp_path, "dev/nvidia1", "a file is no device")
    assert kernel.device_nodes(tmp_path) == {
        "gpus": ["/dev/nvidia0", "/dev/nvidia10"],
        "control": True,
        "uvm": True,
        "uvm_tools": False,
    }
