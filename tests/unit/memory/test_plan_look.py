# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan looks at: the store before the Hub, the disk, the processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.fetch import FetchRequest, fetch
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory import hub_metadata
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.plan_look import (
    look_at_checkpoint,
    look_at_disk,
    look_at_memory,
    look_at_processor,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.safetensors_headers import TensorGroup
from memory_cases import KV_CASES, write_checkpoint

from tests.host.hub import Hub

GROUPS = [TensorGroup(f"model.layers.{n}.mlp.up_proj.weight", "BF16", (64, 32), 1, 4096) for n in range(4)]
DOWN = "http://127.0.0.1:9"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    retries = hub_metadata.RetryPolicy(attempts=2, base_s=0.01, cap_s=0.02)
    monkeypatch.setattr(hub_metadata, "METADATA_RETRIES", retries)
    write_checkpoint(tmp_path / "hub/org/name", KV_CASES["llama8b-tp1"]["config"], GROUPS, 2)
    with Hub(tmp_path / "hub") as running:
        yield running


def options(endpoint: str, revision: str = "main") -> dict[str, Any]:
    source = {"path": None, "config": None, "hf_quant_config": None, "token": ""}
    return {**source, "repo_id": "org/name", "revision": revision, "endpoint": endpoint}


def fetched(hub: Hub, store: Path) -> str:
    return fetch(FetchRequest("org/name", "main", str(store), hub.endpoint, space_margin_bytes=0), False).commit


def test_nothing_is_here_yet(hub: Hub, tmp_path: Path) -> None:
    store = tmp_path / "store"
    found = look_at_checkpoint(options(hub.endpoint), str(store))
    disk = look_at_disk(options(hub.endpoint), str(store), found)
    assert disk.present_bytes == 0 and disk.free_bytes and disk.path == str(store)
    assert not store.exists(), "looking makes nothing"


def test_a_complete_snapshot_needs_no_download_and_no_hub(hub: Hub, tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit = fetched(hub, store)
    online = look_at_checkpoint(options(hub.endpoint), str(store))
    assert look_at_disk(options(hub.endpoint), str(store), online).present_bytes == online.bytes_total
    hub.seen.clear()
    pinned = look_at_checkpoint(options(hub.endpoint, commit), str(store))
    assert not hub.seen, "a pinned commit that is here is not asked for"
    for offline in (look_at_checkpoint(options(DOWN), str(store)), pinned):
        assert (offline.commit, offline.bytes_total) == (commit, online.bytes_total)
        assert set(offline.tensors or ()) == set(online.tensors or ())
    assert "does not answer" in look_at_checkpoint(options(DOWN), str(store)).notes[-1]


def test_an_incomplete_snapshot_is_no_substitute(hub: Hub, tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit = fetched(hub, store)
    (store / "org--name/snapshots" / commit / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(VllmHostError) as caught:
        look_at_checkpoint(options(DOWN), str(store))
    assert caught.value.code == "hub_unreachable"
    online = look_at_checkpoint(options(hub.endpoint), str(store))
    assert 0 < look_at_disk(options(hub.endpoint), str(store), online).present_bytes < online.bytes_total


def test_from_afar(hub: Hub, tmp_path: Path) -> None:
    found = look_at_checkpoint(options(hub.endpoint), "")
    disk = look_at_disk(options(hub.endpoint), "", found)
    assert (disk.free_bytes, disk.present_bytes) == (None, 0)
    folder = {**options(""), "repo_id": None, "path": str(tmp_path / "hub/org/name")}
    assert look_at_disk(folder, str(tmp_path), found).present_bytes == found.bytes_total


def test_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : avx512f amx_bf16 amx_tile")
    assert look_at_processor("cpu", "/store", str(cpuinfo)) == ("amx",)
    assert look_at_processor("cuda", "/store", str(cpuinfo)) == look_at_processor("cpu", "", str(cpuinfo)) == ()
    cpuinfo.write_text("flags : avx512f")
    assert look_at_processor("cpu", "/store", str(cpuinfo)) == ()
    assert look_at_processor("cpu", "/store", str(tmp_path / "none")) == ()


def test_memory_of_the_host(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       24117248 kB\nMemFree: 1 kB\n")
    assert look_at_memory("cpu", "/store", str(meminfo)) == 23 * 2**30
    assert look_at_memory("cuda", "/store", str(meminfo)) is look_at_memory("cpu", "", str(meminfo)) is None
    meminfo.write_text("nothing")
    assert look_at_memory("cpu", "/store", str(meminfo)) is look_at_memory("cpu", "/store", str(tmp_path)) is None


@pytest.mark.parametrize(
    ("revision", "endpoint", "says"), [("main", DOWN, "vllm_hub_endpoint"), ("none", "", "vllm_revision")]
)
def test_a_hub_that_fails_names_the_variable(hub: Hub, revision: str, endpoint: str, says: str) -> None:
    with pytest.raises(VllmHostError) as caught:
        look_at_checkpoint(options(endpoint or hub.endpoint, revision), "")
    assert says in caught.value.message
    assert ("vllm_model: /path" in caught.value.message) == (endpoint == DOWN)
