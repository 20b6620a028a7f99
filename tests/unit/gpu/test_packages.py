"""The driver's packages as one set. Real apt does the same in molecule/drivers; here are the corners."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.gpu import deb_index, packages

MADISON = """\
nvidia-driver-cuda | 590.44.01-1 | http://mirror ./ Packages
nvidia-driver-cuda | 580.105.08-1 | http://mirror ./ Packages
nvidia-driver-cuda | 580.95.05-1 | http://mirror ./ Packages
nvidia-driver-cuda | 580.95.05-1 | http://other ./ Packages
nvidia-graphics-drivers | 535.261.03-1 | http://debian bookworm/non-free Sources
libnvidia-rtcore | 580.105.08-1 | http://mirror ./ Packages
"""
DPKG = """\
ii |nvidia-driver-cuda|580.95.05-1
hi |libnvidia-rtcore|580.95.05-1
iF |libcuda1|580.95.05-1
ii |nvidia-container-toolkit|1.17.8-1
rc |libnvidia-ml1|535.1.1-1
un |nvidia-smi|
ii |bash|5.2.15-2
"""


def _plan(wanted, release, others=(), dpkg=DPKG, madison=MADISON):
    return packages.plan(packages.parse_dpkg(dpkg), packages.parse_madison(madison), wanted, release, list(others))


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("580.159.04-1", "580.159.04"),
        ("1:580.95.05-0ubuntu1", "580.95.05"),
        ("580.95.05-0ubuntu0.24.04.2", "580.95.05"),
        ("535.261.03-1~deb12u1", "535.261.03"),
        ("1.17.8-1", ""),
        ("12.9.1-1", ""),
        ("2021.03.26", ""),
    ],
)
def test_release_of_a_version(version, release):
    assert packages.release_of(version) == release


@pytest.mark.parametrize(
    ("name", "version", "part"),
    [
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", True),
        ("libcuda1", "580.95.05-1", True),
        ("linux-modules-nvidia-580-server-open-6.8.0-85-generic", "6.8.0-85.85", False),
        ("nvidia-container-toolkit", "1.17.8-1", False),
        ("nvidia-cuda-toolkit", "12.4.131~12.4.1-4", False),
        ("nvidia-fabricmanager-580", "580.95.05-1", True),
        ("bash", "580.95.05-1", False),
    ],
)
def test_what_belongs_to_a_driver(name, version, part):
    assert packages.belongs(name, version) == part


def test_offers_are_those_of_binary_packages_each_once():
    offered = packages.parse_madison(MADISON)
    assert offered["nvidia-driver-cuda"] == ["590.44.01-1", "580.105.08-1", "580.95.05-1"]
    assert "nvidia-graphics-drivers" not in offered


def test_removed_packages_are_not_there():
    assert [one["name"] for one in packages.parse_dpkg(DPKG)] == [
        "nvidia-driver-cuda",
        "libnvidia-rtcore",
        "libcuda1",
        "nvidia-container-toolkit",
        "bash",
    ]


def test_the_installed_set_moves_with_what_is_wanted():
    plan = _plan(["nvidia-driver-cuda"], "580")
    assert plan["release"] == "580.105.08"
    # libcuda1 is not offered in the newer release: it keeps the branch, and apt's own dependencies decide.
    assert plan["install"] == [
        "libcuda1=580.95.05-1",
        "libnvidia-rtcore=580.105.08-1",
        "nvidia-driver-cuda=580.105.08-1",
    ]
    assert (plan["remove"], plan["broken"]) == ([], ["libcuda1"])


def test_a_branch_change_removes_what_the_new_branch_does_not_have():
    plan = _plan(["nvidia-driver-cuda"], "590")
    assert plan["install"] == ["nvidia-driver-cuda=590.44.01-1"]
    assert plan["remove"] == ["libcuda1", "libnvidia-rtcore"]


def test_names_that_change_with_the_branch_are_exchanged():
    """NVIDIA's repository for Ubuntu, from 580 to 590 and back."""
    old = ["libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-compute-utils-580"]
    new = ["libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced"]
    madison = "".join(f"{name} | 580.105.08-0ubuntu1 | u ./ Packages\n" for name in old)
    madison += "".join(f"{name} | 590.44.01-0ubuntu1 | u ./ Packages\n" for name in new)
    forth = _plan(new, "590", dpkg=_held(old, "580.105.08-0ubuntu1"), madison=madison)
    assert forth["install"] == [f"{name}=590.44.01-0ubuntu1" for name in new]
    assert (forth["remove"], forth["free"]) == (sorted(old), [])
    back = _plan(old, "580", dpkg=_held(new, "590.44.01-0ubuntu1"), madison=madison)
    assert back["install"] == [f"{name}=580.105.08-0ubuntu1" for name in sorted(old)]
    # Another package brings the daemon there: apt removes this one if that one forbids it.
    assert (back["remove"], back["free"]) == (["libnvidia-compute", "nvidia-dkms-open"], ["nvidia-persistenced"])


def _held(names, version):
    return "".join(f"hi |{name}|{version}\n" for name in names)


def test_a_tool_that_debian_has_in_one_version_only_stays():
    """Debian 13: nvidia-modprobe 570.133.07 beside driver 550.163.01, which depends on it."""
    madison = "libcuda1 | 550.163.01-2 | u s Packages\nnvidia-modprobe | 570.133.07-1 | u s Packages\n"
    dpkg = "hi |libcuda1|550.163.01-2\nii |nvidia-modprobe|570.133.07-1\n"
    plan = _plan(["libcuda1"], "550", dpkg=dpkg, madison=madison)
    assert (plan["install"], plan["remove"], plan["free"], plan["hold"]) == ([], [], [], [])


def test_an_exact_release_is_installed_although_a_newer_one_is_offered():
    assert _plan(["nvidia-driver-cuda"], "580.95.05")["release"] == "580.95.05"


def test_a_set_in_place_needs_nothing():
    dpkg = "hi |nvidia-driver-cuda|580.105.08-1\nii |libcuda1|580.105.08-1\n"
    plan = _plan(["nvidia-driver-cuda"], "580", dpkg=dpkg)
    assert (plan["install"], plan["remove"], plan["hold"]) == ([], [], ["libcuda1"])


def test_a_release_that_the_repository_dropped_is_kept():
    plan = _plan(["nvidia-driver-cuda"], "575", dpkg="ii |nvidia-driver-cuda|575.57.08-1\n")
    assert (plan["release"], plan["install"]) == ("575.57.08", [])


def test_a_release_that_nobody_offers_is_refused_with_those_that_are():
    with pytest.raises(VllmHostError) as caught:
        _plan(["nvidia-driver-cuda", "nvidia-persistenced"], "575")
    assert caught.value.code == "driver_not_offered"
    assert caught.value.details["offered"] == {
        "nvidia-driver-cuda": ["580.105.08", "580.95.05", "590.44.01"],
        "nvidia-persistenced": [],
    }


def test_tools_with_versions_of_their_own_follow_the_branch():
    """Debian: nvidia-persistenced 535.171 beside driver 535.247."""
    madison = "libcuda1 | 535.247.01-1 | u s Packages\nnvidia-persistenced | 535.171.04-1 | u s Packages\n"
    plan = _plan(["libcuda1", "nvidia-persistenced"], "535", dpkg="", madison=madison)
    assert plan["install"] == ["libcuda1=535.247.01-1", "nvidia-persistenced=535.171.04-1"]


def test_headers():
    offered = MADISON + "linux-headers-amd64 | 6.1.140-1 | u s Packages\n"
    assert (
        "linux-headers-amd64"
        in _plan(["nvidia-driver-cuda"], "580", ["linux-headers-amd64"], madison=offered)["install"]
    )
    with pytest.raises(VllmHostError, match="do not offer linux-headers-6.1.0-99"):
        _plan(["nvidia-driver-cuda"], "580", ["linux-headers-6.1.0-99"], madison=offered)
    assert _plan(["nvidia-driver-cuda"], "580", ["bash"])["release"]


NVIDIA, UBUNTU = "https://nvidia/ubuntu2404/x86_64/", "http://archive/ubuntu"
BOTH = f"""\
libnvidia-compute-580 | 580.178.04-0ubuntu0.24.04.1 | {UBUNTU} noble-updates/restricted amd64 Packages
libnvidia-compute-580 | 580.159.04-1ubuntu1 | {NVIDIA.rstrip("/")} ./ Packages
linux-headers-generic | 6.8.0-85.85 | {UBUNTU} noble-updates/main amd64 Packages
"""


def test_drivers_of_two_repositories_are_not_mixed():
    offered = packages.parse_madison(BOTH, NVIDIA)
    assert offered["libnvidia-compute-580"] == ["580.159.04-1ubuntu1"]
    assert offered["linux-headers-generic"] == ["6.8.0-85.85"], "what is no driver may come from anywhere"
    assert packages.parse_madison(BOTH)["libnvidia-compute-580"][0] == "580.178.04-0ubuntu0.24.04.1"


def _offers(**versions):
    return "".join(f"{name.replace('_', '-')} | {version} | u ./ Packages\n" for name, version in versions.items())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nvidia-fabricmanager-580", "nvidia-fabricmanager-590"),  # Ubuntu's archive
        ("nvidia-fabricmanager-580", "nvidia-fabricmanager"),  # NVIDIA's repository
        ("nvidia-fabricmanager", "nvidia-fabricmanager"),
    ],
)
def test_the_fabric_manager_moves_with_the_driver(before, after):
    madison = MADISON + f"{after} | 590.44.01-1 | u ./ Packages\n"
    dpkg = _held(["nvidia-driver-cuda", before], "580.105.08-1")
    plan = _plan(["nvidia-driver-cuda"], "590", dpkg=dpkg, madison=madison)
    assert plan["install"] == ["nvidia-driver-cuda=590.44.01-1", f"{after}=590.44.01-1"]
    assert plan["remove"] == ([before] if before != after else [])


def test_the_fabric_manager_is_of_exactly_the_drivers_release():
    """Within a branch too: one of 580.95.05 does not start with a driver 580.105.08."""
    dpkg = _held(["nvidia-driver-cuda", "nvidia-fabricmanager-580"], "580.95.05-1")
    older = _offers(nvidia_fabricmanager_580="580.95.05-1")
    with pytest.raises(
        VllmHostError, match="nvidia-fabricmanager-580 nor nvidia-fabricmanager in release 580.105.08"
    ) as caught:
        _plan(["nvidia-driver-cuda"], "580", dpkg=dpkg, madison=MADISON + older)
    assert caught.value.code == "fabric_manager_not_offered"
    assert _plan(["nvidia-driver-cuda"], "580.95.05", dpkg=dpkg, madison=MADISON + older)["install"] == []
    renamed = _offers(nvidia_fabricmanager="580.105.08-1")
    plan = _plan(["nvidia-driver-cuda"], "580", dpkg=dpkg, madison=MADISON + renamed)
    assert ("nvidia-fabricmanager=580.105.08-1" in plan["install"], plan["remove"]) == (
        True,
        ["nvidia-fabricmanager-580"],
    )


def test_a_fabric_manager_that_is_wanted_has_the_name_of_its_repository():
    madison = MADISON + _offers(nvidia_fabricmanager_580="580.105.08-1")
    plan = _plan(["nvidia-driver-cuda", "nvidia-fabricmanager"], "580", dpkg="", madison=madison)
    assert plan["install"] == ["nvidia-driver-cuda=580.105.08-1", "nvidia-fabricmanager-580=580.105.08-1"]
    names = packages.names_to_ask([], ["nvidia-fabricmanager"], "580.105.08", [])
    assert names == ["nvidia-fabricmanager", "nvidia-fabricmanager-580"]


def test_a_monitoring_library_that_is_not_offered_goes():
    dpkg = _held(["nvidia-driver-cuda", "libnvidia-nscq-580"], "580.105.08-1")
    assert _plan(["nvidia-driver-cuda"], "590", dpkg=dpkg)["remove"] == ["libnvidia-nscq-580"]


def test_firmware_of_another_release_goes_though_it_is_of_the_branch():
    """Ubuntu: the release is part of the name, and the new one comes as a dependency."""
    madison = _offers(nvidia_driver_cuda="580.105.08-1")
    dpkg = _held(["nvidia-driver-cuda", "nvidia-firmware-580-580.95.05"], "580.95.05-1")
    plan = _plan(["nvidia-driver-cuda"], "580", dpkg=dpkg, madison=madison)
    assert (plan["install"], plan["remove"]) == (["nvidia-driver-cuda=580.105.08-1"], ["nvidia-firmware-580-580.95.05"])
    dpkg += "ii |nvidia-firmware-580-580.105.08|580.105.08-1\n"
    madison += _offers(**{"nvidia-firmware-580-580.105.08": "580.105.08-1"})
    assert _plan(["nvidia-driver-cuda"], "580", dpkg=dpkg, madison=madison)["hold"] == [
        "nvidia-firmware-580-580.105.08"
    ]


def test_modules_that_the_distribution_signed_follow_the_kernel():
    modules = "linux-modules-nvidia-580-server-open-generic"
    madison = MADISON + _offers(**{modules: "6.8.0-85.85+1"})
    plan = _plan(["nvidia-driver-cuda", modules], "580", dpkg="", madison=madison)
    assert (plan["release"], plan["install"]) == ("580.105.08", ["nvidia-driver-cuda=580.105.08-1", modules])
    with pytest.raises(VllmHostError, match="is part of a driver"):
        _plan([modules], "580", dpkg="", madison=madison)


@pytest.mark.parametrize(
    ("kernel", "headers"),
    [
        ("linux-image-amd64", "linux-headers-amd64"),
        ("linux-image-cloud-amd64", "linux-headers-cloud-amd64"),
        ("linux-image-rt-amd64", "linux-headers-rt-amd64"),
        ("linux-image-generic-hwe-24.04", "linux-headers-generic-hwe-24.04"),
        ("linux-image-aws", "linux-headers-aws"),
        ("proxmox-default-kernel", "proxmox-default-headers"),
        ("proxmox-kernel-6.14", "proxmox-headers-6.14"),
        ("linux-image-6.12.48+deb13-amd64", ""),  # one kernel, brought by a meta package
        ("linux-image-unsigned-6.8.0-85-generic", ""),
        ("proxmox-kernel-6.14.11-1-pve-signed", ""),
    ],
)
def test_headers_of_the_kernels_to_come_are_those_of_what_brings_them(kernel, headers):
    madison = MADISON + f"{headers or 'linux-headers-none'} | 6.12.50-1 | u s Packages\n"
    installed, offered = packages.parse_dpkg(f"ii |{kernel}|6.12.48-1\n"), packages.parse_madison(madison)
    assert (headers in packages.names_to_ask(installed, [], "580", [])) == bool(headers)
    plan = packages.plan(installed, offered, ["nvidia-driver-cuda"], "580", [], follow_kernel=True)
    assert plan["install"][1:] == ([headers] if headers else [])


def test_headers_are_of_the_kernels_own_version_so_that_they_bring_no_newer_one():
    madison = (
        MADISON + "linux-headers-amd64 | 6.12.50-1 | u s Packages\nlinux-headers-amd64 | 6.12.48-1 | u s Packages\n"
    )
    installed = packages.parse_dpkg("ii |linux-image-amd64|6.12.48-1\n")
    plan = packages.plan(
        installed, packages.parse_madison(madison), ["nvidia-driver-cuda"], "580", [], follow_kernel=True
    )
    assert plan["install"][1:] == ["linux-headers-amd64=6.12.48-1"]
    installed += packages.parse_dpkg("ii |linux-headers-amd64|6.12.48-1\nii |nvidia-driver-cuda|580.105.08-1\n")
    plan = packages.plan(
        installed, packages.parse_madison(madison), ["nvidia-driver-cuda"], "580", [], follow_kernel=True
    )
    assert plan["install"] == []


@pytest.fixture
def folder(tmp_path):
    control = tmp_path / "root/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: a\nVersion: 1\nArchitecture: all\nMaintainer: x <x@invalid>\nDescription: d\n")
    (tmp_path / "debs/deeper").mkdir(parents=True)
    subprocess.run(["dpkg-deb", "--build", tmp_path / "root", tmp_path / "debs/deeper/a_1_all.deb"], check=True)
    return tmp_path / "debs"


def test_index_of_a_folder(folder):
    text, count = deb_index.index(folder)
    assert count == 1
    assert text.startswith("Package: a\n")
    assert "Filename: ./pool/deeper/a_1_all.deb\n" in text
    assert "SHA256: " in text


def test_a_folder_without_packages_and_a_broken_package(folder, tmp_path):
    with pytest.raises(VllmHostError) as caught:
        deb_index.index(tmp_path / "nowhere")
    assert caught.value.code == "no_packages"
    (folder / "b.deb").write_text("no package")
    with pytest.raises(VllmHostError) as caught:
        deb_index.index(folder)
    assert caught.value.code == "bad_package"
    assert str(folder / "b.deb") in caught.value.message
