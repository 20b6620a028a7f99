"""Speed of the plan before the download, and what hf-mem says about the same models.

python -m tests.benchmark.kv_cache_budget                                # local headers, arithmetic, a plan from a Hub
python -m tests.benchmark.kv_cache_budget --hf-mem /tmp/hf-mem/bin/python  # and hf-mem, from an environment of its own

Checkpoints are written as real safetensors headers over holes: Kimi-K2.5-NVFP4's 119 shards take 40 MB of disk and look like 595 GB.
Figures are recorded in docs/benchmarks/kv_cache_budget.md. Needs PYTHONPATH=.collections (as `make` sets it).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.budget import BudgetRequest, compute_budget
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import given_configuration
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.config_tensors import tensors_from_config
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.engine import Gpu
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.hub_metadata import read_hub_checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.model_config import parse_model_config

from tests.host.hub import Hub
from tests.host.hub.repositories import HashCache

UNIT_TESTS = Path(__file__).parents[1] / "unit/memory"
sys.path.insert(0, str(UNIT_TESTS))
from memory_cases import KV_CASES, write_checkpoint  # noqa: E402

GIB = 2**30
KIMI = KV_CASES["kimi25-tp8-bf16"]
COMPARED = [
    "kimi25-tp8-bf16",
    "dsv3-tp8-h200",
    "dsv32-tp8-h200",
    "llama70b-tp4",
    "qwen3-235b-tp8",
    "gemma3-27b-tp1",
    "gptoss120b-tp1",
    "qwen3next-tp1",
]

READ_LOCAL = """
import resource, sys, time
begin = time.perf_counter()
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.checkpoint_metadata import read_local_checkpoint
imported = time.perf_counter()
found = read_local_checkpoint(sys.argv[1])
done = time.perf_counter()
mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
tensors = sum(group.count for group in found.tensors)
print(done - imported, time.process_time(), mib, tensors, found.bytes_read, found.bytes_total)
"""

HF_MEM = """
import asyncio, json, sys
import httpx2
endpoint = httpx2.URL(sys.argv.pop(1))
send = httpx2.AsyncClient.send
async def local(self, request, **options):
    if request.url.host == "huggingface.co":
        request.url = request.url.copy_with(scheme=endpoint.scheme, host=endpoint.host, port=endpoint.port)
        request.headers["Host"] = f"{endpoint.host}:{endpoint.port}"
    return await send(self, request, **options)
httpx2.AsyncClient.send = local
from hf_mem.cli import main
main()
"""


def best(call: Callable[[], Any], runs: int) -> float:
    """Seconds of the quickest run."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def write_case(root: Path, name: str, shards: int) -> Path:
    case = KV_CASES[name]
    model = parse_model_config(case["config"], case.get("hf_quant_config"))
    tensors = tensors_from_config(model)
    assert tensors is not None
    folder = root / "bench" / name
    write_checkpoint(folder, case["config"], tensors, shards, case.get("hf_quant_config"))
    for shard in folder.glob("*.safetensors"):  # holes: any digest will do, and 595 GB of nothing take minutes to hash
        HashCache(root / ".hashes").preset(shard, hashlib.sha256(shard.name.encode()).hexdigest())
    if shards > 1:  # hf-mem reads the index
        weight_map = {f"tensor{n}": f"model-{n + 1:05d}-of-{shards:05d}.safetensors" for n in range(shards)}
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def local(folder: Path) -> None:
    rows = []
    for _ in range(5):
        output = subprocess.run(
            [sys.executable, "-c", READ_LOCAL, str(folder)], check=True, capture_output=True, text=True
        )
        rows.append([float(word) for word in output.stdout.split()])
    seconds, busy, mib, tensors, read, total = min(rows)
    print(f"local headers: {tensors:,.0f} tensors of {total / 1e9:.0f} GB, {read / 1e6:.1f} MB read, best of 5:")
    print(f"    {seconds:.2f} s, {busy:.2f} s of processor with imports, {mib:.0f} MiB")


def arithmetic() -> None:
    gpu = Gpu(KIMI["gpu"]["total_bytes"], (12, 0), name=KIMI["gpu"]["name"])
    fields: dict[str, Any] = {"engine_args": KIMI["engine_args"], "gpu": gpu, "weights_bytes_per_gpu": [76_439_268_692]}
    request = BudgetRequest(given_configuration(KIMI["config"], KIMI["hf_quant_config"]), **fields)
    with_tensors = BudgetRequest(request.checkpoint, **{**fields, "weights_bytes_per_gpu": ()})
    listed = compute_budget(with_tensors).request
    print(f"arithmetic alone (weights given): {1000 * best(lambda: compute_budget(request), 50):.2f} ms")
    print(
        f"arithmetic with the sum over {len(listed.checkpoint.tensors or ()):,} groups of tensors: {1000 * best(lambda: compute_budget(listed), 50):.2f} ms"
    )


def remote(hub: Hub, folder: Path) -> None:
    repo = f"bench/{folder.name}"
    read_hub_checkpoint(repo, endpoint=hub.endpoint)  # the Hub scans the folder once
    begin = time.perf_counter()
    found = read_hub_checkpoint(repo, endpoint=hub.endpoint)
    seconds = time.perf_counter() - begin
    share = 100 * found.bytes_read / found.bytes_total
    print(
        f"plan from a Hub: {found.bytes_read / 1e6:.1f} MB of {found.bytes_total / 1e9:.0f} GB ({share:.4f} %) in {seconds:.1f} s, loopback"
    )


def hf_mem(python: str, hub: Hub, root: Path) -> None:
    """A table: weights in all and bytes of KV cache a token, by vLLM, by us and by hf-mem."""
    heads = [
        "model",
        "weights, GiB a GPU: vLLM",
        "ours",
        "hf-mem / GPUs",
        "KV B a token and GPU: vLLM",
        "ours",
        "hf-mem / GPUs",
        "seconds: ours",
        "hf-mem",
    ]
    print(f"\n| {' | '.join(heads)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in COMPARED:
        write_case(root, name, 119 if name == KIMI["id"] else 4)
        case = KV_CASES[name]
        expected, args = case["expected"], case["engine_args"]
        tensor = args.get("tensor_parallel_size", 1)
        gpu = Gpu(case["gpu"]["total_bytes"], tuple(case["gpu"]["compute_capability"]), name=case["gpu"]["name"])
        begin = time.perf_counter()
        checkpoint = read_hub_checkpoint(f"bench/{name}", endpoint=hub.endpoint)
        budget = compute_budget(BudgetRequest(checkpoint, args, "0.32.0", gpu, packages=tuple(case["stub_modules"])))
        ours = time.perf_counter() - begin
        length = expected["max_model_len_config"]
        command = [
            python,
            "-c",
            HF_MEM,
            hub.endpoint,
            "--model-id",
            f"bench/{name}",
            "--experimental",
            "--json-output",
            "--max-model-len",
            str(length),
        ]
        begin = time.perf_counter()
        output = subprocess.run(command, capture_output=True, text=True, check=False)
        theirs = time.perf_counter() - begin
        said = hf_mem_says(output.stdout, tensor, length) if output.returncode == 0 else ("fails", "fails")
        print(
            f"| {name} | {expected['weights_bytes_per_gpu'][0] / GIB:.2f} | {budget.weights.per_rank[0] / GIB:.2f} | {said[0]} "
            f"| {expected['bytes_per_token_per_gpu'][0]:,.0f} | {budget.plan.kv_bytes_per_token[0]:,.0f} | {said[1]} | {ours:.1f} | {theirs:.1f} |"
        )


def hf_mem_says(output: str, tensor: int, length: int) -> tuple[str, str]:
    said = json.loads(output)
    weights = said["memory"] / GIB / tensor
    cache = said.get("kv_cache")
    return f"{weights:.2f}", f"{cache / length / tensor:,.0f}" if cache else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf-mem", metavar="PYTHON", help="interpreter of an environment with hf-mem")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kv-bench-") as scratch:
        root = Path(scratch)
        folder = write_case(root, KIMI["id"], 119)
        local(folder)
        arithmetic()
        with Hub(root) as hub:
            remote(hub, folder)
            if options.hf_mem:
                hf_mem(options.hf_mem, hub, root)


if __name__ == "__main__":
    main()
