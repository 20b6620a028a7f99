"""How long `site.yml` takes on a host where nothing is left to do (aim: under 45 s on 2 cores), where the time goes, and what a module costs.

``make demo`` first, then ``python -m tests.benchmark.second_converge [--repeats 3]``. It prints medians with the extremes, the slowest tasks, and
in pairs the time of a module of ours against ``ansible.builtin.ping`` (the start of a module alone); it asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict

from tests.host import paths

INVENTORY = paths.CHECKOUT / "inventories/demo"
ENVIRONMENT = {
    **os.environ,
    "ANSIBLE_CONFIG": str(paths.CHECKOUT / "ansible.cfg"),
    "ANSIBLE_NOCOLOR": "true",
    "PYTHONUNBUFFERED": "1",
}
# Each costs what Ansible needs to send and start it; ours also imports its part of module_utils.
MODULES = {
    "ansible.builtin.ping": "",
    "gpuhost.vllm.vllm_instances_info": "",
    "gpuhost.vllm.vllm_service_info": "instance=demo",
    "gpuhost.vllm.gpu_info": "",
}


def converge() -> tuple[float, dict[str, float], str]:
    """One run: its seconds, seconds by task, and the recap."""
    tasks: dict[str, float] = defaultdict(float)
    task, since, recap = "", time.monotonic(), ""
    begin = since
    command = ["ansible-playbook", "-i", str(INVENTORY), "site.yml"]
    with subprocess.Popen(command, cwd=paths.CHECKOUT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(("TASK ", "PLAY ")):
                tasks[task] += time.monotonic() - since
                task, since = line.rstrip(" *\n"), time.monotonic()
            if match := re.search(r"changed=\d+ .*failed=\d+", line):
                recap = re.sub(r"\s+", " ", match[0])
    if process.returncode:
        sys.exit(f"site.yml failed ({recap}); run `make demo` first")
    return time.monotonic() - begin, tasks, recap


def module_seconds(name: str, arguments: str) -> float:
    """One module through `ansible`, whose own start is part of each figure alike."""
    command = ["ansible", "-i", str(INVENTORY), "vllm", "-m", name, "-a", arguments]
    command += ["-e", "ansible_python_interpreter=/opt/vllm/tools/bin/python"]
    started = time.monotonic()
    subprocess.run(command, cwd=paths.CHECKOUT, env=ENVIRONMENT, check=True, capture_output=True)
    return time.monotonic() - started


def show(what: str, measured: list[float]) -> None:
    median, low, high = statistics.median(measured), min(measured), max(measured)
    print(f"{what:<44} {median:6.2f} s   ({low:.2f} to {high:.2f}, n={len(measured)})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print(f"{os.cpu_count()} cores, load {', '.join(f'{value:.1f}' for value in os.getloadavg())}")
    runs = [converge() for _ in range(repeats)]
    show("site.yml, nothing to do", [seconds for seconds, _tasks, _recap in runs])
    print(f"  {runs[-1][2]}")
    slowest = sorted(runs[-1][1].items(), key=lambda item: -item[1])[:12]
    for name, seconds in slowest:
        print(f"  {seconds:6.2f} s  {name}")
    measured: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats * 2):
        for name, arguments in MODULES.items():
            measured[name].append(module_seconds(name, arguments))
    base = measured["ansible.builtin.ping"]
    for name, seconds in measured.items():
        show(f"ansible -m {name}", seconds)
        ratios = [mine / theirs for mine, theirs in zip(seconds, base, strict=True)]
        print(f"  {statistics.median(ratios):.2f} times ansible.builtin.ping")


if __name__ == "__main__":
    main()
