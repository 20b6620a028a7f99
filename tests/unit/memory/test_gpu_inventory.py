# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs by description and as gpu_info finds them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.gpu_inventory import inventory_gpus, pick_gpus


@pytest.mark.parametrize(
    ("text", "count", "name", "capability"),
    [
        ("8x96GB", 8, "RTX PRO 6000", (12, 0)),
        ("8 x 96 GB", 8, "RTX PRO 6000", (12, 0)),
        ("96gb", 1, "RTX PRO 6000", (12, 0)),
        ("2xH200", 2, "H200", (9, 0)),
        ("4x h100", 4, "H100", (9, 0)),
        ("8xB200", 8, "B200", (10, 0)),
        ("8xRTX6000 Ada", 8, "RTX 6000 Ada", (8, 9)),
        ("rtxpro6000", 1, "RTX PRO 6000", (12, 0)),
        ("NVIDIA A100-PCIE-40GB", 1, "A100-PCIE-40GB", (8, 0)),
        ("5090", 1, "RTX 5090", (12, 0)),
        ("2*RTX PRO 6000", 2, "RTX PRO 6000", (12, 0)),
        ("1x141GB", 1, "H200", (9, 0)),
        ("4x100GB", 4, "", None),
    ],
)
def test_descriptions(text: str, count: int, name: str, capability: Any) -> None:
    found = inventory_gpus(text)
    assert len(found) == count
    assert name in found[0].name and found[0].compute_capability == capability
    assert found[0].total_bytes > 20 * 2**30


def test_facts() -> None:
    facts = [
        {"name": "NVIDIA X", "total_bytes": 10**11, "reserved_bytes": 10**9, "compute_capability": "12.0", "index": 0}
    ]
    found = inventory_gpus([*facts, "1xH200"])
    assert (found[0].reserved_bytes, found[0].compute_capability) == (10**9, (12, 0))
    assert "H200" in found[1].name
    assert inventory_gpus("") == inventory_gpus([]) == []
    assert inventory_gpus([{"total_bytes": 1, "compute_capability": None}])[0].compute_capability is None


@pytest.mark.parametrize(
    "wrong", ["0x96GB", "8xNothing", "9999x96GB", "x", [3], [{"name": "no size"}], [{"total_bytes": -1}], "8x0GB"]
)
def test_nonsense_is_refused_with_an_example(wrong: Any) -> None:
    with pytest.raises(VllmHostError, match="8x96GB") as caught:
        inventory_gpus(wrong)
    assert caught.value.code == "bad_gpus"


@pytest.mark.parametrize(
    "described",
    [
        *(8, True, {}, {"gpus": "8x96GB"}, [None], [["8x96GB"]], "²x96GB", "9" * 5000 + "x96GB", "x" * 10**6),
        [{"total_bytes": 96 * 2**30, "compute_capability": "twelve"}],
        [{"total_bytes": 96 * 2**30, "reserved_bytes": "1"}],
    ],
)
def test_what_describes_no_gpus_is_refused_in_one_line(described: Any) -> None:
    with pytest.raises(VllmHostError, match="describes no GPUs") as caught:
        inventory_gpus(described)
    assert caught.value.code == "bad_gpus" and len(caught.value.message) < 1000


def test_nothing_described_is_no_gpus() -> None:
    assert inventory_gpus(None) == inventory_gpus("") == inventory_gpus([]) == []


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("8xRTX6000", ["8xRTX PRO 6000 Blackwell Server Edition", "8xRTX 6000 Ada Generation"]),
        ("RTX 6000", ["1xRTX PRO 6000 Blackwell Server Edition", "1xRTX 6000 Ada Generation"]),
        ("4xA100", ["4xA100-SXM4-80GB", "4xA100-PCIE-40GB"]),
        ("GeForce", ["1xGeForce RTX 5090", "1xGeForce RTX 4090"]),
    ],
)
def test_a_name_of_several_products_is_refused_with_the_choices(text: str, choices: list[str]) -> None:
    with pytest.raises(VllmHostError, match="may mean several products") as caught:
        inventory_gpus(text)
    assert caught.value.code == "bad_gpus" and "plan_gpus" in caught.value.message
    for choice in choices:
        assert choice in caught.value.message
        assert len({gpu.name for gpu in inventory_gpus(choice)}) == 1


@pytest.mark.parametrize("other", ["8xA10", "8xH20", "8xRTX A6000", "8xB20", "8xH100 NVL"])
def test_a_name_that_only_begins_like_a_products_is_not_it(other: str) -> None:
    with pytest.raises(VllmHostError, match="describes no GPUs"):
        inventory_gpus(other)


def test_gpus_of_an_instance() -> None:
    assert len(pick_gpus(inventory_gpus("8x96GB"), [2, 3])) == 2
    facts = [{"name": f"GPU {index}", "total_bytes": 10**10, "index": index} for index in (4, 6)]
    assert [gpu.name for gpu in pick_gpus(inventory_gpus(facts), [6])] == ["GPU 6"]
    assert pick_gpus(inventory_gpus("2xH200"), []) == inventory_gpus("2xH200")
    assert pick_gpus([], [0]) == []
    with pytest.raises(VllmHostError, match="vllm_gpus asks for 5, 7, and the GPUs are 4, 6"):
        pick_gpus(inventory_gpus(facts), [5, 6, 7])
