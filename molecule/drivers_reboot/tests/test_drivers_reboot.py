"""What is left on the hosts after converge and side_effect.yml, where each case looked at the identity of its boot."""

PACKAGES = {
    "debian13": {
        "libcuda1": "580.105.08-2",
        "libnvidia-cfg1": "580.105.08-2",
        "libnvidia-ml1": "580.105.08-2",
        "libnvidia-ptxjitcompiler1": "580.105.08-2",
        "nvidia-kernel-support": "580.105.08-2",
        "nvidia-open-kernel-dkms": "580.105.08-2",
        "nvidia-persistenced": "580.105.08-1",
        "nvidia-smi": "580.105.08-2",
    },
    # Branch 590, through which it went, has other names; none of them is left.
    "ubuntu2404": {
        "libnvidia-cfg1-580": "580.105.08-0ubuntu1",
        "libnvidia-compute-580": "580.105.08-0ubuntu1",
        "nvidia-compute-utils-580": "580.105.08-0ubuntu1",
        "nvidia-dkms-580-open": "580.105.08-0ubuntu1",
        "nvidia-fabricmanager-580": "580.105.08-0ubuntu1",
        "nvidia-firmware-580-580.105.08": "580.105.08-0ubuntu1",
        "nvidia-kernel-common-580": "580.105.08-0ubuntu1",
        "nvidia-modprobe": "580.105.08-0ubuntu1",
        "nvidia-utils-580": "580.105.08-0ubuntu1",
    },
}


def _distribution(host):
    return host.backend.get_hostname().removeprefix("drivers-reboot-")


def test_it_was_booted_as_often_as_needed_each_time_with_the_driver_of_that_moment(host):
    boots = [line.split(maxsplit=1) for line in host.file("/var/log/boots").content_string.splitlines()]
    loaded = [driver for _boot, driver in boots]
    assert loaded == ["nouveau", "580.105.08", "590.44.01", "none", "580.105.08", "580.105.08"]
    assert len({boot for boot, _driver in boots}) == 6


def test_the_whole_driver_is_of_one_release_and_held(host):
    lines = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'").splitlines()
    driver = [line.split("|") for line in lines if "nvidia" in line or "|libcuda1|" in line]
    held = {name: version for status, name, version in driver if status.strip() == "hi"}
    others = {name: version for status, name, version in driver if status.strip() == "ii"}
    assert held == PACKAGES[_distribution(host)]
    # Debian has this one in a version of its own, so it is nobody's to hold.
    assert others == ({"nvidia-modprobe": "570.133.07-1"} if _distribution(host) == "debian13" else {})


def test_it_came_up_whole(host):
    assert host.check_output("systemctl is-system-running --wait") == "running"
    daemon = host.service("nvidia-persistenced")
    assert daemon.is_enabled and daemon.is_running
    # Ubuntu's own unit starts it with persistence off.
    assert host.file("/run/persistence-mode").content_string.strip() == "1"
    assert host.check_output("nvidia-smi").splitlines() == ["Driver Version: 580.105.08", "Attached GPUs: 8"]
    assert not host.file("/sys/module/nouveau").exists
    assert (
        host.check_output("stat -c %F /dev/nvidia-uvm /dev/nvidia-uvm-tools").splitlines()
        == ["character special file"] * 2
    )


def test_nvswitches_have_their_fabric_manager(host):
    fabric = host.service("nvidia-fabricmanager")
    if _distribution(host) == "ubuntu2404":
        assert fabric.is_enabled and fabric.is_running
    else:
        assert not fabric.exists


def test_the_key_is_the_one_that_nvidias_server_has(host):
    if _distribution(host) == "ubuntu2404":
        key = host.file("/etc/apt/keyrings/gpuhost-vllm-nvidia.asc").content_string
        assert key == host.file("/srv/driver-packages/nvidia/ubuntu2404/x86_64/3bf863cc.pub").content_string
    host.check_output("apt-get update --error-on=any")


def test_udev_understands_the_rule(host):
    if _distribution(host) == "debian13":  # older ones have no such command
        host.check_output("udevadm verify /etc/udev/rules.d/70-gpuhost-vllm-nvidia.rules")
