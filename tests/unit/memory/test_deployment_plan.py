# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision of the role plan: what it derives, what the user wins, what it refuses, and that it stays put."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import given_configuration
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.deployment_plan import Disk, PlanRequest, make_plan
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.gpu_inventory import inventory_gpus
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.measured import Measurement, write_measurement
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.plan_report import WIDTH, memory_bar, render_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import KV_CASES

GIB = 2**30


def request(case: str = "kimi25-tp8-auto", gpus: str = "8x96GB", **changes: Any) -> PlanRequest:
    found = KV_CASES[case]
    checkpoint = given_configuration(found["config"], found.get("hf_quant_config"))
    checkpoint = replace(checkpoint, origin="org/name", commit="c" * 40, bytes_total=595 * 10**9)
    fields: dict[str, Any] = {
        "model": "org/name",
        "checkpoint": checkpoint,
        "gpus": inventory_gpus(gpus),
        "engine_args": {"gpu_memory_utilization": 0.95},
        "measured_folder": "",
    }
    return PlanRequest(**{**fields, **changes})


def declaring_fp8(name: str = "kimi25-tp8-auto") -> Any:
    found = request(name).checkpoint
    config = dict(found.config)
    scheme = {"dynamic": False, "num_bits": 8, "type": "float"}
    config["quantization_config"] = {**config["quantization_config"], "kv_cache_scheme": scheme}
    return replace(found, config=config)


def test_reference_inventory_is_derived_from_the_model_name() -> None:
    """nvidia/Kimi-K2.5-NVFP4 declares an FP8 cache; on SM120 with 0.32 that is stripped, and said twice."""
    plan = make_plan(request(checkpoint=declaring_fp8()))
    assert (plan["checkpoint_state"], plan["kv_cache_dtype"]) == ("stripped", "bfloat16")
    args = plan["engine_args"]
    assert args["tensor_parallel_size"] == 8 and args["gpu_memory_utilization"] == 0.95
    assert args["kv_cache_dtype"] == "bfloat16" and args["max_num_seqs"] == 64
    assert args["max_model_len"] == plan["max_model_len"] >= 131072
    assert plan["max_model_len"] % 8192 == 0 and plan["budget"]["fits"]
    assert plan["revision"] == "c" * 40 and plan["bytes_to_download"] == 595 * 10**9
    assert 9 * 60 < plan["load_seconds_expected"] < 12 * 60
    assert plan["kv_decision"]["policy"] == "auto" and plan["kv_decision"]["source"]


def test_older_release_keeps_fp8_where_its_kernel_fits() -> None:
    plan = make_plan(request(checkpoint=declaring_fp8(), vllm_version="0.19.1"))
    assert (plan["checkpoint_state"], plan["kv_cache_dtype"]) == ("original", "fp8_e4m3")
    assert plan["budget"]["kv_bytes_per_token"] == 35_136


def test_sparse_mla_is_never_stripped_on_sm120() -> None:
    plan = make_plan(request("dsv32-tp8-sm120"))
    assert plan["checkpoint_state"] == "original"
    with pytest.raises(VllmHostError, match="known to fail"):
        make_plan(request("dsv32-tp8-sm120", kv_cache_policy="strip"))


def test_user_wins_over_recipe_wins_over_derived() -> None:
    recipe = {
        "engine_args": {"max-num-seqs": 16, "tool_call_parser": "kimi_k2", "max_model_len": 65536},
        "env": {"A": 1, "B": 2},
    }
    plan = make_plan(request(recipe=recipe, engine_args={"max_model_len": 32768}, env={"B": 3}))
    args = plan["engine_args"]
    assert (args["max_model_len"], args["max_num_seqs"], args["tool_call_parser"]) == (32768, 16, "kimi_k2")
    assert plan["env"] == {"A": "1", "B": "3"}


def test_kv_cache_dtype_auto_is_not_a_choice() -> None:
    plan = make_plan(request(checkpoint=declaring_fp8(), engine_args={"kv_cache_dtype": "auto"}))
    assert plan["engine_args"]["kv_cache_dtype"] == "bfloat16"


def test_length_auto_becomes_a_number() -> None:
    for word in (-1, "auto"):
        plan = make_plan(request(engine_args={"max_model_len": word}))
        assert plan["engine_args"]["max_model_len"] == plan["max_model_len"] > 100_000


@pytest.mark.parametrize(
    ("case", "gpus", "tensor"),
    [("qwen3-30b-tp2", "3x96GB", 2), ("gptoss120b-tp1", "5x96GB", 4), ("scout-tp8", "8x96GB", 8)],
)
def test_tensor_parallelism_divides_the_heads(case: str, gpus: str, tensor: int) -> None:
    plan = make_plan(request(case, gpus, engine_args={}))
    assert plan["engine_args"]["tensor_parallel_size"] == tensor
    assert plan["gpus"]["used"] == tensor


def test_does_not_fit_comes_with_remedies() -> None:
    with pytest.raises(VllmHostError) as caught:
        make_plan(request(engine_args={"max_model_len": 262144}))
    assert caught.value.code == "does_not_fit"
    message = caught.value.message
    assert "262,144 tokens need 17.16 GiB" in message and "(1) max_model_len" in message
    assert "decode_context_parallel_size 2" in message
    assert caught.value.details["remedies"] and caught.value.details["max_model_len_fit"] > 131072
    with pytest.raises(VllmHostError, match="weights take 131.45 GiB of a GPU"):
        make_plan(request("llama70b-tp1", "1x96GB", engine_args={}))


def test_a_better_end_of_the_forecast_is_a_warning() -> None:
    expected = make_plan(request(engine_args={"max_num_seqs": 64}))["budget"]["max_model_len_fit"]
    plan = make_plan(request(engine_args={"max_num_seqs": 64, "max_model_len": expected + 4096}))
    assert any("low end of its range" in warning for warning in plan["warnings"])


def test_disk() -> None:
    with pytest.raises(VllmHostError, match="/srv has 93.1 GiB free; org/name needs 554.1 GiB more") as caught:
        make_plan(request(disk=Disk("/srv", 100 * 10**9)))
    assert caught.value.code == "disk_too_small"
    there = make_plan(request(disk=Disk("/srv", 100 * 10**9, 560 * 10**9)))
    assert there["bytes_to_download"] == 35 * 10**9
    assert make_plan(request(disk=Disk("/srv", 1, 595 * 10**9)))["bytes_to_download"] == 0


def test_no_gpus() -> None:
    with pytest.raises(VllmHostError) as caught:
        make_plan(request(gpus=""))
    assert caught.value.code == "no_gpus"


def measured(plan: dict[str, Any], folder: Path, **figures: Any) -> None:
    write_measurement(Measurement(plan["measured_key"], **figures), str(folder))


def test_a_measurement_replaces_the_forecast_and_restarts_nothing(tmp_path: Path) -> None:
    first = make_plan(request(measured_folder=str(tmp_path)))
    assert first["budget"]["source"] == "forecast"
    served = first["max_model_len"]
    needed = served * 70_272 + 2 * GIB // 10
    measured(first, tmp_path, available_kv_cache_bytes=needed, max_model_len=served, load_seconds=500.0)
    second = make_plan(request(measured_folder=str(tmp_path)))
    assert second["budget"]["source"] == "measured"
    assert second["budget"]["available_kv_cache_bytes"] == needed
    assert second["max_model_len_source"] == "served"
    assert second["engine_args"] == first["engine_args"], "the served length still fits: nothing changes"
    assert second["load_seconds_expected"] == 560
    assert make_plan(request(measured_folder=str(tmp_path)))["engine_args"] == second["engine_args"]


def test_a_measurement_that_is_too_small_shortens_the_length(tmp_path: Path) -> None:
    first = make_plan(request(measured_folder=str(tmp_path)))
    measured(first, tmp_path, available_kv_cache_bytes=8 * GIB, max_model_len=first["max_model_len"])
    second = make_plan(request(measured_folder=str(tmp_path)))
    assert second["max_model_len"] < first["max_model_len"]
    assert second["budget"]["max_model_len_fit"] * 70_272 <= 8 * GIB


def test_another_deployment_is_not_measured(tmp_path: Path) -> None:
    first = make_plan(request(measured_folder=str(tmp_path)))
    measured(first, tmp_path, available_kv_cache_bytes=8 * GIB, max_model_len=8192)
    for changes in (
        {"engine_args": {"gpu_memory_utilization": 0.9}},
        {"vllm_version": "0.31.0"},
        {"gpus": "8x141GB"},
        {"model": "org/other"},
    ):
        assert make_plan(request(measured_folder=str(tmp_path), **changes))["budget"]["source"] == "forecast"


CASES = ["kimi25-tp8-auto", "dsv32-tp8-sm120", "llama70b-tp4", "gemma3-27b-tp1", "gptoss120b-tp1", "nemotron3nano-tp1"]


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CASES),
    st.sampled_from(["4x96GB", "8x96GB", "8xH200"]),
    st.sampled_from(["0.19.1", "0.23.0", "0.32.0"]),
)
def test_every_plan_starts_and_reads_well(case: str, gpus: str, release: str) -> None:
    """What is planned fits by its own arithmetic, and is shown within the width, in ASCII."""
    try:
        plan = make_plan(request(case, gpus, vllm_version=release, engine_args={}))
    except VllmHostError as error:
        assert error.code == "does_not_fit"
        return
    assert plan["budget"]["fits"]
    lines = render_plan(plan)
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isascii() for line in lines)
    bar = memory_bar(plan["budget"])
    assert len(bar[1]) == 62 and set(bar[1]) <= set("[]WoK.")


def test_report_shows_what_the_user_asks() -> None:
    text = "\n".join(render_plan(make_plan(request(checkpoint=declaring_fp8(), disk=Disk("/srv", 10**12)))))
    for piece in (
        "stripped",
        "shared memory",
        "because",
        "source",
        "fit)",
        "forecast",
        "requests at once",
        "595.0 GB to download",
        "1,000.0 GB free",
    ):
        assert piece in text, piece


def refused(case: str = "kimi25-tp8-auto", gpus: str = "8x96GB", **changes: Any) -> VllmHostError:
    with pytest.raises(VllmHostError) as caught:
        make_plan(request(case, gpus, **changes))
    return caught.value


def test_the_fewest_gpus_that_are_enough_are_offered() -> None:
    """Nobody asked for a length: eight cards are enough, as a plan for eight says."""
    error = refused("kimi25-tp8-auto", "4x96GB", engine_args={})
    assert "(1) 8 GPUs (tensor_parallel_size 8)" in error.message and "16 GPUs" not in error.message
    assert "GiB are missing for the KV cache" in error.message and "-" not in error.message.split("Remedies")[0]
    assert make_plan(request("kimi25-tp8-auto", "8x96GB", engine_args={}))["max_model_len"]
    asked = refused("kimi25-tp8-auto", "4x96GB", engine_args={"max_model_len": 262144})
    assert "16 GPUs (tensor_parallel_size 16)" in asked.message
    longest = refused("kimi25-tp8-auto", "4x96GB", engine_args={"max_model_len": "auto"})
    assert "(1) 8 GPUs" in longest.message


def test_names_of_options() -> None:
    error = refused(engine_args={"gpu_memory_utilisation": 0.95})
    assert error.code == "engine_argument_unknown" and "did you mean 'gpu_memory_utilization'?" in error.message
    forced = make_plan(request(engine_args={"gpu-memory-utilisation": 0.95}, force=True))
    assert any("not known to the plan: gpu_memory_utilisation" in warning for warning in forced["warnings"])
    report = "\n".join(render_plan(make_plan(request(engine_args={"frobnicate": 3}))))
    assert "not known to the plan: frobnicate" in report
    mine = refused(recipe={"name": "mine", "engine_args": {"max_model_length": 1}})
    assert "'max_model_length'" in mine.message and "Correct engine_args of the recipe mine" in mine.message


CPU = {"device": "cpu", "gpus": "", "engine_args": {}}


def test_a_cpu_has_no_more_than_its_memory() -> None:
    settings_of = {"env": {"VLLM_CPU_KVCACHE_SPACE": "300"}, "host_memory_bytes": 23 * GIB}
    error = refused("llama8b-tp1", **CPU, **settings_of)
    assert error.code == "host_memory_too_small"
    assert "vllm_env.VLLM_CPU_KVCACHE_SPACE asks for 300.0 GiB" in error.message and "has 23.0 GiB" in error.message
    most = error.details["most_gib"]
    assert f"Lower it to {most} or less" in error.message and most == 8
    forced = make_plan(request("llama8b-tp1", **CPU, **settings_of, force=True))
    assert any("it was forced" in warning for warning in forced["warnings"])
    fits = {**settings_of, "env": {"VLLM_CPU_KVCACHE_SPACE": str(most)}}
    assert make_plan(request("llama8b-tp1", **CPU, **fits))["budget"]["available_kv_cache_bytes"] == most * GIB
    assert make_plan(request("llama8b-tp1", **CPU, env=settings_of["env"])), "unknown memory refuses nothing"
    small = refused("llama8b-tp1", **CPU, env={"VLLM_CPU_KVCACHE_SPACE": "1"}, host_memory_bytes=8 * GIB)
    assert "Use a host with more memory" in small.message


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine_args": {"max_model_len": 10**6}}, "vllm_engine_args.max_model_len 1000000 is more than"),
        ({"engine_args": {"max_model_len": 10**6}}, "vllm_env.VLLM_ALLOW_LONG_MAX_MODEL_LEN: '1'"),
        ({"engine_args": {"dtype": "float17"}}, "vllm_engine_args.dtype 'float17' is unknown"),
        ({"engine_args": {"kv_cache_dtype": "fp7"}}, "vllm_engine_args.kv_cache_dtype 'fp7' is unknown"),
        ({"engine_args": {"max_num_seqs": "many"}}, "vllm_engine_args.max_num_seqs must be a whole number"),
        ({"engine_args": {"tensor_parallel_size": 16}}, "in vllm_engine_args need 16 GPUs"),
        ({"engine_args": {"tensor_parallel_size": 3}}, "vllm_engine_args.tensor_parallel_size 3 does not divide"),
        ({**CPU, "env": {}}, "vllm_env.VLLM_CPU_KVCACHE_SPACE: set it to whole GiB"),
        (
            {**CPU, "env": {"VLLM_CPU_KVCACHE_SPACE": "4G"}},
            "vllm_env.VLLM_CPU_KVCACHE_SPACE, whole GiB such as '4'; it is '4G'",
        ),
        ({"kv_cache_policy": "never"}, "plan_kv_cache_policy must be one of auto, keep, strip"),
        ({"gpus": ""}, "plan_gpus: 8x96GB"),
    ],
)
def test_messages_name_the_variables_of_the_user(changes: dict[str, Any], says: str) -> None:
    error = refused(**changes)
    assert says in error.message and "\n" not in error.message


def test_report_speaks_of_whole_requests_and_of_whose_length_it_is() -> None:
    text = "\n".join(render_plan(make_plan(request(engine_args={}))))
    (counts,) = [line.split()[3:] for line in text.splitlines() if line.startswith("requests at once")]
    assert counts[0] == "44" and all(count.replace(",", "").isdecimal() for count in counts)
    assert "is the longest round length of which one request" in " ".join(text.split())
    asked = "\n".join(render_plan(make_plan(request(engine_args={"max_model_len": 32768}))))
    assert "max_model_len 32,768 was asked for; the plan would take 131,072 by itself." in " ".join(asked.split())
    known = make_plan(request("llama8b-tp1", "1x96GB", engine_args={}))
    assert "max_model_len 131,072 is all that the model knows." in "\n".join(render_plan(known))
    tiny = {
        **known,
        "budget": {**known["budget"], "concurrency": [{"max_model_len": 1024, "max_concurrency": 5846.81}]},
    }
    assert "requests at once    5,846" in "\n".join(render_plan(tiny))


def test_report_of_a_cpu_has_no_gpus() -> None:
    text = "\n".join(render_plan(make_plan(request("llama8b-tp1", **CPU, env={"VLLM_CPU_KVCACHE_SPACE": "4"}))))
    assert "device           CPU" in text and "KV memory        4.00 GiB, given" in text
    assert "a GPU" not in text and "GPUs" not in text and "and GPU" not in text
