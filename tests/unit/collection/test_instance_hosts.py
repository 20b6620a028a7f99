"""A host with several instances becomes one host of the play for each of them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpuhost.vllm.plugins.filter.instance_hosts import instance_hosts


def _host(*instances, **variables):
    return {"gpu1": {"group_names": ["vllm"], "vllm_instances": list(instances), **variables}}


def test_a_host_without_instances_gives_none():
    assert instance_hosts(["gpu1"], {"gpu1": {"group_names": ["vllm"]}}) == []


def test_an_instance_has_its_hosts_groups_connection_and_gpus_but_not_its_facts():
    hostvars = _host(
        {"vllm_instance": "a", "vllm_gpus": [0]},
        ansible_host="10.0.0.1",
        ansible_ssh_private_key_file="/key",
        ansible_hostname="a fact",
        ansible_user_id="a fact",
        vllm_gpus_found={"gpus": []},
    )
    assert instance_hosts(["gpu1"], hostvars) == [
        {
            "name": "gpu1--a",
            "groups": ["vllm"],
            "ansible_host": "10.0.0.1",
            "ansible_ssh_private_key_file": "/key",
            "vllm_gpus_found": {"gpus": []},
            "vllm_instance": "a",
            "vllm_gpus": [0],
        }
    ]


def test_without_an_address_the_hosts_own_name_is_reached():
    assert instance_hosts(["gpu1"], _host({"vllm_instance": "a"}))[0]["ansible_host"] == "gpu1"


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([{"vllm_gpus": [0]}], r"gpu1: vllm_instances\[0\]: vllm_instance is missing"),
        ([{"vllm_instance": "a", "vllm_gpus": [0]}, {"vllm_instance": "a", "vllm_gpus": [1]}], "name a is taken"),
        ([{"vllm_instance": "a"}, {"vllm_instance": "b", "vllm_gpus": [1]}], r"\(a\): vllm_gpus is missing"),
        (
            [{"vllm_instance": "a", "vllm_gpus": [0, 1, 2]}, {"vllm_instance": "b", "vllm_gpus": [2, 1]}],
            r"\(b\): GPU 1, 2 belongs to a already",
        ),
    ],
)
def test_instances_that_cannot_stand_side_by_side_are_refused(instances, message):
    with pytest.raises(AnsibleFilterError, match=message):
        instance_hosts(["gpu1"], _host(*instances))
