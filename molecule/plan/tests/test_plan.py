"""What the role decides for eight RTX PRO 6000, how it refuses, and that it changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import HubControl, changed_by_plan, name_of, run_cases

CPU = {"device": "cpu", "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}
CASES: list[dict[str, Any]] = [
    {"name": "plain"},
    {"name": "keep", "policy": "keep"},
    {"name": "forced", "policy": "keep", "force": True},
    {"name": "options", "engine_args": {"max-model-len": 1024, "tensor_parallel_size": 2, "max_num_seqs": 3}},
    {"name": "cpu stripped", "policy": "strip", **CPU},
    {"name": "cpu as shipped", "policy": "keep", **CPU},
    {"name": "too little memory", "engine_args": {"gpu_memory_utilization": 0.001}},
    {"name": "odd parallelism", "engine_args": {"tensor_parallel_size": 3}},
    {"name": "unknown model", "model": "demo/nothing-of-this-name"},
    {"name": "unknown revision", "revision": "no-such-branch"},
    {"name": "nonsense", "model": "not a repository"},
    {"name": "Hub down", "endpoint": "http://10.231.0.1:9"},
    {"name": "no GPUs", "gpus": []},
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, hub: HubControl) -> dict[str, Any]:
    hub.forget()
    found, output = run_cases(tmp_path_factory.mktemp("cases"), CASES)
    assert changed_by_plan(output) == []
    return found


@pytest.fixture
def outcome(outcomes: dict[str, Any], host: Any) -> dict[str, Any]:
    return dict(outcomes[name_of(host)])


def test_dense_mla_on_sm120_is_stripped(outcome: dict[str, Any]) -> None:
    plan = outcome["plain"]["plan"]
    assert (plan["checkpoint_state"], plan["kv_cache_dtype"]) == ("stripped", "bfloat16")
    assert "shared memory" in plan["kv_decision"]["reason"] and plan["kv_decision"]["source"]
    assert plan["engine_args"]["kv_cache_dtype"] == "bfloat16"
    assert plan["engine_args"]["max_model_len"] == plan["max_model_len"] == 4096
    assert plan["gpus"]["count"] == 8
    assert plan["bytes_to_download"] == plan["bytes_total"] > 5_000_000
    assert plan["disk_free_bytes"] > 10**9
    assert len(plan["revision"]) == 40


def test_keep_is_refused_where_it_is_known_to_fail_unless_forced(outcome: dict[str, Any]) -> None:
    assert outcome["keep"]["failure"]["code"] == "kv_choice_known_to_fail"
    forced = outcome["forced"]["plan"]
    assert forced["checkpoint_state"] == "original"
    assert any("forced" in warning for warning in forced["warnings"])


def test_users_options_win(outcome: dict[str, Any]) -> None:
    args = outcome["options"]["plan"]["engine_args"]
    assert (args["max_model_len"], args["tensor_parallel_size"], args["max_num_seqs"]) == (1024, 2, 3)


def test_cpu_has_twice_the_tokens_as_shipped(outcome: dict[str, Any]) -> None:
    """The figures that vLLM on CPU prints for this checkpoint (tests/host/checkpoints/README.md)."""
    stripped, shipped = outcome["cpu stripped"]["plan"]["budget"], outcome["cpu as shipped"]["plan"]["budget"]
    assert (stripped["kv_bytes_per_token"], shipped["kv_bytes_per_token"]) == (3456, 1728)
    assert stripped["kv_cache_tokens"] in (310_688, 310_656)
    assert shipped["kv_cache_tokens"] in (621_376, 621_312)


@pytest.mark.parametrize(
    ("case", "code", "says"),
    [
        ("too little memory", "does_not_fit", "gpu_memory_utilization"),
        ("odd parallelism", "bad_engine_args", "tensor_parallel_size 3"),
        ("unknown model", "repo_not_found", "has no repository demo/nothing-of-this-name"),
        ("unknown revision", "revision_not_found", "has no such revision"),
        ("nonsense", None, "organization/name"),
        ("Hub down", "hub_unreachable", "10.231.0.1:9"),
        ("no GPUs", "no_gpus", "8x96GB"),
    ],
)
def test_refusals_are_told_apart(outcome: dict[str, Any], case: str, code: str | None, says: str) -> None:
    refused = outcome[case]
    assert refused["failure"].get("code") == code
    assert says in refused["msg"]


def test_only_headers_are_read(outcomes: dict[str, Any], hub: HubControl) -> None:
    asked = [seen for seen in hub.seen() if seen["path"].endswith(".safetensors") or seen["origin"] == "cdn"]
    assert asked and all(seen["range"] for seen in asked), "every request for a shard names a range"


def test_gated(tmp_path: Any, host: Any, hub: HubControl) -> None:
    hub.access({"demo/tiny-mla": ["ann"]})
    found, _output = run_cases(tmp_path, [{"name": "gated"}], "--limit", name_of(host))
    hub.access({})
    assert found[name_of(host)]["gated"]["failure"]["code"] == "repo_gated"


def test_check_mode_on_a_fresh_host(tmp_path: Any, host: Any) -> None:
    """No tools environment: the controller asks the Hub, or the role says why there is no plan."""
    cases = [{"name": "described"}, {"name": "blind", "gpus": []}]
    found, output = run_cases(tmp_path, cases, "--check", "--limit", name_of(host), tools_path="/opt/vllm/nowhere")
    plans = found[name_of(host)]
    assert plans["described"]["plan"]["checkpoint_state"] == "stripped"
    assert plans["described"]["plan"]["disk_free_bytes"] is None
    assert plans["blind"]["plan"] == {}
    assert "are not known" in output
    assert host.file("/opt/vllm/nowhere").exists is False


def test_nothing_was_written(host: Any) -> None:
    assert host.file("/var/lib/vllm").exists is False
