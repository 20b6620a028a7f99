# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers that share a block table: vLLM's grouping of a model's caches (v1/core/kv_cache_utils.py of 0.32.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import VllmHostError
from .kv_specs import (
    CHUNKED,
    FULL,
    MAMBA,
    MLA,
    SLIDING,
    KvSpec,
    RequestLimits,
    can_merge,
    ceil_div,
    distinct,
    is_uniform_type,
)


@dataclass(frozen=True)
class Group:
    """Layers with one block table.

    Attributes:
        specs: layer number (in order of creation) -> its cache.
        uniform_type: the layers differ in their pages.
    """

    specs: Mapping[int, KvSpec]
    uniform_type: bool = False

    @property
    def first(self) -> KvSpec:
        """The layer that stands for the group."""
        return next(iter(self.specs.values()))

    @property
    def kind(self) -> str:
        """vLLM's class name, ``Uniform:`` in front for layers of differing pages."""
        return ("Uniform:" if self.uniform_type else "") + self.first.kind

    @property
    def page_size_bytes(self) -> int:
        """Bytes of a block: of one layer, of all when they differ."""
        if self.uniform_type:
            return sum(spec.page_size_bytes for spec in self.specs.values())
        return self.first.page_size_bytes

    def blocks_needed(self, max_model_len: int, limits: RequestLimits) -> int:
        """Blocks that one request holds in this group."""
        if self.uniform_type:
            return max(spec.blocks_needed(max_model_len, limits) for spec in distinct(self.specs.values()))
        return self.first.blocks_needed(max_model_len, limits)

    def on_rank(self, layers: frozenset[int]) -> Group:
        """The part of the group that a pipeline rank has (possibly empty of layers)."""
        return Group({key: spec for key, spec in self.specs.items() if key in layers}, self.uniform_type)


def _promote_local(specs: dict[int, KvSpec]) -> dict[int, KvSpec]:
    """Windows and chunks kept in full, as vLLM does without the hybrid manager."""
    values = list(specs.values())
    if can_merge(values) or is_uniform_type(values):
        return specs
    if not any(spec.kind in (FULL, MLA) for spec in values):
        raise VllmHostError(
            "unsupported",
            "vllm_engine_args.disable_hybrid_kv_cache_manager needs at least one layer with full attention in this model; leave it out.",
            key="disable_hybrid_kv_cache_manager",
        )
    block_sizes = {spec.block_size for spec in values if spec.kind in (FULL, MLA)}
    in_full: dict[int, KvSpec] = {}
    for spec in {id(spec): spec for spec in values}.values():
        if spec.kind in (SLIDING, CHUNKED):
            block_size = next(iter(block_sizes)) if len(block_sizes) == 1 else spec.block_size
            in_full[id(spec)] = replace(spec, kind=FULL, block_size=block_size, extra_retained_tokens=0)
    promoted = {key: in_full.get(id(spec), spec) for key, spec in specs.items()}
    values = list(promoted.values())
    if not (can_merge(values) or is_uniform_type(values)):
        raise VllmHostError(
            "unsupported",
            "This model keeps recurrent states or differing windows: vLLM refuses"
            " vllm_engine_args.disable_hybrid_kv_cache_manager for it; leave it out.",
            key="disable_hybrid_kv_cache_manager",
        )
    return promoted


def _unify_page_sizes(specs: dict[int, KvSpec]) -> dict[int, KvSpec]:
    """Bring all layers to the largest page: more tokens a block where that divides, else padding."""
    largest = max(spec.page_size_bytes for spec in distinct(specs.values()))
    unified = {}
    done: dict[int, KvSpec] = {}
    for key, spec in specs.items():
        if id(spec) in done:
            unified[key] = done[id(spec)]
            continue
        original, page = spec, spec.page_size_bytes
        if page != largest:
            if spec.kind == MAMBA:
                spec = replace(spec, page_size_padded=largest)
            elif largest % page == 0 and spec.page_size_padded is None:
                spec = spec.with_block_size(spec.block_size * (largest // page))
            elif spec.kind != MLA:
                spec = replace(spec, page_size_padded=largest)
            else:
                raise VllmHostError(
                    "unsupported",
                    "vLLM cannot bring the pages of this model's MLA layers and its other layers to one size.",
                    key="layer_types",
                )
        unified[key] = done[id(original)] = spec
    return unified


def _buckets(specs: Mapping[int, KvSpec]) -> list[list[int]]:
    """Layers of one kind, in order of their first appearance."""
    by_object: dict[int, list[int]] = {}
    for key, spec in specs.items():
        by_object.setdefault(id(spec), []).append(key)
    by_spec: dict[KvSpec, list[int]] = {}
    for keys in by_object.values():
        by_spec.setdefault(specs[keys[0]], []).extend(keys)
    buckets: list[tuple[list[int], list[KvSpec]]] = []
    for spec, keys in by_spec.items():
        for names, merged in buckets:
            if merged[0].kind == spec.kind and can_merge([*merged, spec]):
                names.extend(keys)
                merged.append(spec)
                break
        else:
            buckets.append((list(keys), [spec]))
    return [names for names, _merged in buckets]


def _equal_groups(specs: Mapping[int, KvSpec], padding: float) -> list[Group]:
    """Groups of (almost) equal size, so that all blocks are of one size."""
    buckets = _buckets(specs)
    smallest, largest = min(map(len, buckets)), max(map(len, buckets))
    size = largest if largest < smallest * padding else smallest
    groups = []
    for keys in buckets:
        count = ceil_div(len(keys), size)
        for index in range(count):
            groups.append(Group({key: specs[key] for key in keys[index::count]}))
    return groups


def group_layers(specs: Sequence[KvSpec], disable_hybrid: bool, padding: float) -> list[Group]:
    """vLLM's groups of a whole model (all pipeline ranks).

    Args:
        specs: of every layer that keeps a cache, in order of creation.
        disable_hybrid: the hybrid manager is off: windows are kept in full.
        padding: groups are as large as the largest bucket when that is below this many times the smallest.

    Raises:
        VllmHostError: ``unsupported`` for mixtures that vLLM refuses.
    """
    numbered = dict(enumerate(specs))
    if not numbered:
        return []
    if disable_hybrid:
        numbered = _promote_local(numbered)
    values = list(numbered.values())
    if can_merge(values):
        return [Group(numbered)]
    if is_uniform_type(values):
        return [Group(numbered, uniform_type=True)]
    return _equal_groups(_unify_page_sizes(numbered), padding)


def bytes_per_block(groups: Sequence[Group], rank_layers: frozenset[int]) -> int:
    """Bytes of one block on a pipeline rank: those of its largest group."""
    return max(
        sum(spec.block_stride_bytes for key, spec in group.specs.items() if key in rank_layers) for group in groups
    )
