"""The module as Ansible calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.modules import quant_config_strip
from checkpoint_folders import COMMIT

from tests.unit.module_process import module_process


@pytest.fixture
def run(capsys, snapshot, views):
    def call(*, check: bool = False, **changes: Any) -> dict[str, Any]:
        args = {"snapshot": str(snapshot), "views": str(views), "name": "kimi", **changes}
        with module_process({**args, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            quant_config_strip.main()
        return json.loads(capsys.readouterr().out)

    return call


def test_stripped_is_the_default(run, views):
    result = run()
    assert result["changed"]
    assert result["path"] == str((views / "kimi").resolve())
    assert result["commit"] == COMMIT
    assert result["edits"] == [
        {
            "file": "config.json",
            "key": "quantization_config.kv_cache_scheme",
            "before": {"dynamic": False, "num_bits": 8, "type": "float"},
            "after": None,
            "action": "removed",
        },
        {
            "file": "hf_quant_config.json",
            "key": "quantization.kv_cache_quant_algo",
            "before": "FP8",
            "after": None,
            "action": "set",
        },
    ]
    assert [entry["before_header"].rsplit("/", 1)[1] for entry in result["diff"]] == [
        "config.json",
        "hf_quant_config.json",
    ]
    again = run()
    assert not again["changed"]
    assert again["edits"] == result["edits"]
    assert again["diff"] == []


def test_original_and_back(run):
    stripped = run()
    original = run(state="original")
    assert (original["changed"], original["edits"], original["previous"]) == (True, [], stripped["path"])
    assert run()["path"] == stripped["path"]


def test_check_mode_predicts_and_changes_nothing(run, views):
    would = run(check=True)
    assert would["changed"]
    assert not views.exists()
    done = run()
    assert {key: would[key] for key in ("path", "edits", "diff")} == {
        key: done[key] for key in ("path", "edits", "diff")
    }


def test_check_mode_without_a_snapshot(run, tmp_path, views):
    would = run(check=True, snapshot=str(tmp_path / "not-yet"))
    assert would["changed"]
    assert would["path"] == str(views / "kimi")
    assert "once it has been fetched completely" in would["msg"]


def test_a_failure_has_a_code_and_names_the_file(run, snapshot):
    (snapshot / ".manifest.json").write_text("[]")
    result = run()
    assert result["failed"]
    assert result["failure"]["code"] == "manifest_unreadable"
    assert ".manifest.json" in result["msg"]


def test_an_unknown_declaration_is_a_warning(run, make_checkpoint):
    folder = make_checkpoint(config={"quantization_config": {"kv_cache_oddity": 32}})
    result = run(snapshot=str(folder))
    assert result["unknown"] == [{"file": "config.json", "key": "quantization_config.kv_cache_oddity", "value": 32}]
    assert any("kv_cache_oddity" in str(warning) for warning in result["warnings"])
