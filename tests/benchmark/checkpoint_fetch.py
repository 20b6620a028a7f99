"""checkpoint_fetch against other downloaders, in rounds, from the local Hub over loopback: ``python -m tests.benchmark.checkpoint_fetch``.

Needs about 9 GB in the cache folder, and curl and aria2c for their rows. What was found stands in docs/benchmarks/checkpoint_fetch.md.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.host import paths
from tests.host.background import Background
from tests.host.hub.repositories import HashCache

REPO = "bench/sixteen"
FILES = 16
FILE_BYTES = 268_435_456
SPARSE_REPO = "bench/sparse"
SPARSE_FILES = 119
SPARSE_BYTES = 540_000_000_000
HUB = Background("benchmark-hub")

# What the module does, without Ansible around it; prints the seconds inside.
FETCH = """
import json, sys, time
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.fetch import FetchRequest, fetch
begin = time.perf_counter()
result = fetch(FetchRequest(**json.loads(sys.argv[1])))
print(json.dumps({"seconds": time.perf_counter() - begin, "changed": result.changed, "bytes": result.bytes_total}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.checkpoint_fetch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*CONTENDERS], default=[*CONTENDERS])
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--skip-sparse", action="store_true")
    options = parser.parse_args()
    only = [name for name in options.only if is_installed(name)]
    folder = paths.CACHE / "benchmark"
    try:
        make_repository(folder / "hub", options.files)
        HUB.ensure(
            [sys.executable, "-m", "tests.host.hub", "--root", str(folder / "hub"), "--listen", "127.0.0.1:18099"],
            "ready",
        )
        # The Hub hashes its files when it is first asked: nobody's time.
        urllib.request.urlopen(f"{ENDPOINT}/api/models/{REPO}/tree/main", timeout=300).close()
        compare(folder, only, options.rounds)
        if not options.skip_sparse:
            rerun(folder)
    finally:
        HUB.stop()
        shutil.rmtree(folder, ignore_errors=True)


def is_installed(name: str) -> bool:
    program = PROGRAMS.get(name)
    if program is None or shutil.which(program):
        return True
    print(f"{name} is left out: {program} is not installed")
    return False


def make_repository(root: Path, files: int) -> None:
    (root / REPO).mkdir(parents=True)
    for number in range(files):
        with (root / REPO / f"model-{number + 1:05}-of-{files:05}.safetensors").open("wb") as stream:
            for _ in range(FILE_BYTES >> 24):
                stream.write(os.urandom(1 << 24))


ENDPOINT = "http://127.0.0.1:18099"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "hub" / REPO).iterdir())


def plain_direct_write(folder: Path, target: Path) -> list[str] | Callable[[], None]:
    """The floor: the same number of bytes from memory, two writers, 8 MiB aligned, past the page cache, synced."""

    def write(name: str) -> None:
        block = mmap.mmap(-1, 8 << 20)
        block.write(random.randbytes(8 << 20))
        descriptor = os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
        for offset in range(0, FILE_BYTES, 8 << 20):
            os.pwrite(descriptor, block, offset)
        os.fsync(descriptor)
        os.close(descriptor)

    def run() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, names(folder)))

    return run


def checkpoint_fetch(folder: Path, target: Path) -> list[str]:
    return fetch_command(REPO, target)


def fetch_command(repo_id: str, target: Path, **fields: object) -> list[str]:
    request = {"repo_id": repo_id, "revision": "main", "store": str(target), "endpoint": ENDPOINT, **fields}
    return [sys.executable, "-c", FETCH, json.dumps(request)]


def hf_download(folder: Path, target: Path) -> list[str]:
    return [str(Path(sys.executable).with_name("hf")), "download", REPO, "--local-dir", str(target), "--quiet"]


def curl(folder: Path, target: Path) -> list[str]:
    urls = [
        word for name in names(folder) for word in (f"{ENDPOINT}/{REPO}/resolve/main/{name}", "-o", str(target / name))
    ]
    return ["curl", "-sSfL", "--no-progress-meter", "-Z", "--parallel-max", "8", *urls]


def aria2c(folder: Path, target: Path) -> list[str]:
    listed = "".join(f"{ENDPOINT}/{REPO}/resolve/main/{name}\n out={name}\n" for name in names(folder))
    (folder / "aria2.txt").write_text(listed)
    return ["aria2c", "-q", "-j8", "--file-allocation=falloc", f"-d{target}", f"-i{folder / 'aria2.txt'}"]


CONTENDERS: dict[str, Callable[[Path, Path], list[str] | Callable[[], None]]] = {
    "plain O_DIRECT write": plain_direct_write,
    "checkpoint_fetch": checkpoint_fetch,
    "hf download": hf_download,
    "aria2c -j8": aria2c,
    "curl -Z": curl,
}


PROGRAMS = {"aria2c -j8": "aria2c", "curl -Z": "curl"}


def compare(folder: Path, only: list[str], rounds: int) -> None:
    """Every contender once a round, each into an empty folder, until its files are durable."""
    took: dict[str, list[float]] = {name: [] for name in only}
    used: dict[str, list[Usage]] = {name: [] for name in only}
    for number in range(rounds):
        for name in only:
            target = folder / "target"
            target.mkdir()
            os.sync()
            begin = time.perf_counter()
            used[name].append(run(CONTENDERS[name](folder, target)))
            for path in target.rglob("*"):
                sync(path)
            took[name].append(time.perf_counter() - begin)
            shutil.rmtree(target)
            load = os.getloadavg()[0]
            print(
                f"round {number + 1}: {name} {took[name][-1]:.1f} s, {used[name][-1].cpu_s:.1f} s of CPU, load {load:.1f}",
                flush=True,
            )
    floor = statistics.median(took[only[0]])
    ours = statistics.median(took["checkpoint_fetch"]) if "checkpoint_fetch" in only else floor
    print(
        f"\n| what | median s | all | to {only[0]} | to checkpoint_fetch | CPU s | peak MB |\n|---|---|---|---|---|---|---|"
    )
    for name, seconds in took.items():
        median = statistics.median(seconds)
        every = ", ".join(f"{value:.1f}" for value in seconds)
        cpu = statistics.median(usage.cpu_s for usage in used[name])
        peak = max(usage.peak_mb for usage in used[name])
        print(
            f"| {name} | {median:.1f} | {every} | {median / floor:.2f} | {median / ours:.2f} | {cpu:.1f} | {peak:.0f} |"
        )


def sync(path: Path) -> None:
    """Durable is durable: whoever leaves its bytes in the page cache pays here."""
    if path.is_file():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@dataclass(frozen=True)
class Usage:
    cpu_s: float
    peak_mb: float


def run(command: list[str] | Callable[[], None]) -> Usage:
    """One contender, in a process of its own unless it is a function here (then nothing is known of its memory)."""
    if callable(command):
        before = time.process_time()
        command()
        return Usage(time.process_time() - before, 0.0)
    environment = os.environ | {
        "PYTHONPATH": str(paths.CHECKOUT / ".collections"),
        "HF_ENDPOINT": ENDPOINT,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed: {output}")
    if output.startswith("{"):
        print(output.strip())
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def rerun(folder: Path) -> None:
    """A converged run over 540 GB that were never written: files are sparse, their digests made up."""
    hub, hashes = folder / "hub", HashCache(folder / "hub" / ".hashes")
    size = SPARSE_BYTES // SPARSE_FILES
    (hub / SPARSE_REPO).mkdir(parents=True)
    for number in range(SPARSE_FILES):
        path = hub / SPARSE_REPO / f"model-{number + 1:05}-of-{SPARSE_FILES:05}.safetensors"
        with path.open("wb") as stream:
            stream.truncate(size)
        hashes.preset(path, f"{number:064x}")
    store = folder / "sparse-store"
    environment = {"PYTHONPATH": str(paths.CHECKOUT / ".collections"), "PATH": os.environ["PATH"]}
    prepare = subprocess.run(
        [sys.executable, "-c", PRETEND, json.dumps([SPARSE_REPO, str(store), ENDPOINT, str(hub / SPARSE_REPO)])],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    commit = prepare.stdout.strip()
    for revision in ("main", commit):
        print(f"\nconverged run, 540 GB in {SPARSE_FILES} files, revision {revision[:12]}:")
        for _ in range(3):
            begin = time.perf_counter()
            run(fetch_command(SPARSE_REPO, store, revision=revision))
            print(f"  whole process {time.perf_counter() - begin:.2f} s")


# A store as checkpoint_fetch would have left it.
PRETEND = """
import json, os, sys
from pathlib import Path
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint import fetch, hub, manifest, retry, store
repo_id, root, endpoint, source = json.loads(sys.argv[1])
where = store.Store(Path(root), repo_id)
client = hub.Hub(repo_id, endpoint, "", retry.RetryPolicy(), 30.0, retry.Gate())
commit = client.commit("main", 1)
tree = client.tree(commit)
snapshot = where.snapshot(commit)
snapshot.mkdir(parents=True)
for file in tree:
    with (snapshot / file.path).open("wb") as stream:
        stream.truncate(file.size)
where.write_tree(commit, tree)
where.write_ref("main", commit)
vouched = {f.path: manifest.ManifestFile(f.path, f.size, f.sha256, None, manifest.utc_now()) for f in tree}
manifest.write_manifest(snapshot, manifest.Manifest(repo_id, "main", commit, True, vouched))
print(commit)
"""


if __name__ == "__main__":
    main()
