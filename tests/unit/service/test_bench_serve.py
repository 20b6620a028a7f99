"""`vllm bench serve` as a stand-in program: its command line, its environment, its result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.bench_serve import (
    BenchRequest,
    bench_serve,
    parse_result,
)

# Of vLLM 0.32.0 on the CPU, shortened [ran].
RESULT = {
    "completed": 4, "failed": 0, "output_throughput": 11.838, "total_token_throughput": 128.739, "median_ttft_ms": 1110.26,
    "p99_ttft_ms": 1192.21, "median_tpot_ms": 106.128,
}  # fmt: skip


def program(folder: Path, text: str) -> BenchRequest:
    executable = folder / "vllm"
    executable.write_text("#!/usr/bin/env python3\nimport json, os, sys, time\n" + text)
    executable.chmod(0o755)
    return BenchRequest(str(executable), "http://127.0.0.1:8000/", "m", "/srv/m", levels=[1, 3], timeout=20)


def test_each_level_is_measured_and_the_key_is_no_argument(tmp_path: Path) -> None:
    log = tmp_path / "log"
    request = program(
        tmp_path,
        f"""
options = dict(a[2:].split("=", 1) for a in sys.argv[3:] if "=" in a)
with open({str(log)!r}, "a") as stream:
    stream.write(json.dumps([sys.argv[1:], os.environ["OPENAI_API_KEY"], os.environ["CUDA_VISIBLE_DEVICES"]]) + "\\n")
with open(options["result-dir"] + "/" + options["result-filename"], "w") as stream:
    json.dump({RESULT!r}, stream)
""",
    )
    points = bench_serve(request, "secret-7")
    assert [(p.concurrency, p.output_tokens_per_second, p.median_ttft_ms) for p in points] == [
        (1, 11.84, 1110.3),
        (3, 11.84, 1110.3),
    ]
    (arguments, key, gpus), (second, _, _) = (json.loads(line) for line in log.read_text().splitlines())
    assert key == "secret-7"
    assert "secret-7" not in " ".join(arguments)
    assert gpus == ""
    assert "--base-url=http://127.0.0.1:8000" in arguments
    assert "--num-prompts=12" in second


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('no such dataset'); sys.exit(1)", "no such dataset"),
        (
            "o = dict(a[2:].split('=', 1) for a in sys.argv[3:] if '=' in a)\n"
            "open(o['result-dir'] + '/bench.json', 'w').write('{\"completed\": 1}')",
            "not understood",
        ),
    ],
)
def test_no_result(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(VllmHostError, match=why) as caught:
        bench_serve(program(tmp_path, text))
    assert caught.value.code == "bench_failed"


def test_no_program(tmp_path: Path) -> None:
    with pytest.raises(VllmHostError) as caught:
        bench_serve(BenchRequest(str(tmp_path / "none"), "http://127.0.0.1:1", "m", "/m", levels=[1]))
    assert caught.value.code == "bench_failed"


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "1e400", '"x"', "[]", "null"])
def test_a_figure_that_is_none_is_told(odd: str) -> None:
    names = (
        "completed",
        "output_throughput",
        "total_token_throughput",
        "median_ttft_ms",
        "p99_ttft_ms",
        "median_tpot_ms",
    )
    for name in names:
        fields = ", ".join(f'"{each}": {odd if each == name else 1}' for each in names)
        with pytest.raises(VllmHostError, match="not understood") as caught:
            parse_result(1, f"{{{fields}}}")
        assert caught.value.code == "bench_failed"
