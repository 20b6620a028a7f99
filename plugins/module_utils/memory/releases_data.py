# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How vLLM's KV-cache arithmetic differs between releases.

One row a release from which something changed, oldest first; a row holds until the next one. Sources: ../shared facts
kv-cache.md section 5 ([read] in the source of the releases named) and vllm/v1/core/kv_cache_utils.py of 0.32.0 [ran].
"""

from __future__ import annotations

from typing import Any

#: The oldest and the newest release that was read.
FIRST_KNOWN = "0.15.0"
LAST_KNOWN = "0.33.0"

#: since: first release of the row.
#: hybrid_need: blocks of one request are those of the first cache group only, or the sum over the groups.
#: printed_tokens: "GPU KV cache size" is blocks // groups * block size, or concurrency * max_model_len.
#: counts_batches_in_flight: windows keep one batch, or one for each batch in flight (2 with asynchronous scheduling).
#: null_block: one block is never given to a request, and the start-up check knows it.
#: gpu_memory_utilization: the default of the option.
RELEASES: tuple[dict[str, Any], ...] = (
    {
        "since": "0.15.0",
        "hybrid_need": "first_group",
        "printed_tokens": "blocks_per_group",
        "counts_batches_in_flight": False,
        "null_block": False,
        "gpu_memory_utilization": 0.9,
    },
    {
        "since": "0.19.0",
        "hybrid_need": "sum",
        "printed_tokens": "blocks_per_group",
        "counts_batches_in_flight": False,
        "null_block": False,
        "gpu_memory_utilization": 0.9,
    },
    {
        "since": "0.20.0",
        "hybrid_need": "sum",
        "printed_tokens": "concurrency",
        "counts_batches_in_flight": False,
        "null_block": False,
        "gpu_memory_utilization": 0.92,
    },
    {
        "since": "0.28.0",
        "hybrid_need": "sum",
        "printed_tokens": "concurrency",
        "counts_batches_in_flight": True,
        "null_block": False,
        "gpu_memory_utilization": 0.92,
    },
    {
        "since": "0.29.0",
        "hybrid_need": "sum",
        "printed_tokens": "concurrency",
        "counts_batches_in_flight": True,
        "null_block": True,
        "gpu_memory_utilization": 0.92,
    },
)
