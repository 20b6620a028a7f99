# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before a start: end what an earlier start of the same unit left behind, then wait until the GPUs have the memory that vLLM will ask for.

Runs as ``ExecStartPre=… -m gpuhost_vllm.service.gpu_reclaim``. Only two things make a process the unit's own: it is in the unit's
control group, or the last healthy start recorded it (pid and start time) and it still belongs to the unit's user. NVML's process
ids decide nothing: in a container they are the host's and may name an innocent process here. They are used to tell who holds memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..errors import VllmHostError
from ..gpu import nvml
from . import processes
from .processes import Process

POLL_S = 1.0
# Memory counts as stable when it moved less than this between two looks: the driver itself moves a few pages.
STABLE_BYTES = 32 << 20
STABLE_LOOKS = 3
GIB = 1 << 30


@dataclass(frozen=True)
class GpuMemory:
    """One GPU now: what CUDA will call total and free, in bytes, and NVML's process ids with their memory (None: not told)."""

    index: int
    total_bytes: int
    free_bytes: int
    holders: tuple[tuple[int, Optional[int]], ...] = ()


def read_gpus(client: Any, indices: Sequence[int]) -> list[GpuMemory]:
    """Look at the GPUs with these NVML indices, or at all of them when there are none.

    Args:
        client: the ``pynvml`` module, or None where it is not installed.

    Raises ``gpu_unreadable`` if NVML does not answer, or not for one of the GPUs.
    """
    if client is None:
        raise VllmHostError("gpu_unreadable", "nvidia-ml-py is not installed for this interpreter: run the role tools.")
    try:
        client.nvmlInit()
    except client.NVMLError as error:
        name = nvml.error_name(client, nvml.error_code(error))
        raise VllmHostError(
            "gpu_unreadable", f"NVML does not answer ({name}): run the role drivers.", nvml=name
        ) from error
    call = nvml.Call(client)
    try:
        return [_read_gpu(call, index) for index in indices or range(call("nvmlDeviceGetCount") or 0)]
    finally:
        call("nvmlShutdown")


def _read_gpu(call: nvml.Call, index: int) -> GpuMemory:
    handle = call("nvmlDeviceGetHandleByIndex", index)
    # nvml.h: nvmlMemory_v2 tells what the driver keeps for itself; without it, it counts as used in both figures.
    memory = handle and (
        call("nvmlDeviceGetMemoryInfo", handle, version=getattr(call.client, "nvmlMemory_v2", 0x02000028))
        or call("nvmlDeviceGetMemoryInfo", handle)
    )
    if not memory:
        raise VllmHostError(
            "gpu_unreadable",
            f"NVML does not read GPU {index} ({call.errors or 'no such index'}): look at vllm_gpus.",
            gpu=index,
        )
    holders = tuple((one["pid"], one["memory_bytes"]) for one in nvml.read_processes(call, handle, index))
    return GpuMemory(index, memory.total - getattr(memory, "reserved", 0), memory.free, holders)


def _to_journal(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_for_memory(
    look: Callable[[], Sequence[GpuMemory]],
    utilization: float,
    timeout_s: float,
    describe: Callable[[int], Optional[Process]] = processes.find_process,
    say: Callable[[str], None] = _to_journal,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Sequence[GpuMemory]:
    """Wait until every GPU has ``utilization`` of its memory free and the figure no longer moves; return the last look.

    vLLM refuses to start with less (``request_memory``), and counts memory that is freed while it measures as its own.
    Raises ``gpu_memory_in_use`` after ``timeout_s``, naming who holds it.
    """
    begun = clock()
    stable = 0
    before: dict[int, int] = {}
    told = False
    while True:
        gpus = look()
        short = [gpu for gpu in gpus if gpu.free_bytes < utilization * gpu.total_bytes]
        moved = any(abs(before.get(gpu.index, gpu.free_bytes) - gpu.free_bytes) > STABLE_BYTES for gpu in gpus)
        stable = 0 if short or moved else stable + 1
        if stable >= STABLE_LOOKS:
            return gpus
        if short and not told:
            told = True
            say("waiting for GPU memory: " + "; ".join(_shortage(gpu, utilization, describe) for gpu in short))
        if clock() - begun >= timeout_s:
            raise _in_use(short, gpus, utilization, timeout_s, describe)
        before = {gpu.index: gpu.free_bytes for gpu in gpus}
        sleep(POLL_S)


def _in_use(
    short: Sequence[GpuMemory],
    gpus: Sequence[GpuMemory],
    utilization: float,
    timeout_s: float,
    describe: Callable[[int], Optional[Process]],
) -> VllmHostError:
    if not short:
        return VllmHostError(
            "gpu_memory_unstable",
            f"GPU memory is enough but still moved after {timeout_s:.0f} s: another process is allocating or freeing on these GPUs.",
            gpus=[gpu.index for gpu in gpus],
        )
    return VllmHostError(
        "gpu_memory_in_use",
        f"After {timeout_s:.0f} s there is not enough free GPU memory: "
        + "; ".join(_shortage(gpu, utilization, describe) for gpu in short)
        + ". Stop what holds it, or lower gpu_memory_utilization.",
        gpus=[
            {
                "index": gpu.index,
                "free_bytes": gpu.free_bytes,
                "needed_bytes": int(utilization * gpu.total_bytes),
                "pids": [pid for pid, _size in gpu.holders],
            }
            for gpu in short
        ],
    )


def _shortage(gpu: GpuMemory, utilization: float, describe: Callable[[int], Optional[Process]]) -> str:
    used = gpu.total_bytes - gpu.free_bytes
    told = [_holder(pid, size, describe) for pid, size in gpu.holders]
    unseen = used - sum(size or 0 for _pid, size in gpu.holders)
    # What the driver needs for itself is below this.
    if unseen > GIB and all(size is not None for _pid, size in gpu.holders):
        told.append(
            f"{unseen / GIB:.1f} GiB by no process that NVML shows here (one of the container's host, or one that is ending)"
        )
    return (
        f"GPU {gpu.index} has {gpu.free_bytes / GIB:.1f} GiB free of {utilization * gpu.total_bytes / GIB:.1f} GiB needed"
        + (", held by " + ", ".join(told) if told else "")
    )


def _holder(pid: int, size: Optional[int], describe: Callable[[int], Optional[Process]]) -> str:
    process = describe(pid)
    # In a container NVML may give the host's ids, which mean nothing here.
    who = process.describe() if process else f"pid {pid} (not visible from here)"
    return who if size is None else f"{who}: {size / GIB:.1f} GiB"


def reclaim(unit: str, user: str, say: Callable[[str], None] = _to_journal) -> None:
    """End the unit's own leftovers; ``leftover_stuck`` names those that even SIGKILL does not end."""
    own = processes.leftovers(unit, user)
    if not own:
        return
    say("ending what an earlier start left: " + ", ".join(process.describe() for process in own))
    stuck = processes.end(own)
    if stuck:
        raise VllmHostError(
            "leftover_stuck",
            f"Left over from an earlier start of {unit} and not to be ended (waiting inside the kernel, often for the GPU driver): "
            f"{', '.join(process.describe() for process in stuck)}. Look at the kernel log for Xid lines; the host may need a reboot.",
            pids=[process.pid for process in stuck],
        )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """For ExecStartPre: 0 when the GPUs are free, 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="gpuhost_vllm.service.gpu_reclaim", description=__doc__.splitlines()[0])
    parser.add_argument("--unit", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--gpus", default="", metavar="0,1,…", help="NVML indices; empty means all")
    parser.add_argument("--utilization", type=float, required=True, help="fraction of each GPU that must be free")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    indices = [int(word) for word in options.gpus.split(",") if word]
    try:
        reclaim(options.unit, options.user)
        client = nvml.import_client()
        wait_for_memory(lambda: read_gpus(client, indices), options.utilization, options.timeout)
    except VllmHostError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
