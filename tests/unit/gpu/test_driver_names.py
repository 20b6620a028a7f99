"""Package names and repository addresses of each distribution, as the role's variables give them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARS = Path(__file__).resolve().parents[3] / "roles/drivers/vars"


def _resolve(
    text: str,
    distribution: str,
    version: str,
    release="580",
    exact=False,
    source="nvidia",
    drivers_mirror="",
    packages=None,
    nvswitches=0,
    **facts,
):
    variables = {}
    for name in ("main", {"Debian": "Debian", "Ubuntu": "Ubuntu", "RedHat": "RedHat"}[distribution]):
        variables.update(_trusted(yaml.safe_load((VARS / f"{name}.yml").read_text())))
    variables.update(
        ansible_facts={
            "distribution_version": version,
            "distribution_major_version": version.split(".")[0],
            "architecture": "x86_64",
            "kernel": "6.1.0-40-amd64",
            **facts,
        },
        drivers_source=source,
        drivers_branch="580",
        drivers_packages=packages or [],
        drivers_kernel_headers=[],
        drivers_kernel_modules="auto",
        vllm_gpus_found={"container": "lxc" if exact else "none", "nvswitches": nvswitches},
        drivers_mirror=drivers_mirror,
        drivers_folder="/srv/debs",
        drivers_repository_key="",
        __drivers_decision={"release": release, "exact": exact, "action": "user_space" if exact else "everything"},
    )
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template("{{ " + text + " }}"))


def _trusted(value):
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(part) for key, part in value.items()}
    return [_trusted(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("distribution", "version", "source", "release", "names"),
    [
        ("Debian", "12", "nvidia", "580", ["nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-open-dkms"]),
        ("Debian", "13", "mirror", "580", ["nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-open-dkms"]),
        (
            "Debian",
            "13",
            "distribution",
            "550",
            ["libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-persistenced", "nvidia-open-kernel-dkms"],
        ),
        ("RedHat", "9.6", "nvidia", "580", ["nvidia-driver-cuda", "nvidia-persistenced", "kmod-nvidia-open-dkms"]),
    ],
)
def test_packages_of_a_machine(distribution, version, source, release, names):
    assert _resolve("__drivers_packages", distribution, version, release, source=source) == names


UBUNTU = ("22.04", "24.04")
NVIDIAS = ("nvidia", "mirror", "folder")
OF_BRANCH_575 = ["libnvidia-compute-575", "nvidia-utils-575", "nvidia-compute-utils-575", "libnvidia-cfg1-575"]


@pytest.mark.parametrize("version", UBUNTU)
@pytest.mark.parametrize("source", NVIDIAS)
@pytest.mark.parametrize(
    ("release", "user", "kernel"),
    [
        ("575", OF_BRANCH_575, "nvidia-dkms-575-open"),
        ("580", [name.replace("575", "580") for name in OF_BRANCH_575], "nvidia-dkms-580-open"),
        # From here on without the branch, and what the two tools' packages had is elsewhere.
        ("590", ["libnvidia-compute", "nvidia-persistenced", "libnvidia-cfg1"], "nvidia-dkms-open"),
        ("590.44.01", ["libnvidia-compute", "nvidia-persistenced", "libnvidia-cfg1"], "nvidia-dkms-open"),
        ("615", ["libnvidia-compute", "nvidia-persistenced", "libnvidia-cfg1"], "nvidia-dkms-open"),
    ],
)
def test_nvidias_packages_for_ubuntu(version, source, release, user, kernel):
    assert _resolve("__drivers_packages", "Ubuntu", version, release, source=source) == [*user, kernel]


@pytest.mark.parametrize("version", UBUNTU)
@pytest.mark.parametrize("branch", ["580", "590"])
def test_ubuntus_own_packages_always_name_the_branch(version, branch):
    assert _resolve("__drivers_packages", "Ubuntu", version, branch, source="distribution") == [
        f"libnvidia-compute-{branch}-server",
        f"nvidia-utils-{branch}-server",
        f"nvidia-compute-utils-{branch}-server",
        f"libnvidia-cfg1-{branch}-server",
        f"nvidia-dkms-{branch}-server-open",
    ]


@pytest.mark.parametrize(
    ("distribution", "source", "release", "names"),
    [
        ("Debian", "nvidia", "575.57.08", ["nvidia-driver-cuda"]),
        ("Debian", "distribution", "550.163.01", ["libcuda1", "libnvidia-ml1", "nvidia-smi"]),
        ("Ubuntu", "nvidia", "575.57.08", ["libnvidia-compute-575", "nvidia-utils-575"]),
        ("Ubuntu", "folder", "590.44.01", ["libnvidia-compute"]),
        ("Ubuntu", "distribution", "580.95.05", ["libnvidia-compute-580-server", "nvidia-utils-580-server"]),
    ],
)
def test_packages_of_a_container_are_of_its_hosts_branch(distribution, source, release, names):
    assert _resolve("__drivers_packages", distribution, "24.04", release, exact=True, source=source) == names
    assert _resolve("__drivers_others", distribution, "24.04", release, exact=True, source=source) == []


@pytest.mark.parametrize(
    ("distribution", "version", "folder", "key"),
    [
        ("Debian", "12", "debian12/x86_64", "3bf863cc.pub"),
        ("Debian", "13", "debian13/x86_64", "8793F200.pub"),
        ("Ubuntu", "22.04", "ubuntu2204/x86_64", "3bf863cc.pub"),
        ("Ubuntu", "24.04", "ubuntu2404/x86_64", "3bf863cc.pub"),
    ],
)
def test_nvidias_repository(distribution, version, folder, key):
    assert _resolve("__drivers_url", distribution, version).endswith(f"/compute/cuda/repos/{folder}/")
    assert _resolve("__drivers_nvidia_key", distribution, version) == key


@pytest.mark.parametrize("version", UBUNTU)
def test_other_places(version):
    assert _resolve("__drivers_url", "Ubuntu", version, source="folder") == "file:/var/lib/vllm/driver-repository"
    assert _resolve("__drivers_url", "Ubuntu", version, source="mirror", drivers_mirror="http://m/") == "http://m/"
    assert _resolve("__drivers_signed", "Ubuntu", version, source="mirror") is True
    assert _resolve("__drivers_signed", "Ubuntu", version, source="folder") is False
    said = _resolve("__drivers_from", "Ubuntu", version, source="distribution")
    assert said == "the repositories of the distribution"


def test_arm_servers_have_another_folder():
    assert _resolve("__drivers_url", "Ubuntu", "24.04", architecture="aarch64").endswith("/ubuntu2404/sbsa/")


@pytest.mark.parametrize(
    ("distribution", "kernel", "headers"),
    [
        ("Debian", "6.1.0-40-amd64", ["linux-headers-6.1.0-40-amd64"]),
        ("Debian", "6.12.48+deb13-cloud-amd64", ["linux-headers-6.12.48+deb13-cloud-amd64"]),
        ("Debian", "6.8.12-9-pve", ["proxmox-headers-6.8.12-9-pve"]),
        ("Ubuntu", "6.8.0-85-generic", ["linux-headers-6.8.0-85-generic"]),
        ("Ubuntu", "6.14.0-1015-aws", ["linux-headers-6.14.0-1015-aws"]),
    ],
)
def test_headers_of_the_running_kernel(distribution, kernel, headers):
    assert _resolve("__drivers_others", distribution, "12", kernel=kernel) == headers


def test_modules_that_are_not_built_here_need_no_headers():
    signed = ["libnvidia-compute-580-server", "linux-modules-nvidia-580-server-open-generic"]
    assert _resolve("__drivers_others", "Ubuntu", "24.04", packages=signed) == []


@pytest.mark.parametrize("distribution", ["Debian", "Ubuntu"])
def test_nvswitches_need_the_fabric_manager(distribution):
    assert _resolve("__drivers_packages", distribution, "24.04", nvswitches=4)[-1] == "nvidia-fabricmanager"
    in_a_container = _resolve("__drivers_packages", distribution, "24.04", exact=True, nvswitches=4)
    assert "nvidia-fabricmanager" not in in_a_container, "the host of the container runs it"
