"""Log triage of 100 MB and the check of an installed release: ``python -m tests.benchmark.verify``.

Needs the CPU build of vLLM in the cache folder (tests/host/paths.py). What was found stands in docs/benchmarks/verify.md.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.host import paths

MEGABYTES = 100

# Runs in a process of its own, so that its memory is its own too.
TRIAGE = """
import json, resource, sys, time
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.log_sources import triage_file
from pathlib import Path
wall, processor = time.perf_counter(), time.process_time()
result = triage_file(Path(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - wall, "processor": time.process_time() - processor, "lines": result.lines,
                  "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "verdict": result.verdict,
                  "findings": {f.id: f.count for f in result.findings}}))
"""
INSTALL = """
import json, resource, sys, time
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.install_info import inspect_install
from pathlib import Path
wall, processor = time.perf_counter(), time.process_time()
info = inspect_install(Path(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - wall, "processor": time.process_time() - processor, "files": info.files,
                  "GB": info.bytes / 1e9, "clean": info.clean, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def serving() -> Iterator[str]:
    """A server at work: requests and figures."""
    for i in itertools.count():
        yield f'(APIServer pid=16524) INFO:     127.0.0.1:{i % 60000} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        if i % 5 == 0:
            yield (
                f"(APIServer pid=16524) INFO 12-02 03:49:16 [loggers.py:248] Engine 000: Avg prompt throughput: {i % 97}.1 tokens/s, "
                "Avg generation throughput: 60.1 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.1%\n"
            )


def noisy() -> Iterator[str]:
    """Every line is one that the table knows."""
    for i in itertools.count():
        yield (
            f"(Worker_TP{i % 8} pid={30 + i % 8}) [Autotuner]: Skipping tactic <flashinfer.MoERunner> {i % 40}, due to failure while profiling: "
            "[TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal\n"
        )


def restarting() -> Iterator[str]:
    """A restart loop: eight workers fail together, again and again, their tracebacks interleaved."""
    while True:
        yield "(APIServer pid=1) INFO 12-02 03:50:07 [api_utils.py:286] non-default args: {'model': 'x'}\n"
        workers = [f"(Worker_TP{i} pid=3{i}) ERROR 12-02 03:50:07 [multiproc_executor.py:772] " for i in range(8)]
        frames = ['  File "/opt/vllm/x.py", line 1, in f\n', "    return self.something(of, some, length)\n"] * 12
        error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        for line in ["Traceback (most recent call last):\n", *frames, error]:
            yield from (worker + line for worker in workers)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=paths.CACHE) as folder:
        for kind in (serving, noisy, restarting):
            log = write(Path(folder) / f"{kind.__name__}.log", kind)
            report(f"triage of {MEGABYTES} MB, {kind.__name__}", TRIAGE, log)
            log.unlink()
    report("install check", INSTALL, paths.VLLM_VENV)


def write(path: Path, lines: Callable[[], Iterator[str]]) -> Path:
    with path.open("w") as stream:
        size = 0
        for line in lines():
            size += stream.write(line)
            if size >= MEGABYTES * 1_000_000:
                return path
    return path


def report(name: str, program: str, argument: Path) -> None:
    for _ in range(2):  # the second time with files in memory
        done = subprocess.run(
            [sys.executable, "-c", program, str(argument)], stdout=subprocess.PIPE, text=True, check=True
        )
        figures = json.loads(done.stdout)
        print(
            f"{name}: "
            + ", ".join(
                f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()
            )
        )


if __name__ == "__main__":
    main()
