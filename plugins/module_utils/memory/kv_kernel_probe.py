# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the MLA decode kernel of an installed vLLM fit into a GPU's shared memory with an FP8 cache?

The kernel is compiled by the release's own Triton for the wanted compute capability and never run (kv_kernel_compile), in a
process of its own with a time limit. Whatever goes wrong there, the answer is ``cannot_tell`` and the table decides.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable, Optional

from . import kv_kernel_compile
from .kv_policy import ProbeResult
from .kv_policy_data import SHARED_MEMORY_LIMIT_BYTES

TIMEOUT_S = 180
"""Importing torch and compiling twice takes about 5 s of one core; much more on a machine that is busy or cold."""


def probe_kernel(
    python: str,
    capability: tuple[int, int],
    *,
    latent: int = 512,
    rope: int = 64,
    heads: int = 8,
    timeout_s: float = TIMEOUT_S,
    package: Optional[Path] = None,
) -> ProbeResult:
    """Compile the kernel as the release of ``python`` would launch it; never raises.

    Args:
        python: interpreter of the release, ``/opt/vllm/releases/<id>/bin/python``.
        capability: of the GPU, ``(12, 0)``.
        latent: ``kv_lora_rank`` of the model; rope: its ``qk_rope_head_dim``; heads: query heads of one GPU.
        package: folder of another ``vllm`` than the one installed there (for tests).
    """
    limit = SHARED_MEMORY_LIMIT_BYTES.get(capability)
    if limit is None:
        return ProbeResult("cannot_tell", detail=f"the shared memory of compute capability {capability} is not known")
    request = {
        "capability": list(capability),
        "limit_bytes": limit,
        "latent": latent,
        "rope": rope,
        "heads": heads,
        "kv_dtypes": ["fp8", "bfloat16"],
        "vllm": str(package) if package else None,
    }
    try:
        answer = _ask(python, request, timeout_s)
        return _judge(answer, limit)
    except Exception as error:  # a probe that fails must never stop a deployment
        return ProbeResult("cannot_tell", limit_bytes=limit, detail=str(error) or type(error).__name__)


def release_probe(
    releases: str, version: str, mode: str
) -> Optional[Callable[[tuple[int, int], int, int], ProbeResult]]:
    """How a plan asks the installed release of a version: by capability, latent and rope width.

    None for the mode ``never`` and while no such release is installed.
    """
    python = installed_python(Path(releases), version) if releases and mode != "never" else None
    if python is None:
        return None
    return lambda capability, latent, rope: probe_kernel(python, capability, latent=latent, rope=rope)


def installed_python(releases: Path, version: str) -> Optional[str]:
    """The interpreter of the newest installed release of a version, None where there is none."""
    found = [path for path in releases.glob(f"{version}-*/bin/python") if path.exists()]
    return str(max(found, key=lambda path: path.parent.parent.stat().st_mtime)) if found else None


def _judge(answer: dict[str, Any], limit: int) -> ProbeResult:
    with_fp8 = answer["shared_memory_bytes"].get("fp8")
    with_16_bit = answer["shared_memory_bytes"].get("bfloat16")
    if not answer["takes_scales"]:
        return ProbeResult("does_not_fit", None, limit, "this release's decode kernel is from before FP8 caches")
    if with_fp8 is None:
        return ProbeResult("cannot_tell", None, limit, answer["errors"].get("fp8", "no answer for FP8"))
    if with_16_bit is None or with_16_bit > limit:
        # 16 bit fits in every release: a probe that denies it has not compiled what vLLM would launch.
        return ProbeResult("cannot_tell", with_fp8, limit, f"the 16-bit kernel came out as {with_16_bit} bytes")
    verdict = "fits" if with_fp8 <= limit else "does_not_fit"
    return ProbeResult(verdict, with_fp8, limit, f"compiled with Triton {answer['triton']}")


def _ask(python: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Run the script in the release and return its last line."""
    with tempfile.TemporaryDirectory(prefix="vllm-kernel-") as home:
        process = subprocess.Popen(
            [python, "-I", "-B", "-", json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            start_new_session=True,
            env={
                "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
                "HOME": home,
                "TMPDIR": home,
                "LANG": "C.UTF-8",
                "CUDA_VISIBLE_DEVICES": "",
            },
        )
        try:
            output, errors = process.communicate(_source(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no answer within {timeout_s:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        last = next((line for line in reversed(errors.splitlines()) if line.strip()), "it said nothing")
        raise RuntimeError(f"{python} ended with {process.returncode}: {last[:300]}")
    answer: dict[str, Any] = json.loads(output.rstrip().splitlines()[-1])
    return answer


def _source() -> str:
    """The script's text, also from inside the zip that Ansible ships a module in."""
    spec = importlib.util.find_spec(kv_kernel_compile.__name__)
    source = spec.loader.get_source(kv_kernel_compile.__name__) if spec and spec.loader else None  # type: ignore[attr-defined]
    if not source:
        raise RuntimeError("the source of kv_kernel_compile is not at hand")
    return str(source)
