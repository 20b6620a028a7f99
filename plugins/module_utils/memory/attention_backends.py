# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which attention backend vLLM would choose, as far as it decides about the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ..errors import VllmHostError
from .backends_data import BACKENDS, PRIORITIES, Backend

#: Among ``packages``: the processor's matrix tiles, which change a CPU's choice for MLA.
AMX = "amx"


@dataclass(frozen=True)
class BackendQuestion:
    """What a layer needs.

    Attributes:
        mla, sparse: multi-head latent attention, with an indexer.
        kv_cache_dtype: of this layer.
        head_size: of a key (of the latent for MLA).
        block_size: asked for by the user, None if not.
        sinks: the layer has attention sinks.
        float32: the model computes in 32 bit.
        image_prefix: tokens of an image attend to each other both ways.
        slides: the layer has a window.
    """

    mla: bool
    sparse: bool
    kv_cache_dtype: str
    head_size: int
    block_size: Optional[int] = None
    sinks: bool = False
    float32: bool = False
    image_prefix: bool = False
    slides: bool = False


def _accepts_block(backend: Backend, block_size: Optional[int]) -> bool:
    return block_size is None or any(block_size % kernel == 0 for kernel in backend.kernel_blocks)


def _fits(backend: Backend, question: BackendQuestion, major: int, packages: Sequence[str]) -> bool:
    if backend.mla != question.mla or backend.sparse != question.sparse or major not in backend.majors:
        return False
    if backend.package and backend.package not in packages:
        return False
    if (question.float32 or question.image_prefix) and not (backend.mla or backend.name == "TRITON_ATTN"):
        return False
    if question.slides and backend.name == "TURBOQUANT":
        return False
    if question.kv_cache_dtype not in backend.kv_cache_dtypes:
        return False
    if backend.name == "FLASH_ATTN" and question.kv_cache_dtype.startswith("fp8") and major != 9:
        return False
    if backend.head_sizes is not None and question.head_size not in backend.head_sizes:
        return False
    if question.sinks and (backend.sinks_from is None or major < backend.sinks_from):
        return False
    if question.sinks and backend.name == "FLASH_ATTN" and major not in (9, 10):
        return False
    return _accepts_block(backend, question.block_size)


def select_backend(
    question: BackendQuestion, capability: tuple[int, int], packages: Sequence[str], device: str = "cuda"
) -> Backend:
    """The first backend in vLLM's order that takes the layer.

    A backend whose package is not named is only used when nothing else takes the layer: vLLM would not start otherwise.

    Raises:
        VllmHostError: ``unsupported`` when no backend takes it.
    """
    if device == "cpu":
        mla = "AMX_MLA" if AMX in packages else "CPU_MLA"
        return BACKENDS[mla if question.mla else "CPU_ATTN"]
    major = capability[0]
    names = PRIORITIES.get((question.mla, major)) or PRIORITIES[(question.mla, None)]
    wanted = sorted({backend.package for backend in BACKENDS.values() if backend.package})
    for installed in (packages, wanted):
        for name in names:
            if _fits(BACKENDS[name], question, major, installed):
                return BACKENDS[name]
    kind = ("sparse MLA" if question.sparse else "MLA") if question.mla else "attention"
    raise VllmHostError(
        "unsupported",
        f"No {kind} backend of vLLM takes kv_cache_dtype {question.kv_cache_dtype} (head size {question.head_size}, block size"
        f" {question.block_size or 'free'}) on compute capability {major}.{capability[1]}; choose another vllm_engine_args.kv_cache_dtype.",
        key="kv_cache_dtype",
        found=question.kv_cache_dtype,
    )


def preferred_block_size(backends: Sequence[Backend], default: int) -> int:
    """The smallest block size that all backends of a model take, the default if they do."""
    if all(_accepts_block(backend, default) for backend in backends):
        return default
    candidates = sorted({size for backend in backends for size in backend.kernel_blocks})
    for candidate in candidates:
        if all(_accepts_block(backend, candidate) for backend in backends):
            return candidate
    raise VllmHostError(
        "unsupported",
        f"The attention backends {', '.join(backend.name for backend in backends)} share no block size; leave vllm_engine_args.attention_backend to vLLM.",
        key="block_size",
    )
