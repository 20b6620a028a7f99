# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs to plan for: as gpu_info found them, or as somebody describes them ("8x96GB", "4x H200", "2xRTX PRO 6000")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from ..errors import VllmHostError
from .gpu_products_data import PRODUCTS

GB = 10**9
_SHORTHAND = re.compile(r"\s*(?:(\d{1,9})\s*[xX*]\s*)?(.+?)\s*")
_CAPABILITY = re.compile(r"(\d{1,3})(?:\.(\d{1,3}))?")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(GB|GiB|G)", re.IGNORECASE)


@dataclass(frozen=True)
class InventoryGpu:
    """One GPU.

    Attributes:
        name: product name; empty if it is not known.
        total_bytes: NVML's total.
        reserved_bytes: NVML v2's reserved; None if it is not known.
        compute_capability: None if it is not known.
    """

    name: str
    total_bytes: int
    reserved_bytes: Optional[int] = None
    compute_capability: Optional[tuple[int, int]] = None


def inventory_gpus(described: Union[str, Sequence[Any], None]) -> list[InventoryGpu]:
    """GPUs from a description.

    Args:
        described: ``"8x96GB"``, ``"8xRTX PRO 6000"``, or a list of dictionaries as ``gpu_info`` returns them (or of such strings).

    Raises:
        VllmHostError: ``bad_gpus``.
    """
    if isinstance(described, str):
        return _from_text(described) if described.strip() else []
    if described is None:
        return []
    if not isinstance(described, (list, tuple)):
        raise _bad(described)
    found: list[InventoryGpu] = []
    for item in described:
        if isinstance(item, str):
            found += _from_text(item)
        elif isinstance(item, Mapping):
            found.append(_from_facts(item))
        else:
            raise _bad(item)
    return found


def _from_text(text: str) -> list[InventoryGpu]:
    match = _SHORTHAND.fullmatch(text)
    if match is None:
        raise _bad(text)
    count, what = int(match.group(1) or 1), match.group(2)
    if not 1 <= count <= 1024:
        raise _bad(text)
    size = _SIZE.fullmatch(what)
    if size:
        return [_of_size(float(size.group(1)), text)] * count
    wanted = re.sub(r"[^a-z0-9]", "", what.lower())
    for product in PRODUCTS:
        if len(wanted) >= 3 and wanted in re.sub(r"[^a-z0-9]", "", product.name.lower()):
            return [InventoryGpu(product.name, product.total_bytes, None, product.compute_capability)] * count
    raise _bad(text)


def _of_size(size: float, text: str) -> InventoryGpu:
    """The product that is sold with this size, else a GPU of so many GiB of unknown kind."""
    for product in PRODUCTS:
        if product.sold_as_gb == size:
            return InventoryGpu(product.name, product.total_bytes, None, product.compute_capability)
    if not 1 <= size <= 4096:
        raise _bad(text)
    return InventoryGpu("", int(size * 2**30))


def _from_facts(facts: Mapping[str, Any]) -> InventoryGpu:
    total = facts.get("total_bytes")
    if isinstance(total, bool) or not isinstance(total, int) or total <= 0:
        raise _bad(dict(facts))
    reserved = facts.get("reserved_bytes")
    if reserved is not None and (isinstance(reserved, bool) or not isinstance(reserved, int)):
        raise _bad(dict(facts))
    capability = None
    if facts.get("compute_capability"):
        match = _CAPABILITY.fullmatch(str(facts["compute_capability"]))
        if match is None:
            raise _bad(dict(facts))
        capability = (int(match[1]), int(match[2] or 0))
    return InventoryGpu(str(facts.get("name") or ""), total, reserved, capability)


def _bad(found: Any) -> VllmHostError:
    known = ", ".join(product.name.replace("NVIDIA ", "") for product in PRODUCTS)
    return VllmHostError(
        "bad_gpus",
        f"{repr(found)[:200]} describes no GPUs. Write a number and a size or product, such as 8x96GB or 2xH200 (known: {known}), or a list of"
        " dictionaries with name, total_bytes and compute_capability.",
        found=repr(found)[:200],
    )
