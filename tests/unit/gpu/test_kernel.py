"""What /proc, /sys and /dev say, from trees like those of real hosts."""

from __future__ import annotations

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu import containers, kernel
from hypothesis import given
from hypothesis import strategies as st
from machines import OPEN, PROPRIETARY, add_gpu, add_nvswitch, config_space, load_module, write

# Read on an H200 (Ubuntu 24.04, driver 580).
H200 = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \nGCC version:  gcc version 15.3.0 (GCC) \n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (H200, ("580.159.04", "open")),
        (OPEN.format("580.95.05"), ("580.95.05", "open")),
        (PROPRIETARY.format("535.261.03"), ("535.261.03", "proprietary")),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build", ("540.4.0", "open")),
        ("", (None, None)),
        ("GCC version: 14.2.0", (None, None)),
    ],
)
def test_version_and_flavour_of_the_loaded_module(text, expected):
    assert kernel.parse_proc_version(text) == expected


@given(st.text())
def test_no_text_breaks_the_parsers(text):
    kernel.parse_proc_version(text)
    kernel.parse_xids(text.splitlines())
    kernel.parse_refused(text.splitlines())
    kernel.needs_open_modules(text)


@pytest.mark.parametrize(("text", "flavour"), [("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary"), (None, None)])
def test_flavour_of_a_module_on_disk(text, flavour):
    assert kernel.flavour_of_license(text) == flavour


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({"nvidia": ("580.95.05", "Dual MIT/GPL")}, ("580.95.05", "Dual MIT/GPL")),
        ({"nvidia-current-open": ("550.163.01", "Dual MIT/GPL")}, ("550.163.01", "Dual MIT/GPL")),  # Debian's own
        ({"nvidia-current": ("535.261.03", "NVIDIA")}, ("535.261.03", "NVIDIA")),
        (
            {"nvidia": ("580.95.05", "Dual MIT/GPL"), "nvidia-current": ("535.261.03", "NVIDIA")},
            ("580.95.05", "Dual MIT/GPL"),
        ),
        ({"nvidia": ("", "NVIDIA")}, (None, "NVIDIA")),
        ({"nouveau": ("1", "GPL")}, (None, None)),
    ],
)
def test_the_module_on_disk_under_its_names(tmp_path, monkeypatch, modules, expected):
    cases = "".join(
        f'version:{name}) echo "{version}";;\nlicense:{name}) echo "{text}";;\n'
        for name, (version, text) in modules.items()
    )
    write(
        tmp_path,
        "modinfo",
        f'#!/bin/sh\ncase "$2:$3" in\n{cases}*) echo "modinfo: ERROR: not found" >&2; exit 1;;\nesac\n',
    )
    (tmp_path / "modinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernel._modinfo() == expected


@pytest.mark.parametrize("tool", [None, "/does/not/exist"])
def test_without_modinfo_the_module_on_disk_is_unknown(monkeypatch, tool):
    monkeypatch.setattr(kernel.shutil, "which", lambda *_arguments, **_named: tool)
    assert kernel._modinfo() == (None, None)


def test_an_empty_machine_is_described(tmp_path):
    assert kernel.kernel_module(tmp_path, run_tools=False) == {
        "loaded": False,
        "version": None,
        "flavour": None,
        "installed_version": None,
        "installed_flavour": None,
        "uvm_loaded": False,
        "nouveau_loaded": False,
        "secure_boot": None,
    }
    assert kernel.pci_gpus(tmp_path) == []
    assert kernel.device_nodes(tmp_path) == {"gpus": [], "control": False, "uvm": False, "uvm_tools": False}
    assert containers.container_kind(tmp_path) == "none"


def test_a_loaded_module(tmp_path):
    load_module(tmp_path)
    found = kernel.kernel_module(tmp_path, run_tools=False)
    assert (found["loaded"], found["version"], found["flavour"], found["uvm_loaded"]) == (
        True,
        "580.95.05",
        "open",
        True,
    )


@pytest.mark.parametrize(
    ("content", "state"), [(b"\x06\0\0\0\1", True), (b"\x06\0\0\0\0", False), (b"", None), (b"\1", None)]
)
def test_secure_boot(tmp_path, content, state):
    write(tmp_path, "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", content)
    assert kernel.secure_boot(tmp_path) is state


def test_gpus_on_the_bus(tmp_path):
    add_gpu(tmp_path, 0, acs_control=0x1D, iommu="DMA-FQ")
    add_gpu(tmp_path, 1, acs_control=0x11, iommu="identity", bar1=2**28)
    first, second = kernel.pci_gpus(tmp_path)
    assert (first["pci_id"], first["device_id"], first["numa_node"]) == ("0000:01:00.0", "2bb5", 0)
    assert (first["bar1_bytes"], second["bar1_bytes"]) == (2**37, 2**28)
    assert (first["iommu_type"], second["iommu_type"]) == ("DMA-FQ", "identity")
    assert (first["acs_redirecting"], second["acs_redirecting"]) == (["0000:00:01.0"], [])


@pytest.mark.parametrize(
    ("now", "card", "slot", "expected"),
    [
        ("8\n", "16\n", "8\n", (8, 16, 8)),
        ("0\n", "255\n", "255\n", (None, None, None)),  # a link that is down, and what the kernel does not know
        ("", "x", "", (None, None, None)),
    ],
)
def test_lanes(tmp_path, now, card, slot, expected):
    gpu = add_gpu(tmp_path, 0)
    write(tmp_path, f"sys/bus/pci/devices/{gpu}/current_link_width", now)
    write(tmp_path, f"sys/bus/pci/devices/{gpu}/max_link_width", card)
    write(tmp_path, "sys/bus/pci/devices/0000:00:01.0/max_link_width", slot)
    found = kernel.pci_gpus(tmp_path)[0]
    assert (found["link_width"], found["link_width_max"], found["slot_width_max"]) == expected


@pytest.mark.parametrize(
    ("device_id", "needs"),
    [
        ("2bb5", True),  # RTX PRO 6000 Blackwell Server Edition
        ("2901", True),  # B200
        ("29bc", True),  # B100
        ("2941", True),  # GB200
        ("2b85", True),  # RTX 5090
        ("2c34", True),  # RTX PRO 4000 Blackwell
        ("2d04", True),  # RTX 5060 Ti
        ("2e12", True),  # GB10
        ("2f04", True),  # RTX 5070
        ("3182", True),  # B300
        ("31c2", True),  # GB300
        ("2335", False),  # H200
        ("2684", False),  # RTX 4090
        ("28e0", False),  # RTX 4060 Laptop, the block below
        ("2f95", False),  # Vera, a CPU
        (None, False),
        ("xyz", False),
    ],
)
def test_gpus_that_only_the_open_modules_start(device_id, needs):
    assert kernel.needs_open_modules(device_id) is needs


# Driver 580.105.08 on an RTX 5090 Laptop GPU, as dmesg showed it; then the same record in /dev/kmsg.
REFUSED = [
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Oct 29 23:15:11 UTC 2025",
    "NVRM: The NVIDIA GPU 0000:C2:00.0 (PCI ID: 10de:2c58)",
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
    "NVRM: GPU 0000:c2:00.0: RmInitAdapter failed! (0x22:0x56:884)",
]
KMSG = [
    "4,1234,5559842,-;NVRM: The NVIDIA GPU 0000:c2:00.0 (PCI ID: 10de:2c58)\\x0a"
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
]


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (REFUSED, ["0000:c2:00.0"]),
        (KMSG, ["0000:c2:00.0"]),
        (REFUSED + REFUSED, ["0000:c2:00.0"]),
        (REFUSED[:2], []),
        (
            [
                "NVRM: The NVIDIA GPU 0000:c2:00.0 (PCI ID: 10de:1db6)",
                "NVRM: installed in this system is not supported",
            ],
            [],
        ),
        ([], []),
    ],
)
def test_what_the_proprietary_module_refused(lines, refused):
    assert kernel.parse_refused(lines) == refused


def test_configuration_space_that_is_not_shown_is_null_not_good(tmp_path):
    add_gpu(tmp_path, 0, acs_control=0x1D)
    write(tmp_path, "sys/devices/pci0000:00/0000:00:01.0/config", bytes(64))
    assert kernel.pci_gpus(tmp_path)[0]["acs_redirecting"] is None


@pytest.mark.parametrize("control", [0, 0x1D, 0x5F])
def test_acs_register(control):
    assert kernel.acs_control(config_space(control)) == control


def test_acs_of_a_bridge_without_it():
    assert kernel.acs_control(config_space(None)) is None


def test_a_broken_capability_list_ends():
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | (0x100 << 20)).to_bytes(4, "little")  # points to itself
    assert kernel.acs_control(bytes(space)) is None


@given(st.binary(max_size=4096))
def test_no_configuration_space_breaks_the_parser(space):
    kernel.acs_control(space)


def test_xids_are_counted_for_each_gpu():
    lines = [
        "NVRM: Xid (PCI:0000:c1:00): 79, pid=4711, name=python3, GPU has fallen off the bus.",
        "4,1234,5678,-;NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:01:00.0): 119, pid='<unknown>', name=<unknown>, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
    ]
    assert [(event["pci_id"], event["xid"], event["count"]) for event in kernel.parse_xids(lines)] == [
        ("0000:c1:00.0", 79, 2),
        ("0000:01:00.0", 119, 1),
    ]


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("run/systemd/container", "lxc\n", "lxc"),
        ("run/systemd/container", "systemd-nspawn", "nspawn"),
        ("run/systemd/container", "docker", "docker"),
        ("run/systemd/container", "something-new", "other"),
        ("proc/1/environ", "HOME=/\0container=lxc\0TERM=linux", "lxc"),
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/1/environ", "HOME=/\0TERM=linux", "none"),
    ],
)
def test_kinds_of_container(tmp_path, path, content, kind):
    write(tmp_path, path, content)
    assert containers.container_kind(tmp_path) == kind


def test_nvswitches_are_counted(tmp_path):
    assert kernel.nvswitches(tmp_path) is None
    add_gpu(tmp_path, 0)  # and its bridge
    assert kernel.nvswitches(tmp_path) == 0
    for index in range(4):
        folder = add_nvswitch(tmp_path, index)
    assert kernel.nvswitches(tmp_path) == 4
    (folder / "driver").symlink_to(tmp_path / "drivers/vfio-pci")  # of a virtual machine
    assert kernel.nvswitches(tmp_path) == 3
    assert len(kernel.pci_gpus(tmp_path)) == 1


def test_a_process_is_found_by_the_15_characters_that_the_kernel_keeps(tmp_path):
    assert not kernel.is_running("nv-fabricmanager", tmp_path)
    write(tmp_path, "proc/sys/comm", "nv-fabricmanage\n")
    assert not kernel.is_running("nv-fabricmanager", tmp_path)
    write(tmp_path, "proc/812/comm", "nv-fabricmanage\n")
    assert kernel.is_running("nv-fabricmanager", tmp_path)


def test_owner_of_a_process(tmp_path):
    write(tmp_path, "proc/7/status", "Name:\tx\nUid:\t998\t998\t998\t998\n")
    write(tmp_path, "proc/7/comm", "VLLM::Worker_TP\n")
    write(tmp_path, "proc/7/cgroup", "0::/system.slice/vllm-kimi-k25.service\n")
    assert kernel.process_owner(7, tmp_path) == {"name": "VLLM::Worker_TP", "uid": 998, "unit": "vllm-kimi-k25.service"}
    assert kernel.process_owner(8, tmp_path) == {"name": None, "uid": None, "unit": None}
