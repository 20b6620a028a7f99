"""What is left on the hosts after converge and side_effect.yml; debian12 is the container, debian13 the machine."""

import pytest

PINS = "/etc/apt/preferences.d/gpuhost-vllm-nvidia"
CONTAINER, MACHINE = "drivers-debian12", "drivers-debian13"


def _is(host, name):
    return host.backend.get_hostname() == name


def _installed(host):
    lines = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'").splitlines()
    return {name: (status.strip(), version) for status, name, version in (line.split("|") for line in lines)}


def _driver(host):
    return {n: v for n, v in _installed(host).items() if "nvidia" in n and "container" not in n or n == "libcuda1"}


def test_the_whole_driver_is_of_one_release_and_held(host):
    release = "580.95.05-1" if _is(host, CONTAINER) else "590.44.01-1"
    packages = _driver(host)
    assert len(packages) >= 4
    assert set(packages.values()) == {("hi", release)}


def test_a_container_gets_no_kernel_side(host):
    names = set(_driver(host))
    assert ("nvidia-kernel-open-dkms" in names) == _is(host, MACHINE)
    assert "nvidia-kernel-dkms" not in names
    assert host.file("/etc/modprobe.d/gpuhost-vllm-nvidia.conf").exists == _is(host, MACHINE)


def test_an_upgrade_of_everything_leaves_the_driver_alone(host):
    """The container's mirror has two newer releases."""
    told = host.check_output("apt-get --simulate dist-upgrade")
    assert "Inst " not in told


def test_what_only_looks_like_a_driver_is_not_held(host):
    assert _installed(host)["nvidia-container-toolkit"] == ("ii", "1.17.8-1")


def test_nvidia_smi_works(host):
    release = "580.95.05" if _is(host, CONTAINER) else "590.44.01"
    assert host.check_output("nvidia-smi").splitlines() == [f"Driver Version: {release}", "Attached GPUs: 8"]


def test_the_pin_is_exact(host):
    pin = "Pin: version 580.95.05-*" if _is(host, CONTAINER) else "Pin: version 590.44.01-*"
    assert pin in host.file(PINS).content_string


@pytest.mark.parametrize("file", [PINS, "/etc/apt/sources.list.d/gpuhost-vllm-nvidia.sources"])
def test_files_are_roots(host, file):
    assert (host.file(file).user, host.file(file).mode) == ("root", 0o644)


def test_the_mirror_is_trusted_by_its_key_and_the_folder_by_its_path(host):
    text = host.file("/etc/apt/sources.list.d/gpuhost-vllm-nvidia.sources").content_string
    if _is(host, CONTAINER):
        assert "Signed-By: /etc/apt/keyrings/gpuhost-vllm-nvidia.asc" in text
        assert "Trusted" not in text
    else:
        assert "URIs: file:/var/lib/vllm/driver-repository" in text
    host.check_output("apt-get update --error-on=any")


def test_settings_of_the_modules(host):
    if _is(host, CONTAINER):
        pytest.skip("the kernel is the host's")
    settings = host.file("/etc/modprobe.d/gpuhost-vllm-nvidia.conf").content_string.splitlines()
    assert settings[-3:] == ["blacklist nouveau", "options nouveau modeset=0", "options nvidia_uvm uvm_disable_hmm=1"]
    assert "nvidia-uvm" in host.file("/etc/modules-load.d/gpuhost-vllm-nvidia.conf").content_string
    assert host.service("nvidia-persistenced").is_enabled


def test_nothing_of_the_trials_is_left(host):
    assert not host.file("/run/gpuhost-vllm-drivers").exists
