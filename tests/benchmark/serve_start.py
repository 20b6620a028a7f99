"""How long a start takes with cold and with warm caches: ``python -m tests.benchmark.serve_start``. docs/benchmarks/serve.md keeps the figures.

The CPU build of vLLM on this machine, with torch.compile on (it needs g++) and the same cache variables as the unit. A start ends when /health answers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.host import paths, wheels

PORT = 18123
ROUNDS = 3
GIVE_UP_S = 1800


def _checkpoint(folder: Path) -> Path:
    """tiny-mla without its declaration of an FP8 cache, which the CPU build cannot answer from."""
    model = folder / "model"
    shutil.copytree(paths.HUB_REPOS / "demo/tiny-mla", model)
    (model / "hf_quant_config.json").unlink()
    config = json.loads((model / "config.json").read_text())
    del config["quantization_config"]
    (model / "config.json").write_text(json.dumps(config))
    return model


def _start(python: Path, model: Path, caches: Path) -> float:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(caches),
        "XDG_CACHE_HOME": str(caches),
        "VLLM_CACHE_ROOT": f"{caches}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    command = [
        str(python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        f"--model={model}",
        "--host=127.0.0.1",
        f"--port={PORT}",
    ]
    begun = time.monotonic()
    with (caches / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--max-model-len=2048", "--max-num-seqs=8"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        while not _healthy():
            if server.poll() is not None or time.monotonic() - begun > GIVE_UP_S:
                raise SystemExit((caches / "log").read_text()[-4000:])
            time.sleep(0.2)
        return time.monotonic() - begun
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _healthy() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=3) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    python = wheels.vllm_environment()
    print("| round | caches cold | caches warm | load of the machine |\n|---|---|---|---|")
    for number in range(1, ROUNDS + 1):
        with tempfile.TemporaryDirectory(prefix="serve-start-") as folder:
            model, caches = _checkpoint(Path(folder)), Path(folder, "caches")
            caches.mkdir()
            cold, warm = _start(python, model, caches), _start(python, model, caches)
            print(f"| {number} | {cold:.0f} s | {warm:.0f} s | {os.getloadavg()[0]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
