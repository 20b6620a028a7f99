# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of options: what is nearly one of vLLM's is refused, what is nowhere near is told, and what is one passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine_options import judge_options
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine_options_data import EARLIER_OPTIONS, OPTIONS
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.measured import RELEVANT_ENGINE_ARGS

from tests.host import paths
from tests.unit.service.real_parser import RealParser


def judged(*names: str, force: bool = False) -> list[str]:
    return judge_options(dict.fromkeys(names, 1), "vllm_engine_args", force)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("gpu_memory_utilisation", "gpu_memory_utilization"),
        ("tensor_parallel", "tensor_parallel_size"),
        ("max_model_length", "max_model_len"),
        ("max_seqs", "max_num_seqs"),
        ("kv_cache_type", "kv_cache_dtype"),
        ("tool_call_parsr", "tool_call_parser"),
        ("speculative_config.method", "speculative_config"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_what_was_meant(slip: str, meant: str) -> None:
    with pytest.raises(VllmHostError, match=rf"no engine argument '{slip}' \(did you mean '{meant}'\?\)") as caught:
        judged(slip)
    assert "Correct vllm_engine_args" in caught.value.message and "plan_force: true" in caught.value.message
    assert caught.value.code == "engine_argument_unknown"
    assert caught.value.details["unknown"] == [{"argument": slip, "nearest": meant}]
    assert judged(slip, force=True)[0].startswith("not known to the plan: ")
    assert judged(meant) == []


def test_other_names_are_told() -> None:
    told = judged("frobnicate", "max_model_len", "ünknown\n")
    assert told == [
        "not known to the plan: frobnicate, \\xfcnknown\\n (vllm_engine_args); the role serve refuses what the installed vLLM does"
        " not know"
    ]


def test_names_that_pass() -> None:
    assert judged(*OPTIONS, *EARLIER_OPTIONS, *RELEVANT_ENGINE_ARGS, "no_enable_prefix_caching") == []
    assert not OPTIONS & EARLIER_OPTIONS


@pytest.mark.slow
def test_the_list_is_that_of_the_installed_vllm(tmp_path: Path) -> None:
    python = paths.VLLM_VENV / "bin/python"
    if not python.exists():
        pytest.fail("the CPU build of vLLM is not there: make parts")
    with RealParser(python, tmp_path) as parser:
        assert {name.replace("-", "_") for name in parser.options} - {"help"} == OPTIONS
