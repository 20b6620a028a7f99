# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How vLLM's KV-cache arithmetic differs between releases.

One row a release from which something changed, oldest first; a row names only what changed and holds until the next one.

Sources: the wheels of 0.15.1, 0.16.0, 0.17.1, 0.18.1, 0.19.0, 0.19.1, 0.20.2, 0.21.0, 0.22.1, 0.23.0, 0.24.0, 0.25.1, 0.26.0,
0.27.1, 0.28.0, 0.29.0, 0.30.0, 0.31.0 and 0.32.0, each read in v1/core/kv_cache_utils.py, v1/kv_cache_interface.py,
config/cache.py, config/model.py, engine/arg_utils.py, platforms/ and model_executor/models/config.py. Where the first patch
release of a minor one was not read, the row counts from its .0.
"""

from __future__ import annotations

from typing import Any

#: The oldest and the newest release whose rules are known.
FIRST_KNOWN = "0.15.0"
LAST_KNOWN = "0.33.0"

#: What the keys of a row mean:
#:   hybrid_need: blocks of one request are those of the first cache group only, or the sum over the groups.
#:   printed_tokens: "GPU KV cache size" is blocks // groups * block size, or int(concurrency * max_model_len).
#:   group_padding: the largest bucket of layers is the group size when below this many times the smallest.
#:   counts_batches_in_flight: windows keep one batch, or one for each batch in flight (2 with asynchronous scheduling).
#:   null_block: one block is never given to a request, and the start-up check knows it.
#:   hybrid_prefix_caching: prefix caching is on by default for models with recurrent states.
#:   mamba_mode: how states are kept with prefix caching: every block ("all", where the model can), or the last two ("align").
#:   prefill_checkpoint: Mamba 2 holds one state more during a prefill.
#:   hybrid_mla_block: blocks of MLA models with recurrent states are a multiple of it.
#:   aligns_mixed_types: blocks grow until the quantized layers' page covers that of layers left in the model's type.
#:   big_gpu_tier: GPUs of 160 GiB and more get 16,384 batched tokens.
#:   gpu_memory_utilization: the default of the option.
RELEASES: tuple[dict[str, Any], ...] = (
    {
        "since": "0.15.0",
        "hybrid_need": "first_group",
        "printed_tokens": "blocks_per_group",
        "group_padding": 1.25,
        "counts_batches_in_flight": False,
        "null_block": False,
        "hybrid_prefix_caching": False,
        "mamba_mode": "all",
        "prefill_checkpoint": False,
        "hybrid_mla_block": 64,
        "aligns_mixed_types": False,
        "big_gpu_tier": False,
        "gpu_memory_utilization": 0.9,
    },
    {"since": "0.18.0", "group_padding": 1.5},
    {"since": "0.19.0", "hybrid_need": "sum"},
    {"since": "0.20.0", "printed_tokens": "concurrency", "hybrid_mla_block": 16, "gpu_memory_utilization": 0.92},
    {"since": "0.25.0", "aligns_mixed_types": True},
    {"since": "0.26.0", "counts_batches_in_flight": True, "hybrid_prefix_caching": True},
    {"since": "0.27.0", "hybrid_mla_block": 128},
    {"since": "0.28.0", "mamba_mode": "align", "big_gpu_tier": True},
    {"since": "0.29.0", "null_block": True, "prefill_checkpoint": True},
)
