# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engine arguments, environment and GPU to the settings that vLLM resolves by itself before it loads a model.

Every function here is pure: dictionaries and numbers in, frozen dataclasses out. Nothing asks the network, a GPU or vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Gpu:
    """What vLLM asks of the device when it resolves defaults.

    Attributes:
        total_bytes: memory of one GPU as CUDA reports it; it only steers defaults (batched tokens, sequences).
        compute_capability: (12, 0) for SM120; None on a CPU.
        device: ``cuda`` or ``cpu``.
        name: the product name; an A100 gets smaller defaults than its memory suggests.
    """

    total_bytes: int = 0
    compute_capability: Optional[tuple[int, int]] = None
    device: str = "cuda"
    name: str = ""


@dataclass(frozen=True)
class Engine:
    """The settings of the engine that decide about the KV cache, resolved.

    Attributes:
        vllm_version: as asked for.
        release: the row of releases_data that was used.
        tensor_parallel_size, pipeline_parallel_size, data_parallel_size, decode_context_parallel_size: ranks.
        enable_expert_parallel: experts are spread over TP x DP.
        layer_partition: layers of each PP rank (VLLM_PP_LAYER_PARTITION), None for vLLM's own split.
        max_model_len: the length asked for, or the model's own.
        max_model_len_config: the model's own length (rope scaling included).
        kv_cache_dtype: as vLLM prints it (``auto`` stays ``auto`` on a 16-bit cache; ``fp8_ds_mla`` after the backend's choice).
        block_size: tokens of one block of the attention layers.
        mamba_block_size, mamba_page_size_padded, mamba_cache_mode: for models with a recurrent state, else None / ``none``.
        max_num_batched_tokens, max_num_seqs: scheduler limits.
        batches_in_flight: 2 with asynchronous scheduling, PP otherwise.
        max_in_flight_tokens: scheduled but not settled tokens (F in ../docs: sliding windows must keep them).
        max_num_encoder_input_tokens: of encoder-decoder models.
        enable_prefix_caching, disable_hybrid_kv_cache_manager: as resolved.
        num_speculative_tokens, speculative_method: 0 and None without speculation.
        attention_backends: names of the backends vLLM would choose.
    """

    vllm_version: str
    release: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    enable_expert_parallel: bool
    layer_partition: Optional[tuple[int, ...]]
    max_model_len: int
    max_model_len_config: int
    kv_cache_dtype: str
    block_size: int
    mamba_block_size: Optional[int]
    mamba_page_size_padded: Optional[int]
    mamba_cache_mode: str
    max_num_batched_tokens: int
    max_num_seqs: int
    batches_in_flight: int
    max_in_flight_tokens: int
    max_num_encoder_input_tokens: int
    enable_prefix_caching: bool
    disable_hybrid_kv_cache_manager: bool
    num_speculative_tokens: int
    speculative_method: Optional[str]
    attention_backends: tuple[str, ...]
