# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a quantized checkpoint stores one linear layer: the tensors that take the place of ``weight``.

A format is found from ``quantization_config`` (or the older ``hf_quant_config.json``); each is a function from the layer's
``(out, in)`` sizes to ``(suffix, dtype, shape)`` rows. Sources: vLLM's ``model_executor/layers/quantization`` (the
parameters that each method's ``create_weights`` registers) and the writers' documentation named at each function.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ..errors import VllmHostError
from .model_config import bad_config
from .name_patterns import Effort, PatternTooHard, compiled, matches

#: What an entry of a list of layers begins with that is an expression.
EXPRESSION = "re:"
#: Lists have a few dozen.
MOST_EXPRESSIONS = 1000

#: (suffix, safetensors dtype, shape)
Stored = tuple[str, str, tuple[int, ...]]
LinearFormat = Callable[[int, int], Sequence[Stored]]


@dataclass(frozen=True)
class QuantScheme:
    """How the linear layers of a checkpoint are stored.

    Attributes:
        name: for messages (``nvfp4``, ``fp8-block``, ``int4-packed``, ``awq``, ``gptq``, ``mxfp4``, ``none``).
        stored: rows of a quantized layer.
        ignored: patterns of layer names that stay as they are.
        effort: what may still be spent on comparing names with them.
    """

    name: str
    stored: Optional[LinearFormat]
    ignored: tuple[str, ...] = ()
    effort: Effort = field(default_factory=Effort, compare=False)

    def applies_to(self, layer: str) -> bool:
        """Is this layer quantized? ``layer`` is its full name without ``.weight``; raises VllmHostError ``bad_config`` when nobody can say."""
        return self.stored is not None and not any(_matches(pattern, layer, self.effort) for pattern in self.ignored)


def _matches(pattern: str, layer: str, effort: Effort) -> bool:
    """Writers use exact names, ``re:`` expressions, shell patterns and bare prefixes of modules."""
    if pattern.startswith(EXPRESSION):
        try:
            return matches(pattern.removeprefix(EXPRESSION), layer, effort)
        except PatternTooHard as error:
            raise bad_config(f"quantization_config: the expression {pattern[:100]!r} {error}.", "ignore") from error
    if any(character in pattern for character in "*?["):
        return fnmatch.fnmatchcase(layer, pattern) or fnmatch.fnmatchcase(layer, f"{pattern}.*")
    return (
        layer == pattern or layer.startswith(f"{pattern}.") or layer.endswith(f".{pattern}") or f".{pattern}." in layer
    )


def _nvfp4(out: int, into: int) -> list[Stored]:
    """ModelOpt NVFP4: two values a byte, an FP8 scale for 16 values, two scalars."""
    return [
        ("weight", "U8", (out, into // 2)),
        ("weight_scale", "F8_E4M3", (out, into // 16)),
        ("weight_scale_2", "F32", ()),
        ("input_scale", "F32", ()),
    ]


def _nvfp4_packed(out: int, into: int) -> list[Stored]:
    """compressed-tensors ``nvfp4-pack-quantized``."""
    return [
        ("weight_packed", "U8", (out, into // 2)),
        ("weight_scale", "F8_E4M3", (out, into // 16)),
        ("weight_global_scale", "F32", (1,)),
        ("input_global_scale", "F32", (1,)),
    ]


def _mxfp4(out: int, into: int) -> list[Stored]:
    """OCP MX: two values a byte, a power-of-two scale for 32 values."""
    return [("weight", "U8", (out, into // 2)), ("weight_scale", "U8", (out, into // 32))]


def _fp8_block(rows: int, columns: int) -> LinearFormat:
    """DeepSeek's FP8: a 32-bit scale for each block of the weight."""

    def stored(out: int, into: int) -> list[Stored]:
        return [
            ("weight", "F8_E4M3", (out, into)),
            ("weight_scale_inv", "F32", (-(-out // rows), -(-into // columns))),
        ]

    return stored


def _fp8(per_channel: bool) -> LinearFormat:
    """FP8 with one scale a tensor (ModelOpt FP8) or a row (compressed-tensors ``float-quantized``)."""

    def stored(out: int, into: int) -> list[Stored]:
        scale = ("weight_scale", "F32", (out, 1) if per_channel else ())
        return [("weight", "F8_E4M3", (out, into)), scale]

    return stored


def _int_packed(bits: int, group: int) -> LinearFormat:
    """compressed-tensors ``pack-quantized``: 32-bit words along the input, a 16-bit scale for each group."""

    def stored(out: int, into: int) -> list[Stored]:
        groups = into // group if group > 0 else 1
        return [
            ("weight_packed", "I32", (out, into * bits // 32)),
            ("weight_scale", "BF16", (out, groups)),
            ("weight_shape", "I32", (2,)),
        ]

    return stored


def _int8(out: int, into: int) -> list[Stored]:
    """compressed-tensors ``int-quantized``: a byte a value, a scale a row."""
    return [("weight", "I8", (out, into)), ("weight_scale", "BF16", (out, 1))]


def _awq(bits: int, group: int) -> LinearFormat:
    """AWQ: transposed, words along the output."""

    def stored(out: int, into: int) -> list[Stored]:
        groups = into // group if group > 0 else 1
        return [
            ("qweight", "I32", (into, out * bits // 32)),
            ("qzeros", "I32", (groups, out * bits // 32)),
            ("scales", "F16", (groups, out)),
        ]

    return stored


def _gptq(bits: int, group: int) -> LinearFormat:
    """GPTQ: transposed, words along the input, an index of groups."""

    def stored(out: int, into: int) -> list[Stored]:
        groups = into // group if group > 0 else 1
        return [
            ("qweight", "I32", (into * bits // 32, out)),
            ("qzeros", "I32", (groups, out * bits // 32)),
            ("scales", "F16", (groups, out)),
            ("g_idx", "I32", (into,)),
        ]

    return stored


def quant_scheme(quantization: Optional[Mapping[str, Any]]) -> Optional[QuantScheme]:
    """The scheme that a checkpoint declares.

    Args:
        quantization: ``quantization_config`` as vLLM sees it (``ModelConfig.quantization``); ModelOpt's may be nested.

    Returns:
        A scheme (``none`` for a plain checkpoint), or None for a method that this table does not know.
    """
    declared: Mapping[str, Any] = quantization or {}
    inner = declared.get("quantization")
    if isinstance(inner, Mapping):
        declared = {**declared, **inner}
    if not declared:
        return QuantScheme("none", None)
    ignored = _ignored(declared)
    method = str(declared.get("quant_method", "")).lower()
    if method.startswith("modelopt"):
        return _modelopt(declared, ignored)
    if method == "fp8":
        block = declared.get("weight_block_size")
        stored = _fp8_block(*_block(block, "weight_block_size")) if block else _fp8(per_channel=False)
        return QuantScheme("fp8-block" if block else "fp8", stored, (*ignored, "lm_head", "re:.*mlp\\.gate$"))
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed_tensors(declared, ignored)
    if method in ("awq", "awq_marlin"):
        return QuantScheme(
            "awq",
            _awq(*_bits_and_group(declared, "bits", 128)),
            (*ignored, "lm_head", "re:.*\\.gate$"),
        )
    if method in ("gptq", "gptq_marlin"):
        return QuantScheme(
            "gptq",
            _gptq(*_bits_and_group(declared, "bits", 128)),
            (*ignored, "lm_head", "re:.*\\.gate$"),
        )
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return QuantScheme("mxfp4", _mxfp4, ignored)
    return None


def _ignored(declared: Mapping[str, Any]) -> tuple[str, ...]:
    for key in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"):
        names = declared.get(key)
        if names:
            names = [names] if isinstance(names, str) else names
            if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
                raise _bad(key, names, "a list of names")
            expressions = [name for name in names if name.startswith(EXPRESSION)]
            if len(expressions) > MOST_EXPRESSIONS:
                raise _bad(
                    key, f"{len(expressions):,} of them", f"a list of names and at most {MOST_EXPRESSIONS} expressions"
                )
            for name in expressions:
                _require_expression(name, key)
            return tuple(names)
    return ()


def _require_expression(pattern: str, key: str) -> None:
    try:
        compiled(pattern.removeprefix(EXPRESSION))
    except (re.error, PatternTooHard) as error:
        raise _bad(key, pattern, f"a list of names and sound expressions (this one: {error})") from error


def _block(found: Any, key: str) -> tuple[int, int]:
    """Rows and columns of a block of weights."""
    sound = isinstance(found, (list, tuple)) and len(found) == 2
    if not sound or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in found):
        raise _bad(key, found, "two whole numbers")
    return found[0], found[1]


def _bits_and_group(declared: Mapping[str, Any], bits_key: str, group: int) -> tuple[int, int]:
    """Bits of a weight, and weights that share a scale (none or -1: a whole row)."""
    bits = declared.get(bits_key, 4)
    found = declared.get("group_size", group)
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 16:
        raise _bad(bits_key, bits, "a whole number from 1 to 16")
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise _bad("group_size", found, "a whole number")
    return bits, found or -1


def _mapping(declared: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = declared.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise _bad(key, found, "a mapping")
    return found or {}


def _bad(key: str, found: Any, expected: str) -> VllmHostError:
    return bad_config(f"quantization_config: {key} must be {expected}, not {str(found)[:100]!r}.", key)


def _modelopt(declared: Mapping[str, Any], ignored: tuple[str, ...]) -> Optional[QuantScheme]:
    algorithm = str(declared.get("quant_algo") or "").upper()
    if algorithm in ("NVFP4", "W4A16_NVFP4", "NVFP4_AWQ"):
        return QuantScheme("nvfp4", _nvfp4, ignored)
    if algorithm == "FP8":
        return QuantScheme("fp8", _fp8(per_channel=False), ignored)
    if not algorithm:
        return QuantScheme("none", None)
    return None


def _compressed_tensors(declared: Mapping[str, Any], ignored: tuple[str, ...]) -> Optional[QuantScheme]:
    groups = _mapping(declared, "config_groups")
    first = _mapping(groups, next(iter(groups), "config_groups"))
    weights = _mapping(first, "weights")
    bits, group = _bits_and_group(weights, "num_bits", -1)
    layout = first.get("format") or declared.get("format")
    if layout == "pack-quantized":
        return QuantScheme("int4-packed" if bits == 4 else "int8-packed", _int_packed(bits, group), ignored)
    if layout == "nvfp4-pack-quantized":
        return QuantScheme("nvfp4", _nvfp4_packed, ignored)
    if layout == "float-quantized":
        block = weights.get("block_structure")
        blocks = isinstance(block, (list, tuple))
        stored = _fp8_block(*_block(block, "block_structure")) if blocks else _fp8(per_channel=True)
        return QuantScheme("fp8", stored, ignored)
    if layout == "int-quantized":
        return QuantScheme("int8", _int8, ignored)
    return None
