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
from .compute_capability import parse_capability
from .gpu_products_data import PRODUCTS, Product

GB = 10**9
_SHORTHAND = re.compile(r"\s*(?:(\d{1,9})\s*[xX*]\s*)?(.+?)\s*")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(GB|GiB|G)", re.IGNORECASE)


@dataclass(frozen=True)
class InventoryGpu:
    """One GPU.

    Attributes:
        name: product name; empty if it is not known.
        total_bytes: NVML's total.
        reserved_bytes: NVML v2's reserved; None if it is not known.
        compute_capability: None if it is not known.
        index: NVML's; None when it was described.
    """

    name: str
    total_bytes: int
    reserved_bytes: Optional[int] = None
    compute_capability: Optional[tuple[int, int]] = None
    index: Optional[int] = None


def pick_gpus(gpus: Sequence[InventoryGpu], indices: Sequence[int]) -> list[InventoryGpu]:
    """Those of ``gpus`` with these indices, all without any; described ones count from 0 on.

    Raises:
        VllmHostError: ``bad_gpus``.
    """
    by_index = {place if gpu.index is None else gpu.index: gpu for place, gpu in enumerate(gpus)}
    missing = sorted(set(indices) - set(by_index))
    if missing and gpus:
        raise VllmHostError(
            "bad_gpus",
            f"vllm_gpus asks for {', '.join(map(str, missing))}, and the GPUs are {', '.join(map(str, sorted(by_index)))}.",
            missing=missing,
            found=sorted(by_index),
        )
    return [gpu for index, gpu in by_index.items() if index in indices] if indices else list(gpus)


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
    products = _products(what)
    if not products:
        raise _bad(text)
    if len(products) > 1:
        choices = " or ".join(f"{count}x{_short(product)}" for product in products)
        raise VllmHostError(
            "bad_gpus",
            f"The description of GPUs {text[:200]!r} may mean several products: in gpus (plan_gpus in an inventory) write {choices}.",
            found=text[:200],
            choices=[product.name for product in products],
        )
    return [InventoryGpu(products[0].name, products[0].total_bytes, None, products[0].compute_capability)] * count


def _products(what: str) -> list[Product]:
    """Products whose names have the words and numbers of ``what``, in their order; one alone where it is the whole name."""
    wanted = re.sub(r"[^a-z0-9]", "", what.lower())
    if len(wanted) < 3:
        return []
    whole = [product for product in PRODUCTS if wanted == "".join(_words(_short(product)))]
    return whole or [product for product in PRODUCTS if _spells(wanted, _words(product.name))]


def _words(name: str) -> list[str]:
    """Words and numbers, each whole: an A10 is no A100, and an H20 no H200."""
    return re.findall(r"[a-z]+|[0-9]+", name.lower())


def _spells(wanted: str, words: Sequence[str]) -> bool:
    """Do some of ``words``, one after the other, make ``wanted``? People write RTX6000, RTX 6000 and rtxpro6000."""
    return not wanted or any(
        wanted.startswith(word) and _spells(wanted[len(word) :], words[place + 1 :]) for place, word in enumerate(words)
    )


def _short(product: Product) -> str:
    return product.name.replace("NVIDIA ", "")


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
        capability = parse_capability(facts["compute_capability"])
        if capability is None:
            raise _bad(dict(facts))
    index = facts.get("index")
    if isinstance(index, bool) or not isinstance(index, int):
        index = None
    return InventoryGpu(str(facts.get("name") or ""), total, reserved, capability, index)


def _bad(found: Any) -> VllmHostError:
    known = ", ".join(map(_short, PRODUCTS))
    return VllmHostError(
        "bad_gpus",
        f"{repr(found)[:200]} describes no GPUs. In gpus (plan_gpus in an inventory)"
        f" write a number and a size or product, such as 8x96GB or 2xH200 (known: {known}), or a list of"
        " dictionaries with name, total_bytes and compute_capability.",
        found=repr(found)[:200],
    )
