"""The role's task over several hosts at once: a Hub meets no more of them than were allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from tests.host import paths
from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import make_repository

HOSTS = ("gpu1", "gpu2", "gpu3")
ROLE = paths.CHECKOUT / "roles/checkpoint_fetch"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the role makes the store root's")
@pytest.mark.parametrize("at_once", [0, 1])
def test_so_many_hosts_fetch_at_once(tmp_path: Path, at_once: int) -> None:
    for host in HOSTS:
        make_repository(tmp_path / "hub" / "acme" / host, shards=1)
    with Hub(tmp_path / "hub") as hub:
        hub.faults.add(where="cdn", bytes_per_second=800_000, drop_after=300_000, times=None)
        play = {
            "hosts": "all",
            "gather_facts": False,
            "vars": yaml.safe_load((ROLE / "defaults/main.yml").read_text())
            | yaml.safe_load((ROLE / "vars/main.yml").read_text())
            | {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "vllm_tools": {"python": sys.executable, "ready": True},
                "vllm_model": "acme/{{ inventory_hostname }}",
                "vllm_hub_endpoint": hub.endpoint,
                "checkpoint_fetch_store": f"{tmp_path}/store-{{{{ inventory_hostname }}}}",
                "checkpoint_fetch_background": False,
                "checkpoint_fetch_hosts_at_once": at_once,
            },
            "tasks": [{"ansible.builtin.include_tasks": str(ROLE / "tasks/fetch.yml")}],
        }
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
        command = ["ansible-playbook", "-i", ",".join(HOSTS), str(tmp_path / "play.yml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        turns = [
            host for host, _ in groupby(host for seen in hub.seen for host in HOSTS if f"acme/{host}" in seen.path)
        ]
    assert all((tmp_path / f"store-{host}" / f"acme--{host}").is_dir() for host in HOSTS)
    if at_once:
        assert sorted(turns) == list(HOSTS), "one after the other"
    else:
        assert len(turns) > len(HOSTS), "all together"
