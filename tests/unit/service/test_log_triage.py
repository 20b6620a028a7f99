"""Logs of real servers (CPU build of 0.32.0), every row of the table, and the ways in which logs are messy."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.log_patterns_data import FATAL, PATTERNS, WRAPPER
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.log_triage import Triage, triage
from log_examples import EXAMPLES

DATA = Path(__file__).parent / "data"
READY = "INFO:     Application startup complete."
WORKER_FAILED = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
TOO_SMALL = EXAMPLES["kv_too_small"][1]


def log(name: str) -> Triage:
    with (DATA / name).open() as lines:
        return triage(lines)


def ids(result: Triage) -> list[str]:
    return [finding.id for finding in result.findings]


def traceback(error: str, prefix: str = "", deeper: int = 1) -> list[str]:
    frames = list(
        itertools.chain.from_iterable(
            (f'  File "/x/{i}.py", line {i}, in f', "    f()", "    ^^^") for i in range(deeper)
        )
    )
    return [prefix + line for line in ("Traceback (most recent call last):", *frames, error)]


# --- real logs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause", "says"),
    [
        ("cpu_0.32_kv_too_small.log", "kv_too_small", "or less (the estimate of vLLM itself)"),
        ("cpu_0.32_max_model_len.log", "max_model_len_too_large", "200000 is more than the model was made for"),
        ("cpu_0.32_heads.log", "heads_not_divisible", "4 attention heads cannot be divided among 3 GPUs"),
        ("cpu_0.32_port.log", "port_in_use", "Another process listens on the API port"),
        ("cpu_0.32_architecture.log", "architecture_unsupported", "['FooForCausalLM']"),
        ("cpu_0.32_model_type.log", "transformers_too_old", "does not know the checkpoint's model_type"),
        ("cpu_0.32_tp2_cut_weights.log", "weights_cut", "incomplete metadata, file not fully covered"),
    ],
)
def test_the_cause_of_a_real_failure(name: str, cause: str, says: str) -> None:
    result = log(name)
    assert result.verdict == "failed"
    assert result.cause is not None
    assert result.cause.id == cause
    assert says in result.cause.meaning + result.cause.remedy


def test_a_real_start_and_stop() -> None:
    result = log("cpu_0.32_stopped.log")
    assert result.verdict == "stopped"
    assert result.findings == ()
    assert result.measured["kv_cache_tokens"] == 699008
    assert result.measured["max_concurrency"] == 682.62
    assert result.measured["max_model_len"] == 1024
    assert result.measured["available_kv_gib"] == 1.0
    assert result.measured["kv_cache_device"] == "CPU"
    assert result.measured["vllm_version"] == "0.32.0"
    assert result.measured["weights_read_seconds"] == 0.01


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_row_has_an_example() -> None:
    assert {pattern.id for pattern in PATTERNS} == set(EXAMPLES)


@pytest.mark.parametrize(("identity", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_a_row_recognises_its_line(identity: str, line: str) -> None:
    result = triage([line])
    assert ids(result) == [identity]
    finding = result.findings[0]
    assert finding.count == 1
    assert finding.meaning and finding.remedy and finding.source
    assert not re.search(r"\{\w*\}", finding.meaning + finding.remedy), "a group was not filled in"


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
def test_anchors_are_literals_of_the_regex(pattern: object) -> None:
    examples = [line for line in EXAMPLES[pattern.id] if re.search(pattern.regex, line)]  # type: ignore[attr-defined]
    assert examples, "no example of this row"
    assert all(pattern.anchor in line for line in examples)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("identity", "line"),
    [(p.id, line) for p in PATTERNS if p.severity == FATAL and p.rank != WRAPPER for line in EXAMPLES[p.id]],
)
def test_a_cause_stands_through_its_wrappers(identity: str, line: str) -> None:
    worker = "(Worker_TP0 pid=21) ERROR 12-02 03:50:07 [multiproc_executor.py:772] "
    engine = "(EngineCore_DP0 pid=20) ERROR 12-02 03:50:08 [core.py:843] "
    lines = [
        worker + "WorkerProc failed to start.",
        *traceback(line, worker),
        engine + "EngineCore failed to start.",
        *traceback(WORKER_FAILED, engine),
        *traceback(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "(APIServer pid=19) ",
        ),
    ]
    result = triage(lines)
    assert result.verdict == "failed"
    assert result.cause is not None
    assert result.cause.id == identity


def test_the_numbers_of_the_remedy() -> None:
    result = triage([TOO_SMALL])
    assert result.cause is not None
    assert "Set max_model_len to 102304 or less" in result.cause.remedy


# --- first causes -----------------------------------------------------------------------------------------------------


def interleave(*streams: list[str]) -> Iterator[str]:
    for lines in itertools.zip_longest(*streams):
        yield from (line for line in lines if line is not None)


def test_workers_whose_tracebacks_are_interleaved() -> None:
    prefix = "(Worker_TP{0} pid=3{0}) ERROR 12-02 03:50:07 [multiproc_executor.py:772] "
    first = traceback(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", prefix.format(3), deeper=12
    )
    others = [
        traceback(
            f"RuntimeError: Worker {i}: [rank{i}] remote process exited or there was a network error",
            prefix.format(i),
            deeper=3 + i,
        )
        for i in (0, 1, 2)
    ]
    result = triage([*first[:2], *interleave(first[2:], *others), *traceback(WORKER_FAILED, "(EngineCore_DP0 pid=9) ")])
    assert result.cause is not None
    assert result.cause.id == "gpu_out_of_memory"
    assert ("nccl_remote_died", 3) in [(finding.id, finding.count) for finding in result.findings]


def test_the_better_exception_of_a_chain() -> None:
    lines = [
        *traceback("torch.OutOfMemoryError: CUDA out of memory."),
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *traceback(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try"
        ),
    ]
    result = triage(lines)
    assert ids(result) == ["sampler_out_of_memory"]


def test_wrappers_alone_are_no_cause() -> None:
    result = triage(traceback(WORKER_FAILED))
    assert result.verdict == "failed"
    assert result.cause is None


def test_an_unknown_traceback_is_shown_whole_and_is_the_cause() -> None:
    lines = traceback(
        "KeyError: 'model.layers.0.weird'", "(Worker_TP1 pid=31) ERROR 12-02 03:50:07 [x.py:1] ", deeper=20
    )
    result = triage([*lines, *traceback(WORKER_FAILED, "(EngineCore_DP0 pid=9) ")])
    assert result.cause is not None
    assert result.cause.id == "unknown_traceback"
    assert "Worker_TP1 raised KeyError: 'model.layers.0.weird'" in result.cause.meaning
    assert result.cause.example.count("File") == 20
    assert result.cause.example.endswith("KeyError: 'model.layers.0.weird'")


def test_an_unknown_error_line_is_kept() -> None:
    result = triage(["(APIServer pid=1) ERROR 12-02 03:50:07 [serving.py:12] Something odd happened at 0x7f00", READY])
    assert [(f.id, f.severity) for f in result.findings] == [("unknown_error", "degraded")]
    assert "Something odd happened" in result.findings[0].example
    assert result.verdict == "degraded"


def test_the_title_of_a_traceback_belongs_to_it() -> None:
    prefix = "(APIServer pid=1) ERROR 12-02 03:50:07 [serving.py:12] "
    result = triage([READY, prefix + "Error in a request", *traceback("TypeError: nope", prefix)])
    assert ids(result) == ["unknown_traceback"]
    assert result.findings[0].example.startswith("Error in a request\nTraceback")


def test_a_message_of_several_lines() -> None:
    prefix = "(APIServer pid=1) "
    result = triage(
        [*traceback("pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", prefix)]
        + [prefix + "  Value error, World size (8) is larger than the number of available GPUs (4) in this node."]
    )
    assert ids(result) == ["too_few_gpus"]


def test_an_exception_group() -> None:
    lines = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/x/run.py", line 1, in main',
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "/x/y.py", line 2, in f',
        "    | OSError: [Errno 98] Address already in use",
        "    +------------------------------------",
        "done",
    ]
    result = triage(lines)
    assert result.cause is not None
    assert result.cause.id == "port_in_use"


# --- the life of a server ---------------------------------------------------------------------------------------------


def test_a_server_that_dies_while_serving() -> None:
    engine = "(EngineCore_DP0 pid=20) ERROR 12-02 05:00:00 [core.py:843] "
    lines = [
        READY,
        engine + "EngineCore encountered a fatal error.",
        *traceback("RuntimeError: CUDA error: an illegal instruction was encountered", engine),
    ]
    result = triage(lines)
    assert result.verdict == "failed"
    assert result.cause is not None
    assert result.cause.id == "illegal_instruction"


def test_the_oom_killer_is_the_cause_although_it_is_told_of_last() -> None:
    died = (
        "(EngineCore pid=20) ERROR 12-02 05:00:00 [multiproc_executor.py:315] "
        "Worker proc VllmWorker-0 died unexpectedly (exit code: {}), shutting down executor."
    )
    killed = triage([READY, died.format(-9)])
    assert killed.cause is not None and killed.cause.id == "worker_died" and "main memory" in killed.cause.meaning
    crashed = triage([READY, died.format(-11)])
    assert crashed.cause is not None and "segfault" in crashed.cause.remedy
    told = triage(
        [READY, died.format(-9), "vllm-kimi.service: A process of this unit has been killed by the OOM killer."]
    )
    assert told.cause is not None and told.cause.id == "host_out_of_memory"


def test_what_failed_before_readiness_did_not_fail_it() -> None:
    result = triage([*traceback("ImportError: libfoo.so.1: cannot open shared object file: No such file"), READY])
    assert result.verdict == "degraded"
    assert result.cause is None


def test_a_request_that_fails_does_not_fail_the_server() -> None:
    prefix = "(APIServer pid=1) ERROR 12-02 03:50:07 [serving.py:12] "
    assert triage([READY, *traceback("TypeError: nope", prefix)]).verdict == "degraded"


def test_starting_says_what_it_last_did() -> None:
    lines = ["(Worker_TP0 pid=9) INFO 12-02 03:50:07 [weight_utils.py:1] Loading shard 54 of 119", ""]
    result = triage(lines)
    assert (result.verdict, result.last_message) == ("starting", "Loading shard 54 of 119")


def test_a_restart_loop_keeps_the_cause_of_the_start_before() -> None:
    start = "(APIServer pid=1) INFO 12-02 03:50:07 [api_utils.py:286] non-default args: {'model': 'x'}"
    result = triage([start, *traceback(TOO_SMALL), start])
    assert (result.verdict, result.starts, result.cause) == ("starting", 2, None)
    assert result.previous_cause is not None
    assert result.previous_cause.id == "kv_too_small"


def test_a_good_start_after_a_bad_one_is_healthy() -> None:
    start = "(APIServer pid=1) INFO 12-02 03:50:07 [api_utils.py:286] non-default args: {'model': 'x'}"
    result = triage([start, *traceback(TOO_SMALL), start, READY])
    assert result.cause is None
    assert result.previous_cause is not None


def test_what_dies_after_a_stop_was_told_to() -> None:
    lines = [
        READY,
        "INFO:     Shutting down",
        *traceback(
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
        ),
    ]
    result = triage(lines)
    assert result.verdict == "stopped"
    assert [finding.severity for finding in result.findings] == ["harmless"]


# --- messy logs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dress",
    [
        lambda line: line,
        lambda line: f"Dec 02 03:50:07 gpu1 vllm[123]: {line}",
        lambda line: f"2026-12-02T03:50:07+0000 gpu1 vllm[123]: {line}",
        lambda line: f"\x1b[0;36m(Worker_TP0 pid=9)\x1b[0;0m {line}",
        lambda line: f"\x1b[0;36m(Worker_TP0 pid=9)\x1b[0;0m ERROR 12-02 03:50:07 \x1b[90m[core.py:843]\x1b[39m {line}",
        lambda line: f"{line}\r\n",
    ],
)
def test_prefixes_and_colours_do_no_harm(dress: object) -> None:
    result = triage(dress(line) for line in traceback(TOO_SMALL))  # type: ignore[operator]
    assert result.cause is not None
    assert result.cause.id == "kv_too_small"
    assert result.cause.example.startswith("ValueError: To serve")


def test_noise_is_said_once_and_counted() -> None:
    result = triage([EXAMPLES["autotuner_tactic_skipped"][0]] * 500 + [READY])
    assert [(f.id, f.severity, f.count) for f in result.findings] == [("autotuner_tactic_skipped", "harmless", 500)]
    assert result.verdict == "healthy"


def test_what_users_write_is_not_the_server_speaking() -> None:
    prefix = "(APIServer pid=1) INFO 12-02 03:50:07 [logger.py:40] "
    result = triage([READY, prefix + "Received request chatcmpl-1: prompt: 'why CUDA out of memory? NCCL error: x'"])
    assert result.findings == ()
    assert result.verdict == "healthy"


def test_a_warning_is_not_fatal() -> None:
    result = triage(
        ["(Worker_TP0 pid=9) WARNING 12-02 03:50:07 [x.py:1] torch.OutOfMemoryError: retrying with less", READY]
    )
    assert [(f.id, f.severity) for f in result.findings] == [("gpu_out_of_memory", "degraded")]


def test_cut_tracebacks_and_binary_rubbish() -> None:
    lines = ["\x00\x01\ufffd", *traceback("x")[:2], "(Worker_TP0 pid=9"]
    result = triage(lines)
    assert ids(result) == ["unknown_traceback"]


def test_an_endless_recursion_stays_small() -> None:
    result = triage(traceback("RecursionError: maximum recursion depth exceeded", deeper=50_000))
    assert len(result.findings[0].example) < 50_000
    assert result.findings[0].example.endswith("maximum recursion depth exceeded")


def test_many_different_unknown_errors_stay_few() -> None:
    result = triage(
        f"(A pid={i}) ERROR 12-02 03:50:07 [x.py:1] {'abcdefgh'[i % 8] * (i // 8 + 1)} failed" for i in range(400)
    )
    assert len(result.findings) <= 20


def test_other_programs_are_ignored() -> None:
    result = triage(["nginx: 10.0.0.1 GET /", "kernel: eth0 up", "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM"])
    assert (result.verdict, result.findings) == ("starting", ())


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_of_eight_workers_in_the_words_of_older_releases() -> None:
    lines = [
        f"(Worker_TP{i} pid=3{i}) INFO 12-02 03:50:07 [gpu_model_runner.py:1] Model loading took 65.{i}4 GiB and 53{i}.5 seconds"
        for i in range(8)
    ]
    lines += [
        f"(Worker_TP{i} pid=3{i}) INFO 12-02 03:50:07 [gpu_worker.py:1] Available KV cache memory: 11.7{i} GiB"
        for i in range(8)
    ]
    lines += [
        "(EngineCore_DP0 pid=2) INFO 12-02 03:50:07 [kv_cache_utils.py:1] GPU KV cache size: 178,768 tokens",
        "(EngineCore_DP0 pid=2) INFO 12-02 03:50:07 [kv_cache_utils.py:2] Maximum concurrency for 131,072 tokens per request: 1.36x",
        "(Worker_TP0 pid=30) INFO 12-02 03:50:07 [x.py:2] Graph capturing finished in 31 secs, took 1.62 GiB",
        "(Worker_TP0 pid=30) INFO 12-02 03:50:07 [cuda.py:2] Using TRITON_MLA attention backend out of potential backends: ['TRITON_MLA'].",
    ]
    measured = triage(lines).measured
    assert measured["weights_gib"] == 65.74
    assert measured["load_seconds"] == 537.5
    assert measured["available_kv_gib"] == 11.7
    assert measured["available_kv_gib_by_worker"][7] == 11.77
    assert (measured["kv_cache_tokens"], measured["max_model_len"], measured["max_concurrency"]) == (
        178768,
        131072,
        1.36,
    )
    assert (measured["graph_gib"], measured["graph_seconds"], measured["attention_backend"]) == (
        1.62,
        31.0,
        "TRITON_MLA",
    )


def test_figures_of_the_last_start_count() -> None:
    start = "(APIServer pid=1) INFO 12-02 03:50:07 [api_utils.py:286] non-default args: {}"
    lines = [start, "Available KV cache memory: 1.0 GiB", start, "Available KV cache memory: 2.0 GiB"]
    assert triage(lines).measured == {"available_kv_gib": 2.0}


def test_any_iterable_of_lines() -> None:
    result = triage(f"line {i}" for i in range(200_000))
    assert (result.lines, result.findings) == (200_000, ())


# --- hostile logs -----------------------------------------------------------------------------------------------------

PREFIX = "(EngineCore pid=1) ERROR 12-02 03:48:20 [core.py:8] "


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["\n"] * 5000,
        [random.Random(1).randbytes(2_000_000).decode("utf-8", "replace")],
        [PREFIX + "y" * 10_000_000],
        ["(A pid=1) " * 1_000_000],
        ["\x1b[" + "0;" * 3_000_000],
        ["Traceback (most recent call last):", "ValueError: " + "x" * 10_000_000],
        ["Traceback (most recent call last):", "ValueError: x", *["  more of it"] * 200_000],
        [PREFIX + "{x} {0.__class__} %s", "Traceback (most recent call last):", "ValueError: {x!r} {0}"],
        ["Traceback (most recent call last):", *[f'  File "{"f" * 3000}", line 1, in f'] * 1000],
    ],
    ids=lambda lines: (lines or [""])[0][:20].strip(),
)
def test_a_log_may_be_anything_and_the_result_stays_small(lines: list[str]) -> None:
    result = triage(lines).as_result()
    assert result["lines"] == len(lines)
    assert len(json.dumps(result, allow_nan=False)) < 200_000


@pytest.mark.parametrize(
    "figure",
    [
        *(
            "GPU KV cache size: ,,, tokens",
            "GPU KV cache size: " + "9" * 5000 + " tokens",
            "Available KV cache memory: . GiB",
        ),
        *("Available KV cache memory: " + "9" * 400 + " GiB", "Model loading took . GiB memory and . seconds"),
        *(
            "Maximum concurrency for 1,2,3 tokens per request: 1.1.1x",
            "Maximum concurrency for , tokens per request: 2x",
        ),
        "Initializing a V1 LLM engine (v0.32.0) with config: tensor_parallel_size=x, max_seq_len=1e5, data_parallel_size=",
    ],
    ids=lambda figure: figure[:30],
)
def test_what_is_no_figure_is_none(figure: str) -> None:
    found = triage([f"(EngineCore pid=1) INFO 12-02 03:48:20 [core.py:8] {figure}"])
    assert not {key for key in found.measured if key != "vllm_version"}
