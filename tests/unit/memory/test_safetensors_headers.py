# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers are believed only after every check; whatever a file contains, the answer is a result or a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import (
    HEADER_LIMIT_BYTES,
    TensorTally,
    read_local_headers,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import shard_bytes, write_shard


def tally_of(*headers: tuple[dict[str, Any], int]) -> TensorTally:
    tally = TensorTally()
    for number, (header, data_bytes) in enumerate(headers):
        tally.add(json.dumps(header).encode(), data_bytes, f"shard {number}")
    tally.groups()
    return tally


def entry(begin: int, end: int, shape: Any, dtype: Any = "BF16") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_experts_are_counted(tmp_path: Path) -> None:
    name = "model.layers.3.mlp.experts.{}.up_proj.weight"
    write_shard(tmp_path / "a.safetensors", [(name.format(n), "BF16", (4, 2), 16) for n in range(3)])
    write_shard(tmp_path / "b.safetensors", [(name.format(3), "BF16", (4, 2), 16), ("lm_head.weight", "F32", (2,), 8)])
    tally = read_local_headers([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    groups = {group.name: group for group in tally.groups()}
    experts = groups["model.layers.3.mlp.experts.*.up_proj.weight"]
    assert (experts.count, experts.total_bytes, experts.shape) == (4, 64, (4, 2))
    assert groups["lm_head.weight"].total_bytes == 8
    assert tally.tensors == 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "too few"),
        (b"\x01\x02", "too few"),
        ((10**6).to_bytes(8, "little") + b"{}", "has 10 bytes in all"),
        ((HEADER_LIMIT_BYTES + 1).to_bytes(8, "little") + b"{}", "the format allows 100000000"),
        ((2**63).to_bytes(8, "little") + b"{}", "the format allows"),
        ((2).to_bytes(8, "little") + b"[]", "not a JSON object"),
        ((5).to_bytes(8, "little") + b"{nope", "not JSON"),
        ((5).to_bytes(8, "little") + b'{"\xff":', "not JSON"),
        ((0).to_bytes(8, "little"), "claims a header of 0 bytes"),
    ],
)
def test_hostile_files(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(VllmHostError) as caught:
        read_local_headers([path])
    assert caught.value.code == "bad_safetensors"
    assert says in caught.value.message and str(path) in caught.value.message
    assert "fetch it again" in caught.value.message


@pytest.mark.parametrize(
    ("header", "data_bytes", "says"),
    [
        ({"a": entry(0, 8, [4]), "b": entry(4, 12, [4])}, 12, "overlapping"),
        ({"a": entry(8, 0, [4])}, 12, "overlapping or reversed"),
        ({"a": entry(-8, 0, [4])}, 12, "overlapping or reversed"),
        ({"a": entry(0, 8, [4])}, 6, "cut off"),
        ({"a": entry(0, 8, [5])}, 8, "BF16 [5] is 10"),
        ({"a": entry(0, 8, [-4])}, 8, "shape [-4]"),
        ({"a": entry(0, 8, [4.0])}, 8, "shape [4.0]"),
        ({"a": entry(0, 8, "4")}, 8, "shape"),
        ({"a": entry(0, 8, [[4]])}, 8, "sound dtype, shape"),
        ({"a": entry(0, 8, [4], dtype=7)}, 8, "dtype 7"),
        ({"a": entry(0, 8, [4], dtype=["BF16"])}, 8, "sound dtype"),
        ({"a": {"dtype": "BF16", "shape": [4]}}, 8, "names 0 tensors"),
        ({"a": {"shape": [4], "data_offsets": [0, 8]}}, 8, "sound dtype"),
        ({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 4, 8]}}, 8, "sound dtype"),
        ({"a": {"dtype": "BF16", "shape": [4], "data_offsets": ["0", "8"]}}, 8, "sound dtype"),
        ({"a": "data_offsets"}, 8, "tensors"),
    ],
)
def test_hostile_headers(header: dict[str, Any], data_bytes: int, says: str) -> None:
    with pytest.raises(VllmHostError, match="damaged or not a safetensors file") as caught:
        tally_of((header, data_bytes))
    assert says in caught.value.message


def test_duplicate_names() -> None:
    tally = TensorTally()
    one = '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    with pytest.raises(VllmHostError, match="names 2 tensors but only 1 different"):
        tally.add(f"{{{one},{one}}}".encode(), 2, "x.safetensors")
    with pytest.raises(VllmHostError, match="repeats tensor 'a'"):
        tally_of(({"a": entry(0, 8, [4])}, 8), ({"a": entry(0, 8, [4])}, 8))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(VllmHostError, match="No such file") as caught:
        read_local_headers([tmp_path / "gone.safetensors"])
    assert caught.value.code == "checkpoint_unreadable"


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda name: name != "__metadata__"
)


@given(
    st.dictionaries(NAMES, st.tuples(st.lists(st.integers(0, 9), max_size=3), st.sampled_from(["U8", "BF16", "F32"])))
)
def test_any_sound_file_is_summed(tensors: dict[str, tuple[list[int], str]]) -> None:
    width = {"U8": 1, "BF16": 2, "F32": 4}
    rows = []
    for name, (shape, dtype) in tensors.items():
        size = width[dtype]
        for extent in shape:
            size *= extent
        rows.append((name, dtype, shape, size))
    head, data = shard_bytes(rows)
    tally = TensorTally()
    tally.add(head[8:], data, "x")
    assert sum(group.total_bytes for group in tally.groups()) == data
    assert sum(group.count for group in tally.groups()) == len(tensors)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_flipped_byte_never_crashes(data: st.DataObject) -> None:
    head, size = shard_bytes([(f"model.layers.{n}.mlp.experts.1.w", "BF16", (2, 3), 12) for n in range(3)])
    header = bytearray(head[8:])
    position = data.draw(st.integers(0, len(header) - 1))
    header[position] = data.draw(st.integers(0, 255))
    tally = TensorTally()
    try:
        tally.add(bytes(header), size, "x")
        tally.groups()
    except VllmHostError as error:
        assert error.code == "bad_safetensors"
