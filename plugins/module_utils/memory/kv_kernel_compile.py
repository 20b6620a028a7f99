# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A script for the interpreter of an installed vLLM: how much shared memory its MLA decode kernel asks for on a GPU.

It is sent to that interpreter on standard input, so it must stand alone: only the standard library and, of the release, Triton,
torch and the one file of vLLM that holds the kernel. No GPU is touched, none is needed. vLLM's own launcher is called with
tensors that have no memory, so that block sizes and stages are those that it would choose; Triton is told that its device is of
the wanted capability, and is stopped once it has lowered the kernel as far as the shared memory is known, long before ptxas.

Argument: JSON with ``capability`` ([12, 0]), ``limit_bytes``, ``latent`` (512), ``rope`` (64), ``heads`` (8), ``kv_dtypes``
(["fp8", "bfloat16"]) and, for tests, ``vllm`` (the package's folder). The last line on standard output is JSON::

    {"triton": "3.9.0", "takes_scales": true, "shared_memory_bytes": {"fp8": 102400, "bfloat16": 63488}, "errors": {}}

``takes_scales`` is false for a kernel from before FP8 caches: it compiles with one and computes nonsense.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

KERNEL_FILES = ("v1/attention/ops/triton_decode_attention.py", "attention/ops/triton_decode_attention.py")


class LoweredFarEnough(Exception):
    """The kernel's shared memory is known; nothing after that is of interest."""

    def __init__(self, shared_memory_bytes: int) -> None:
        super().__init__(shared_memory_bytes)
        self.shared_memory_bytes = shared_memory_bytes


class DeviceOfThatKind:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("meta")

    def set_current_device(self, device: int) -> None:
        pass


class PlatformOfThatKind:
    """What vLLM's ``current_platform`` says on such a GPU, as far as a kernel's launcher may ask."""

    device_type = "cuda"
    device_name = "cuda"

    def __init__(self, capability: tuple[int, int]) -> None:
        self._capability = capability

    def is_cuda(self) -> bool:
        return True

    is_cuda_alike = is_cuda

    def is_rocm(self) -> bool:
        return False

    is_cpu = is_xpu = is_tpu = is_out_of_tree = is_rocm

    def get_device_capability(self, device_id: int = 0) -> Any:
        major, minor = self._capability
        return types.SimpleNamespace(major=major, minor=minor, to_int=lambda: major * 10 + minor)

    def _as_pair(self, capability: Any) -> tuple[int, int]:
        return divmod(capability, 10) if isinstance(capability, int) else (capability[0], capability[1])

    def has_device_capability(self, capability: Any, device_id: int = 0) -> bool:
        return self._capability >= self._as_pair(capability)

    def is_device_capability(self, capability: Any, device_id: int = 0) -> bool:
        return self._capability == self._as_pair(capability)

    def is_device_capability_family(self, capability: Any, device_id: int = 0) -> bool:
        return self._capability[0] == self._as_pair(capability)[0]

    def num_compute_units(self, device_id: int = 0) -> int:
        return 188


def load_kernels(package: Path, capability: tuple[int, int]) -> types.ModuleType:
    """vLLM's kernel file alone: importing vLLM would start its platform detection and take ten seconds."""
    import triton
    import triton.language as tl

    vllm = types.ModuleType("vllm")
    vllm.__path__ = [str(package)]
    platforms = types.ModuleType("vllm.platforms")
    platforms.current_platform = PlatformOfThatKind(capability)  # type: ignore[attr-defined]
    triton_utils = types.ModuleType("vllm.triton_utils")
    triton_utils.tl, triton_utils.triton, triton_utils.HAS_TRITON = tl, triton, True  # type: ignore[attr-defined]
    sys.modules.update({"vllm": vllm, "vllm.platforms": platforms, "vllm.triton_utils": triton_utils})
    path = next((package / name for name in KERNEL_FILES if (package / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{package} has none of {', '.join(KERNEL_FILES)}")
    spec = importlib.util.spec_from_file_location("vllm_mla_decode_kernels", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pretend_device(capability: tuple[int, int], limit_bytes: int) -> None:
    """Let Triton compile for a device of that capability, and stop when the shared memory is known."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime import driver

    driver.set_active(DeviceOfThatKind(GPUTarget("cuda", capability[0] * 10 + capability[1], 32)))
    original = CUDABackend.add_stages

    def add_stages(self: Any, stages: dict[str, Any], *rest: Any) -> None:
        original(self, stages, *rest)

        def watched(lower: Any) -> Any:
            def stage(source: Any, metadata: dict[str, Any]) -> Any:
                lowered = lower(source, metadata)
                if "shared" in metadata:
                    raise LoweredFarEnough(metadata["shared"])
                return lowered

            return stage

        for name in stages:
            stages[name] = watched(stages[name])

    CUDABackend.add_stages = add_stages
    properties = types.SimpleNamespace(
        major=capability[0],
        minor=capability[1],
        multi_processor_count=188,
        shared_memory_per_block_optin=limit_bytes,
        shared_memory_per_multiprocessor=limit_bytes + 1024,
        warp_size=32,
    )
    # A launcher that was taught to look at the device finds the wanted one.
    torch.cuda.get_device_properties = lambda *_args, **_kwargs: properties
    torch.cuda.get_device_capability = lambda *_args, **_kwargs: capability
    torch.cuda.current_device = lambda: 0


def shared_memory_bytes(kernels: types.ModuleType, latent: int, rope: int, heads: int, kv_dtype: str) -> int:
    """Call vLLM's launcher as its TRITON_MLA backend does, with tensors that have a shape and no content."""
    import torch

    batch, blocks, block_size, splits = 4, 64, 16, 4
    cache_dtype = torch.float8_e4m3fn if kv_dtype == "fp8" else torch.bfloat16

    def empty(*shape: int, dtype: Any) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    cache = empty(blocks, block_size, 1, latent + rope, dtype=cache_dtype)
    scale = empty(1, dtype=torch.float32).squeeze(0)
    arguments = {
        "q": empty(batch, heads, latent + rope, dtype=torch.bfloat16),
        "k_buffer": cache,
        "v_buffer": cache[..., :latent],
        "o": empty(batch, heads, latent, dtype=torch.bfloat16),
        "lse": empty(batch, heads, dtype=torch.bfloat16),
        "req_to_token": empty(batch, blocks, dtype=torch.int32),
        "b_seq_len": empty(batch, dtype=torch.int32),
        "attn_logits": empty(batch, heads, splits, latent + 1, dtype=torch.float32),
        "num_kv_splits": splits,
        "sm_scale": 0.1,
        "page_size": block_size,
        "k_scale": scale,
        "v_scale": scale,
        "is_mla": True,
    }
    launch = kernels.decode_attention_fwd
    known = inspect.signature(launch).parameters
    try:
        launch(**{name: value for name, value in arguments.items() if name in known})
    except LoweredFarEnough as found:
        return found.shared_memory_bytes
    raise RuntimeError("the launcher came back without compiling a kernel")


def probe(request: dict[str, Any]) -> dict[str, Any]:
    capability = (request["capability"][0], request["capability"][1])
    import triton

    answer: dict[str, Any] = {"triton": triton.__version__, "shared_memory_bytes": {}, "errors": {}}
    if request.get("vllm"):
        package = Path(request["vllm"])
    else:
        spec = importlib.util.find_spec("vllm")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("vllm is not installed here")
        package = Path(list(spec.submodule_search_locations)[0])
    kernels = load_kernels(package, capability)
    answer["takes_scales"] = "k_scale" in inspect.signature(kernels.decode_attention_fwd).parameters
    pretend_device(capability, request["limit_bytes"])
    for kv_dtype in request["kv_dtypes"]:
        try:
            answer["shared_memory_bytes"][kv_dtype] = shared_memory_bytes(
                kernels, request["latent"], request["rope"], request["heads"], kv_dtype
            )
        except Exception as error:
            answer["errors"][kv_dtype] = "".join(traceback.format_exception_only(error)).strip()
            traceback.print_exc()
    return answer


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vllm-kernel-") as cache:
        os.environ.update({"TRITON_CACHE_DIR": cache, "TRITON_ALWAYS_COMPILE": "1"})
        sys.stdout.write(f"\n{json.dumps(probe(json.loads(sys.argv[1])))}\n")


if __name__ == "__main__":
    main()
