# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metadata from folders and from a Hub: complete, small, and told apart when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory import hub_metadata
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import (
    INDEX_LIMIT_BYTES,
    INDEX_NAME,
    needs_index,
    parse_index,
    read_local_checkpoint,
    weight_files,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.hub_metadata import read_hub_checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import TensorGroup
from memory_cases import KV_CASES, write_checkpoint, write_shard

from tests.host.hub import Hub

CONFIG = KV_CASES["llama8b-tp1"]["config"]
GROUPS = [TensorGroup(f"model.layers.{n}.mlp.up_proj.weight", "BF16", (64, 32), 1, 4096) for n in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "hub/org/name", CONFIG, GROUPS, 3, {"quantization": {"kv_cache_quant_algo": "FP8"}})
    return tmp_path / "hub/org/name"


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(hub_metadata, "METADATA_RETRIES", hub_metadata.RetryPolicy(attempts=3, base_s=0.01, cap_s=0.02))
    with Hub(folder.parents[1]) as running:
        yield running


def index(folder: Path, names: list[str], total: Any = 24576) -> None:
    weight_map = {f"tensor{number}": name for number, name in enumerate(names)}
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


def test_folder(folder: Path) -> None:
    found = read_local_checkpoint(str(folder))
    assert found.config == CONFIG and found.hf_quant_config is not None
    assert found.tensors is not None and sum(group.total_bytes for group in found.tensors) == 6 * 4096
    assert found.bytes_total == sum(path.stat().st_size for path in folder.iterdir())
    assert found.bytes_read < 2000


@pytest.mark.parametrize(
    ("names", "usual"),
    [
        (["a.safetensors"], ["a.safetensors"]),
        (["model.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (["consolidated.safetensors", "config.json"], ["consolidated.safetensors"]),
        (["sub/model.safetensors", "pytorch_model.bin"], []),
        (["model.safetensors", "adapter_model.safetensors"], ["model.safetensors"]),
    ],
)
def test_weight_files(names: list[str], usual: list[str]) -> None:
    assert weight_files(names) == usual


def test_an_index_is_needed_only_where_names_leave_it_open() -> None:
    family = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
    assert not needs_index(family) and not needs_index(family[:1])
    assert (
        needs_index(family[:2])
        and needs_index([*family, "extra.safetensors"])
        and needs_index(["a.safetensors", "b.safetensors"])
    )


def test_only_the_index_is_here(folder: Path) -> None:
    index(folder, [path.name for path in folder.glob("*.safetensors")], 123_456)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    found = read_local_checkpoint(str(folder))
    assert found.tensors is None and found.weight_bytes == 123_456 and "not here" in found.notes[0]


def test_other_formats_have_only_a_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 1000)
    found = read_local_checkpoint(str(tmp_path))
    assert found.tensors is None and found.weight_bytes == 1000


def test_incomplete_folder_names_what_is_missing(folder: Path) -> None:
    index(folder, [path.name for path in folder.glob("*.safetensors")])
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(VllmHostError, match="model-00002-of-00003") as caught:
        read_local_checkpoint(str(folder))
    assert caught.value.code == "checkpoint_incomplete"


def test_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(VllmHostError, match="has no config.json") as caught:
        read_local_checkpoint(str(tmp_path))
    assert caught.value.code == "checkpoint_not_found"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "no weight_map"),
        (b'{"weight_map": {}}', "no weight_map"),
        (b'{"weight_map": {"a": "../../etc/passwd"}}', "as a file of weights"),
        (b'{"weight_map": {"a": "/x.safetensors"}}', "as a file of weights"),
        (b'{"weight_map": {"a": 1}}', "as a file of weights"),
    ],
)
def test_hostile_index(raw: bytes, says: str) -> None:
    with pytest.raises(VllmHostError, match="index.json") as caught:
        parse_index(raw, INDEX_NAME)
    assert caught.value.code == "bad_index" and says in caught.value.message


def test_an_index_of_200_mb_is_not_even_read(folder: Path) -> None:
    with (folder / INDEX_NAME).open("wb") as stream:
        stream.truncate(2 * INDEX_LIMIT_BYTES)
    with pytest.raises(VllmHostError, match="200,000,000 bytes") as caught:
        read_local_checkpoint(str(folder))
    assert caught.value.code == "bad_index"


def test_hub_says_the_same_as_the_folder(hub: Hub, folder: Path) -> None:
    found, local = read_hub_checkpoint("org/name", endpoint=hub.endpoint), read_local_checkpoint(str(folder))
    assert set(found.tensors or ()) == set(local.tensors or ())
    assert (found.config, found.hf_quant_config, found.bytes_total) == (
        local.config,
        local.hf_quant_config,
        local.bytes_total,
    )
    assert len(found.commit) == 40
    asked = [seen for seen in hub.seen if seen.path.endswith(".safetensors")]
    assert asked and all(seen.range for seen in asked), "never a whole shard"


def test_hub_is_asked_for_the_index_only_if_need_be(hub: Hub, folder: Path) -> None:
    read_hub_checkpoint("org/name", endpoint=hub.endpoint)
    assert not [seen for seen in hub.seen if seen.path.endswith(INDEX_NAME)]


def test_hub_with_extra_shards_follows_its_index(tmp_path: Path) -> None:
    folder = tmp_path / "org/name"
    write_checkpoint(folder, CONFIG, GROUPS, 3)
    write_shard(folder / "other.safetensors", [("unused", "BF16", (4,), 8)])
    index(folder, [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)])
    with Hub(tmp_path) as running:
        found = read_hub_checkpoint("org/name", endpoint=running.endpoint)
    assert sum(group.count for group in found.tensors or ()) == 6


def test_no_token_leaves_for_another_origin(hub: Hub) -> None:
    hub.tokens = {"hf_secret": "ann"}
    hub.gated = {"org/name": {"ann"}}
    assert read_hub_checkpoint("org/name", endpoint=hub.endpoint, token="hf_secret").tensors
    assert not any(seen.authorized for seen in hub.seen if seen.origin == "cdn")


@pytest.mark.parametrize(
    "rule",
    [
        {"where": "cdn", "status": 503, "times": 2},
        {"where": "tree", "status": 500, "times": 1},
        {"where": "cdn", "drop_after": 3, "times": 1},
        {"where": "cdn", "ignore_range": True, "times": None},
        {"where": "cdn", "expire": True, "times": 1},
    ],
)
def test_faults_that_pass(hub: Hub, rule: dict[str, Any]) -> None:
    hub.faults.add(**rule)
    found = read_hub_checkpoint("org/name", endpoint=hub.endpoint)
    assert sum(group.count for group in found.tensors or ()) == 6


def test_faults_that_stay(hub: Hub) -> None:
    hub.faults.add(where="cdn", status=503, times=None)
    with pytest.raises(VllmHostError, match="3 attempts") as caught:
        read_hub_checkpoint("org/name", endpoint=hub.endpoint)
    assert caught.value.code == "hub_failed" and "model-0000" in caught.value.message


def test_refusals(hub: Hub) -> None:
    def code(repo: str = "org/name", **options: Any) -> str:
        with pytest.raises(VllmHostError) as caught:
            read_hub_checkpoint(repo, endpoint=options.pop("endpoint", hub.endpoint), **options)
        assert "hf_wrong" not in caught.value.message
        return caught.value.code

    assert code("org/nothing") == "repo_not_found"
    assert code(revision="nope") == "revision_not_found"
    hub.tokens, hub.gated = {"hf_right": "ann"}, {"org/name": {"ann"}}
    assert code() == "repo_gated"
    assert code(token="hf_wrong") == "token_refused"
    assert code(endpoint="http://127.0.0.1:9") == "hub_unreachable"


def test_a_hostile_shard_is_named(folder: Path) -> None:
    path = folder / "model-00002-of-00003.safetensors"
    path.write_bytes((10**12).to_bytes(8, "little") + b"{}")
    with Hub(folder.parents[1]) as running, pytest.raises(VllmHostError, match="model-00002-of-00003") as caught:
        read_hub_checkpoint("org/name", endpoint=running.endpoint)
    assert caught.value.code == "bad_safetensors"


def test_a_part_of_a_family_is_not_the_model(folder: Path, hub: Hub) -> None:
    """Without an index nothing but the names says that two of three files are not the whole."""
    (folder / "model-00002-of-00003.safetensors").unlink()
    for read in (
        lambda: read_local_checkpoint(str(folder)),
        lambda: read_hub_checkpoint("org/name", endpoint=hub.endpoint),
    ):
        with pytest.raises(VllmHostError, match="2 of the 3 files") as caught:
            read()
        assert caught.value.code == "checkpoint_incomplete"


@pytest.mark.parametrize("name", ["model-00002-of-00003.safetensors", "hf_quant_config.json"])
def test_a_link_to_nothing_is_not_left_out(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("../../blobs/gone")
    with pytest.raises(VllmHostError, match=name) as caught:
        read_local_checkpoint(str(folder))
    assert caught.value.code == "checkpoint_incomplete"


def test_files_without_tensors_are_not_weights_of_no_size(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, [], 1)
    with pytest.raises(VllmHostError, match="no tensors at all") as caught:
        read_local_checkpoint(str(tmp_path))
    assert caught.value.code == "bad_safetensors"


@pytest.mark.parametrize("total", [True, "5", -1, 1e400, 10**30])
def test_a_total_that_is_none_is_not_believed(folder: Path, total: Any) -> None:
    index(folder, ["gone.safetensors"], total)
    with pytest.raises(VllmHostError) as caught:
        read_local_checkpoint(str(folder))
    assert caught.value.code == "checkpoint_incomplete"


def test_a_configuration_of_a_gigabyte_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(VllmHostError) as caught:
        read_local_checkpoint(str(folder))
    assert caught.value.code == "json_too_large"
