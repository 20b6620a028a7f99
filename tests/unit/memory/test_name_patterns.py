# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expressions of strangers: Python's own answer, in bounded time."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.name_patterns import (
    Effort,
    PatternTooHard,
    compiled,
    matches,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.quant_formats import QuantScheme, quant_scheme
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = (
    "model.layers.0.self_attn.q_proj",
    "model.layers.59.mlp.experts.*.up_proj",
    "language_model.model.layers.12.mlp.gate",
    "vision_tower.blocks.3.mlp.fc1",
    "lm_head",
    "aaaaaaaaaaaaaaaaaaaa",
    "",
)
WRITTEN = (
    r".*mlp\.gate$",
    r".*lm_head",
    r"^vision_tower.*",
    r"(?!.*experts).*",
    r"(?=.*mlp)model.*?gate\Z",
    r".*(q|k|v|o)_proj$",
    r".*\.(?:up|down)_proj",
    r"(?P<root>language_model\.)?model\.layers\.(0|1|2|12)\..*",
    r"[^.]+\.layers\.[0-9]{1,2}\..*proj\b",
    r"(?i)LM_[A-Z]+",
    r"a{,3}|x{}|[]b]",
    r"a{20}$",
    r"a{21}",
    r"a{2,}b?$|\w+_\D\S*",
    r"",
)


@pytest.mark.parametrize("pattern", WRITTEN)
def test_the_answer_is_pythons_own(pattern: str) -> None:
    assert [matches(pattern, name) for name in NAMES] == [re.match(pattern, name) is not None for name in NAMES]


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\.", r"\w", ""]),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map("(%s|%s)".__mod__),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{1,2}", "{2}"])).map("(?:%s)%s".__mod__),
            inner.map("(?!{})".format),
        ),
        max_leaves=6,
    ),
    st.text("ab.", max_size=6),
)
def test_any_expression_has_pythons_answer(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.match(pattern, text) is not None)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a+)+b", "(a|a)*b", "(a|aa)+b", "(a?){50}a{50}b", "(.*)*b", ".*.*.*.*.*.*.*.*b", "((a*)*)*b"]
)
def test_an_expression_that_goes_back_and_forth_ends_at_once(pattern: str) -> None:
    began = time.monotonic()
    assert matches(pattern, "a" * 200 + "!") is False
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "not understood"),
        (r"(?<=a)b", "not understood"),
        ("x" * 1001, "more than 1000 characters"),
        ("(" * 400 + ")" * 400, "too deep"),
        ("a{99999999999}", "counts too far"),
    ],
)
def test_what_is_not_read_says_so(pattern: str, why: str) -> None:
    with pytest.raises(PatternTooHard, match=why):
        compiled(pattern)


def test_the_effort_for_all_names_has_an_end() -> None:
    with pytest.raises(PatternTooHard, match="too long"):
        matches(".*b", "a" * 200, Effort(100))
    scheme = QuantScheme("fp8", lambda out, into: [], ("re:.*b",), Effort(100))
    with pytest.raises(VllmHostError, match=r"expression 're:\.\*b' takes too long") as caught:
        scheme.applies_to("a" * 200)
    assert caught.value.code == "bad_config"


def declared(*ignored: Any) -> Any:
    return quant_scheme({"quant_method": "fp8", "ignored_layers": list(ignored)})


def test_a_hostile_list_of_a_checkpoint() -> None:
    began = time.monotonic()
    scheme = declared("re:(a+)+$", "*a*a*a*a*a*a*a*a*a*b")
    assert scheme.applies_to("a" * 100 + "!") and not scheme.applies_to("aaa")
    assert time.monotonic() - began < 1
    with pytest.raises(VllmHostError, match="at most 1000 expressions"):
        declared(*["re:x"] * 1001)
    with pytest.raises(VllmHostError, match="ignored_layers must be a list of names and sound expressions"):
        declared(r"re:(a)\1")
