"""What the role decides on a host with eight RTX PRO 6000, and how it refuses."""

from __future__ import annotations

from typing import Any

from .conftest import HubControl, Plan

CPU = {"vllm_device": "cpu", "vllm_env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}


def listing(host: Any) -> str:
    """Every file that a plan could have touched."""
    return str(host.check_output("find /var/lib /etc /opt/vllm -newer /opt/vllm/tools/requirements.txt -type f | sort"))


def test_dense_mla_on_sm120_is_stripped(plan: Plan) -> None:
    made = plan()
    assert made.ok, made.output
    assert made.changed == 0
    decided = made.plan
    assert (decided["checkpoint_state"], decided["kv_cache_dtype"]) == ("stripped", "bfloat16")
    assert "shared memory" in decided["kv_decision"]["reason"] and decided["kv_decision"]["source"]
    assert decided["engine_args"]["kv_cache_dtype"] == "bfloat16"
    assert decided["engine_args"]["max_model_len"] == decided["max_model_len"] == 4096
    assert decided["gpus"]["count"] == 8
    assert decided["bytes_to_download"] == decided["bytes_total"] > 5_000_000
    assert len(decided["revision"]) == 40
    assert max(map(len, made.output.splitlines())) < 400 or "msg:" in made.output


def test_the_plan_reads_no_weights(plan: Plan, hub: HubControl) -> None:
    assert plan().ok
    ranges = [seen["range"] for seen in hub.seen() if seen["path"].endswith(".safetensors") or seen["origin"] == "cdn"]
    assert ranges and all(ranges), "every request to a shard names a range"
    wanted = sum(int(last) - int(first) + 1 for first, last in (r.split("=")[1].split("-") for r in ranges))
    assert wanted < 20_000


def test_nothing_is_changed_on_the_host(plan: Plan, host: Any) -> None:
    before = listing(host)
    assert plan().ok
    assert listing(host) == before


def test_keep_is_refused_where_it_is_known_to_fail_unless_forced(plan: Plan) -> None:
    refused = plan(plan_kv_cache_policy="keep")
    assert not refused.ok and "known to fail" in refused.output
    forced = plan(plan_kv_cache_policy="keep", plan_force=True)
    assert forced.ok, forced.output
    assert forced.plan["checkpoint_state"] == "original"
    assert any("forced" in warning for warning in forced.plan["warnings"])


def test_users_options_win(plan: Plan) -> None:
    made = plan(vllm_engine_args={"max-model-len": 1024, "tensor_parallel_size": 2, "max_num_seqs": 3}, vllm_gpus=[0, 1])
    assert made.ok, made.output
    assert made.plan["engine_args"]["max_model_len"] == 1024
    assert made.plan["engine_args"]["tensor_parallel_size"] == 2
    assert made.plan["max_num_seqs"] == 3
    assert made.plan["gpus"]["count"] == 2


def test_cpu_forecast_is_exact(plan: Plan) -> None:
    """The figures that vLLM on CPU prints for this checkpoint (tests/host/checkpoints/README.md)."""
    stripped = plan(plan_kv_cache_policy="strip", **CPU)
    assert stripped.ok, stripped.output
    assert stripped.plan["budget"]["kv_bytes_per_token"] == 3456
    shipped = plan(plan_kv_cache_policy="keep", **CPU)
    assert shipped.plan["budget"]["kv_bytes_per_token"] == 1728


def test_check_mode(plan: Plan) -> None:
    made = plan("--check")
    assert made.ok, made.output
    assert made.changed == 0 and made.plan["max_model_len"] == 4096


def test_check_mode_on_a_fresh_host(plan: Plan) -> None:
    """No tools environment: the controller asks the Hub."""
    described = plan("--check", tools_path="/opt/vllm/nowhere", plan_gpus="8x96GB", drivers_required=False)
    assert described.ok, described.output
    assert described.plan["checkpoint_state"] == "stripped"
    blind = plan("--check", tools_path="/opt/vllm/nowhere", drivers_required=False)
    assert blind.ok, blind.output
    assert "are not known" in blind.output


def test_does_not_fit(plan: Plan) -> None:
    made = plan(vllm_engine_args={"gpu_memory_utilization": 0.01})
    assert not made.ok
    assert "does not fit" in made.output or "fit" in made.output and "Remedies" in made.output
    assert "gpu_memory_utilization" in made.output


def test_refusals_are_told_apart(plan: Plan, hub: HubControl) -> None:
    unknown = plan(vllm_model="demo/nothing-of-this-name")
    assert not unknown.ok and "has no repository demo/nothing-of-this-name" in unknown.output
    revision = plan(vllm_revision="no-such-branch")
    assert not revision.ok and "has no such revision" in revision.output
    hub.set("access", {"gated": {"demo/tiny-mla": ["ann"]}})
    gated = plan()
    assert not gated.ok and "gated" in gated.output
    down = plan(vllm_hub_endpoint="http://10.231.0.1:9")
    assert not down.ok and "10.231.0.1:9" in down.output and "endpoint" in down.output
    nonsense = plan(vllm_model="not a repository")
    assert not nonsense.ok and "organization/name" in nonsense.output
    bad = plan(vllm_engine_args={"tensor_parallel_size": 3})
    assert not bad.ok and "tensor_parallel_size 3" in bad.output
