# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of what vLLM measured: one key, one file, one meaning."""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.measured import (
    Measurement,
    find_measurement,
    measurement_key,
    measurement_path,
    write_measurement,
)


def key(**args: object) -> dict[str, object]:
    return measurement_key("org/name", "c" * 40, "0.32.0", "NVIDIA X", 8, args, "bfloat16", "stripped")


def test_round_trip(tmp_path: Path) -> None:
    kept = Measurement(key(tensor_parallel_size=8), 10, 20, 30, 40, 1.5, 50, 60.0, "2026-12-02T00:00:00Z")
    path = write_measurement(kept, str(tmp_path / "new"))
    assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads(path.read_text())["schema"] == 1
    assert find_measurement(key(tensor_parallel_size=8), str(tmp_path / "new")) == kept
    assert list(path.parent.iterdir()) == [path]


def test_only_what_changes_memory_is_part_of_the_key() -> None:
    assert key(tensor_parallel_size=8, port=1, max_model_len=5) == key(
        max_model_len=9, tensor_parallel_size=8, host="x"
    )
    assert key(max_num_seqs=64) != key(max_num_seqs=128)
    assert measurement_path(key(a=1)) == measurement_path(key(b=2))


def test_what_is_damaged_or_foreign_is_no_record(tmp_path: Path) -> None:
    wanted = key()
    assert find_measurement(wanted, "") is None
    assert find_measurement(wanted, str(tmp_path)) is None
    path = measurement_path(wanted, str(tmp_path))
    for content in ("", "{", "[]", '{"schema": 2}', json.dumps({"schema": 1, "key": {"model": "other"}})):
        path.write_text(content)
        assert find_measurement(wanted, str(tmp_path)) is None
    path.write_text("[" * 100_000)
    assert find_measurement(wanted, str(tmp_path)) is None
    for figure in ("12", [], True, -1, float("nan"), 1e400):
        path.write_text(json.dumps({"schema": 1, "key": wanted, "available_kv_cache_bytes": figure}))
        assert find_measurement(wanted, str(tmp_path)) is None
    path.write_text(json.dumps({"schema": 1, "key": wanted, "of_a_later_version": 1, "num_gpu_blocks": 7}))
    found = find_measurement(wanted, str(tmp_path))
    assert found is not None and found.num_gpu_blocks == 7
