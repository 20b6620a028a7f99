# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one layer's cache is on one GPU: block size, page, and the blocks that a request of a given length holds.

Mirrors vllm 0.32.0 v1/kv_cache_interface.py. Units: bytes and tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Optional, cast

FULL = "FullAttentionSpec"
MLA = "MLAAttentionSpec"
SLIDING = "SlidingWindowSpec"
CHUNKED = "ChunkedLocalAttentionSpec"
MAMBA = "MambaSpec"
CROSS = "CrossAttentionSpec"


def ceil_div(value: int, by: int) -> int:
    """Smallest whole number of ``by`` that covers ``value``."""
    return -(-value // by)


@dataclass(frozen=True)
class RequestLimits:
    """What besides its length decides about the blocks of a request.

    Attributes:
        max_in_flight_tokens: tokens scheduled but not settled, which windows must keep besides.
        max_num_encoder_input_tokens: of encoder-decoder models.
        decode_context_parallel_size: ranks over which full attention spreads its tokens.
        mamba_cache_mode: how recurrent states are kept: ``none`` (one), ``align`` (at block boundaries), ``all`` (each block).
    """

    max_in_flight_tokens: int
    max_num_encoder_input_tokens: int = 0
    decode_context_parallel_size: int = 1
    mamba_cache_mode: str = "none"


@dataclass(frozen=True)
class KvSpec:
    """The cache of one layer on one GPU; equal specs can share a group.

    Attributes:
        kind: vLLM's class name.
        block_size: tokens of a block.
        bytes_per_token: of an attention layer, unpadded; 0 for a state.
        state_bytes: of a recurrent state, unpadded.
        page_size_padded: bytes to which the page is stretched, None for none.
        window: of a sliding or chunked layer (kept by full attention too when the hybrid manager is off).
        chunk: the same for chunks.
        extra_retained_tokens: behind a sliding window, for multi-module speculation.
        fixed_blocks: blocks that a recurrent state needs without prefix caching; align_blocks with it.
        role: tells specs apart that must not merge (sparse attention and its indexer, quantization of single layers).
        stride_alignment: bytes of which the distance of two blocks must be a multiple.
        replicated: every decode-context rank keeps all tokens.
    """

    kind: str
    block_size: int
    bytes_per_token: int = 0
    state_bytes: int = 0
    page_size_padded: Optional[int] = None
    window: Optional[int] = None
    chunk: Optional[int] = None
    extra_retained_tokens: int = 0
    fixed_blocks: int = 0
    align_blocks: int = 0
    role: str = ""
    num_kv_heads: int = 0
    stride_alignment: int = 1
    replicated: bool = False

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes that a block of this layer is filled with."""
        return self.state_bytes if self.kind == MAMBA else self.block_size * self.bytes_per_token

    @property
    def page_size_bytes(self) -> int:
        """Bytes that a block of this layer takes."""
        return self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded

    @property
    def block_stride_bytes(self) -> int:
        """Distance of two blocks where each layer has its own region."""
        return ceil_div(self.page_size_bytes, self.stride_alignment) * self.stride_alignment

    def with_block_size(self, block_size: int) -> KvSpec:
        """The same layer with other blocks."""
        return replace(self, block_size=block_size)

    def blocks_needed(self, max_model_len: int, limits: RequestLimits) -> int:
        """Blocks that one request of a length may hold at once."""
        if self.kind == MAMBA:
            if limits.mamba_cache_mode == "all":
                return ceil_div(max_model_len, self.block_size) + self.fixed_blocks - 1
            return self.align_blocks if limits.mamba_cache_mode == "align" else self.fixed_blocks
        if self.kind == SLIDING:
            kept = min(
                cast(int, self.window) - 1 + self.extra_retained_tokens + limits.max_in_flight_tokens, max_model_len
            )
            return ceil_div(kept, self.block_size) + 1  # a window may begin inside a block
        if self.kind == CHUNKED:
            return ceil_div(min(cast(int, self.chunk) + limits.max_in_flight_tokens, max_model_len), self.block_size)
        if self.kind == CROSS:
            return ceil_div(limits.max_num_encoder_input_tokens, self.block_size)
        shards = 1 if self.replicated else limits.decode_context_parallel_size
        return ceil_div(ceil_div(max_model_len, shards), self.block_size)


def distinct(specs: Iterable[KvSpec]) -> list[KvSpec]:
    """The different ones of many specs, in order; equal layers share one object, which makes this cheap."""
    return list(dict.fromkeys({id(spec): spec for spec in specs}.values()))


def can_merge(specs: Iterable[KvSpec]) -> bool:
    """Whether vLLM describes these layers by one spec.

    Full attention merges over differing windows (they only matter for compute once the hybrid manager is off); all else
    must be equal.
    """
    specs = distinct(specs)
    if len(specs) == 1:
        return True
    if all(spec.kind == FULL for spec in specs):
        windows = {spec.window for spec in specs if spec.window is not None}
        chunks = {spec.chunk for spec in specs if spec.chunk is not None}
        plain = {replace(spec, window=None, chunk=None) for spec in specs}
        return len(plain) == 1 and len(windows) <= 1 and len(chunks) <= 1 and not (windows and chunks)
    return False


def is_uniform_type(specs: Iterable[KvSpec]) -> bool:
    """Whether all layers need the same number of slots, so that one block table serves them whatever their widths."""
    specs = distinct(specs)
    first = specs[0]
    if len({(spec.block_size, spec.replicated) for spec in specs}) > 1:
        return False
    if first.kind in (FULL, MLA):
        return all(spec.kind in (FULL, MLA) for spec in specs)
    if first.kind == MAMBA:
        return all(
            spec.kind == MAMBA
            and spec.page_size_bytes == first.page_size_bytes
            and (spec.fixed_blocks, spec.align_blocks) == (first.fixed_blocks, first.align_blocks)
            for spec in specs
        )
    return all(spec.kind == first.kind and (spec.window, spec.chunk) == (first.window, first.chunk) for spec in specs)
