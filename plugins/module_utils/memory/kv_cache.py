# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door to the KV-cache arithmetic: a model, its options and a GPU to what vLLM will say after the load.

::

    plan = plan_kv_cache(config, engine_args={"tensor_parallel_size": 8}, vllm_version="0.32.0",
                         gpu=Gpu(total_bytes=102641958912, compute_capability=(12, 0)))
    plan.engine.block_size, plan.kv_bytes_per_token
    plan.capacity(available_bytes).num_gpu_blocks
    plan.max_model_len_fit(available_bytes)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Union

from .engine import Engine, Gpu

#: Bytes for the KV cache of one GPU; one number for all pipeline ranks or one a rank.
AvailableBytes = Union[int, Sequence[int]]


@dataclass(frozen=True)
class KvGroup:
    """Layers that share one block table.

    Attributes:
        kind: vLLM's class name (``FullAttentionSpec``, ``MLAAttentionSpec``, ``SlidingWindowSpec``, ``MambaSpec``, ...;
            ``Uniform:`` in front when layers of different page sizes share one table).
        layers: number of layers of the whole model in the group.
        layers_per_rank: the same for each pipeline rank.
        block_size: tokens of a block.
        page_size_bytes: bytes of a block of one layer (of all layers for ``Uniform:``).
    """

    kind: str
    layers: int
    layers_per_rank: tuple[int, ...]
    block_size: int
    page_size_bytes: int


@dataclass(frozen=True)
class KvCapacity:
    """What vLLM prints at a length.

    Attributes:
        max_model_len: the length the rest is about.
        num_gpu_blocks: of the smallest rank.
        kv_cache_tokens: "GPU KV cache size: N tokens".
        max_concurrency: "Maximum concurrency for L tokens per request", unrounded.
        printed_concurrency: the same as printed (``1.36x``).
        needed_bytes: what one request of that length needs on the rank that needs most.
        fits: vLLM would start with it.
    """

    max_model_len: int
    num_gpu_blocks: int
    kv_cache_tokens: int
    max_concurrency: float
    printed_concurrency: str
    needed_bytes: int
    fits: bool


@dataclass(frozen=True)
class KvPlan:
    """The KV cache of one engine, ready to be asked about any amount of memory.

    Attributes:
        model: the parsed model configuration.
        engine: the resolved engine settings.
        groups: vLLM's cache groups.
        bytes_per_block: bytes of one block on each pipeline rank.
        kv_bytes_per_token: bytes that one more token of a long request takes on each pipeline rank (GPU).
        fixed_bytes_per_request: bytes that a request takes whatever its length (states, full windows), per rank.
        notes: statements a reader must know (nearest release used, fallback for an unknown architecture, ...).
    """

    model: Any
    engine: Engine
    groups: tuple[KvGroup, ...]
    bytes_per_block: tuple[int, ...]
    kv_bytes_per_token: tuple[float, ...]
    fixed_bytes_per_request: tuple[float, ...]
    notes: tuple[str, ...]

    def num_gpu_blocks(self, available_bytes: AvailableBytes) -> int:
        """Blocks of the smallest rank.

        Raises:
            VllmHostError: ``bad_value`` for negative memory or a wrong number of ranks.
        """
        raise NotImplementedError

    def need_bytes(self, max_model_len: int) -> tuple[int, ...]:
        """Bytes that one request of a length needs on each rank."""
        raise NotImplementedError

    def max_model_len_fit(self, available_bytes: AvailableBytes, capped: bool = True) -> int:
        """The largest length with which vLLM starts; 0 if none. ``capped``: not above the model's own length."""
        raise NotImplementedError

    def capacity(self, available_bytes: AvailableBytes, max_model_len: Optional[int] = None) -> KvCapacity:
        """Blocks, tokens and concurrency at a length (default: the engine's max_model_len)."""
        raise NotImplementedError


def plan_kv_cache(
    config: Mapping[str, Any],
    hf_quant_config: Optional[Mapping[str, Any]] = None,
    engine_args: Optional[Mapping[str, Any]] = None,
    vllm_version: str = "0.32.0",
    gpu: Optional[Gpu] = None,
    env: Optional[Mapping[str, str]] = None,
    packages: Sequence[str] = (),
) -> KvPlan:
    """Resolve a model and its options to the KV cache that vLLM would build.

    Args:
        config: config.json as a dict.
        hf_quant_config: hf_quant_config.json as a dict, if there is one.
        engine_args: vLLM's options by their snake_case names.
        vllm_version: ``0.32.0``.
        gpu: the device (default: an unknown CUDA GPU).
        env: VLLM_* variables.
        packages: optional Python packages of the release that change vLLM's choice of backend (``flashinfer``, ``deep_gemm``).

    Raises:
        VllmHostError: ``bad_config``, ``bad_engine_args``, ``unsupported``: with the key and a remedy.
    """
    raise NotImplementedError
