"""Before a start: own leftovers are ended, strangers are named and left, and it is waited until the memory is free and still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service import gpu_reclaim, processes
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.gpu_reclaim import GIB, GpuMemory, wait_for_memory
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.processes import Process, find_process

TOTAL = 95 * GIB
STRANGER = Process(4242, 1, "python3", "alice", "user-session.scope")


@dataclass
class Gpus:
    """Used bytes of each GPU as functions of the second."""

    used: Sequence
    holders: dict[int, tuple] = field(default_factory=dict)
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def look(self) -> list[GpuMemory]:
        return [
            GpuMemory(
                index, TOTAL, TOTAL - int(used(self.now) if callable(used) else used), self.holders.get(index, ())
            )
            for index, used in enumerate(self.used)
        ]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, utilization: float = 0.95, timeout_s: float = 120) -> Sequence[GpuMemory]:
        return wait_for_memory(
            self.look,
            utilization,
            timeout_s,
            describe={4242: STRANGER}.get,
            say=self.said.append,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def test_free_gpus_cost_two_seconds() -> None:
    gpus = Gpus([0, 0])
    gpus.wait()
    assert gpus.now == 2 and gpus.said == []


def test_memory_that_frees_slowly_on_one_gpu() -> None:
    gpus = Gpus([0, lambda second: max(0, (80 - 2 * second) * GIB)])
    gpus.wait()
    # 4 GiB short is enough at 0.95, but it must also stand still.
    assert gpus.now == pytest.approx(43, abs=1)
    assert len(gpus.said) == 1 and "GPU 1 has 15.0 GiB free of 90.2 GiB needed" in gpus.said[0]


def test_memory_that_comes_back_in_between_is_not_stable() -> None:
    gpus = Gpus([lambda second: GIB if second < 20 and second % 2 else 0])
    gpus.wait()
    assert gpus.now >= 20


def test_a_stranger_is_named_and_left() -> None:
    gpus = Gpus([60 * GIB], {0: ((4242, 60 * GIB),)})
    with pytest.raises(VllmHostError) as raised:
        gpus.wait(timeout_s=30)
    assert raised.value.code == "gpu_memory_in_use"
    assert "pid 4242 (python3, user alice, unit user-session.scope): 60.0 GiB" in raised.value.message
    assert raised.value.details["gpus"] == [
        {"index": 0, "free_bytes": 35 * GIB, "needed_bytes": int(0.95 * TOTAL), "pids": [4242]}
    ]


def test_a_stranger_that_leaves_room_is_none_of_our_business() -> None:
    gpus = Gpus([GIB], {0: ((4242, GIB),)})
    gpus.wait()
    assert gpus.now == 2


def test_memory_that_nvml_shows_no_process_for() -> None:
    with pytest.raises(VllmHostError, match=r"50\.0 GiB by no process that NVML shows here"):
        Gpus([50 * GIB]).wait(timeout_s=10)


def test_a_process_that_is_not_visible_here() -> None:
    """NVML in a container: ids of the host, memory not told."""
    with pytest.raises(VllmHostError, match=r"pid 99999 \(not visible from here\)"):
        Gpus([50 * GIB], {0: ((99999, None),)}).wait(timeout_s=10)


def test_memory_that_never_stands_still() -> None:
    gpus = Gpus([lambda second: (int(second) % 2) * GIB])
    with pytest.raises(VllmHostError) as raised:
        gpus.wait(0.5, timeout_s=20)
    assert raised.value.code == "gpu_memory_unstable"


# --- processes, real ones -------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def stubborn() -> Iterator[subprocess.Popen[bytes]]:
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()


def test_a_process_and_its_identity(sleeper: subprocess.Popen[bytes]) -> None:
    found = find_process(sleeper.pid)
    assert found and found.started > 0 and found.name.startswith("python")
    sleeper.kill()
    deadline = time.monotonic() + 10
    while find_process(sleeper.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    # Not reaped yet: a zombie holds no GPU memory.
    assert find_process(sleeper.pid) is None
    assert find_process(2**22 + 1) is None


def test_end_asks_first_and_insists_then(sleeper: subprocess.Popen[bytes], stubborn: subprocess.Popen[bytes]) -> None:
    found = [process for process in map(find_process, (sleeper.pid, stubborn.pid)) if process]
    assert len(found) == 2
    assert processes.end(found, term_s=1, kill_s=10) == []
    assert sleeper.wait() == -signal.SIGTERM and stubborn.wait() == -signal.SIGKILL


def test_a_reused_pid_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    found = find_process(sleeper.pid)
    assert found
    earlier = Process(found.pid, found.started - 1, found.name, found.user, found.unit)
    assert processes.end([earlier], term_s=0.2, kill_s=0.2) == []
    assert sleeper.poll() is None


def write_record(folder: Path, *recorded: tuple[int, int]) -> None:
    (folder / "vllm-x.service.json").write_text(str([list(one) for one in recorded]))


def test_only_recorded_processes_of_the_same_user_are_leftovers(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    found = find_process(sleeper.pid)
    assert found
    assert processes.leftovers("vllm-x.service", found.user, tmp_path) == []
    write_record(tmp_path, (found.pid, found.started), (os.getpid(), 1))
    assert processes.leftovers("vllm-x.service", found.user, tmp_path) == [found]
    assert processes.leftovers("vllm-x.service", "somebody-else", tmp_path) == []
    write_record(tmp_path, (found.pid, found.started + 1))
    assert processes.leftovers("vllm-x.service", found.user, tmp_path) == []
    (tmp_path / "vllm-x.service.json").write_text("damaged")
    assert processes.leftovers("vllm-x.service", found.user, tmp_path) == []


def test_this_process_and_its_parents_are_never_leftovers(tmp_path: Path) -> None:
    own = [process for process in map(find_process, processes.ancestors(os.getpid())) if process]
    write_record(tmp_path, *((process.pid, process.started) for process in own))
    assert {process.pid for process in processes.leftovers("vllm-x.service", own[0].user, tmp_path)} == set()


def test_reclaim_ends_leftovers_and_says_so(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_process(sleeper.pid)
    assert found
    monkeypatch.setattr(processes, "leftovers", lambda _unit, _user: [found])
    said: list[str] = []
    gpu_reclaim.reclaim("vllm-x.service", found.user, said.append)
    assert sleeper.wait() == -signal.SIGTERM
    assert said == [f"ending what an earlier start left: {found.describe()}"]


def test_a_leftover_that_the_kernel_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "leftovers", lambda _unit, _user: [STRANGER])
    monkeypatch.setattr(processes, "end", lambda own: list(own))
    with pytest.raises(VllmHostError, match="Xid") as raised:
        gpu_reclaim.reclaim("vllm-x.service", "vllm", lambda _text: None)
    assert raised.value.code == "leftover_stuck" and raised.value.details["pids"] == [4242]
