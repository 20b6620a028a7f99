"""How long gpu_info takes on eight GPUs (aim: under 1 s), and the role drivers on a host whose driver does (aim: under 5 s).

``python -m tests.benchmark.drivers [--repeats 5]`` makes a test host with eight fake GPUs, and prints medians with the extremes; it
asserts nothing. The role's figure is the whole ``ansible-playbook``, its own start and the role tools included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from tests.host import paths

TESTHOST = paths.CHECKOUT / "tests/host/testhost"
HOST = "drivers-benchmark"
PLAY = """
- hosts: all
  gather_facts: false
  roles: [gpuhost.vllm.drivers]
  vars: {vllm_tools_wheelhouse: /srv/wheels/tools}
"""
# The function alone, in the interpreter that the module runs with, on the host.
FUNCTION = (
    "import time; started = time.perf_counter(); from gpuhost_vllm.gpu import info, nvml; "
    "facts = info.collect(nvml.import_client()); assert len(facts['gpus']) == 8; print(time.perf_counter() - started)"
)


def show(what: str, measured: list[float]) -> None:
    median, low, high = statistics.median(measured), min(measured), max(measured)
    print(f"{what:<52} {median:6.2f} s   ({low:.2f} to {high:.2f}, n={len(measured)})", flush=True)


def seconds(*command: object) -> float:
    started = time.monotonic()
    environment = {**os.environ, "ANSIBLE_CONFIG": str(paths.CHECKOUT / "ansible.cfg")}
    subprocess.run(
        [str(word) for word in command], check=True, cwd=paths.CHECKOUT, env=environment, capture_output=True
    )
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = range(parser.parse_args().repeats)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}")
    subprocess.run(
        [TESTHOST, "create", HOST, f"--ro={paths.WHEELS_TOOLS}:/srv/wheels/tools"], check=True, capture_output=True
    )
    try:
        inventory = paths.HOSTS / HOST / "inventory.yml"
        with tempfile.TemporaryDirectory() as folder:
            play = Path(folder, "play.yml")
            play.write_text(PLAY)
            converge = ("ansible-playbook", "-i", inventory, play)
            seconds(*converge)
            inside = [TESTHOST, "login", HOST, "--", f'/opt/vllm/tools/bin/python -c "{FUNCTION}"']
            alone = [float(subprocess.run(inside, check=True, capture_output=True, text=True).stdout) for _ in repeats]
            show("gpu_info: the function, import included", alone)
            interpreter = ("-e", "ansible_python_interpreter=/opt/vllm/tools/bin/python")
            module = ("ansible", "all", "-i", inventory, "-m", "gpuhost.vllm.gpu_info", *interpreter)
            show("gpu_info: `ansible -m`, its own start included", [seconds(*module) for _ in repeats])
            show("drivers on a satisfied container: `ansible-playbook`", [seconds(*converge) for _ in repeats])
            # As on a machine: settings of modules, rules of udev and the persistence daemon are looked at too.
            machine = (*converge, "-e", "drivers_kernel_modules=install")
            seconds(*machine)
            show("drivers on a satisfied machine: `ansible-playbook`", [seconds(*machine) for _ in repeats])
    finally:
        subprocess.run([TESTHOST, "destroy", HOST], check=True, capture_output=True)


if __name__ == "__main__":
    main()
