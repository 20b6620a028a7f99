"""EnvironmentFile: what is written is what systemd reads. tests of molecule/serve ask the real systemd about the same values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.environment_file import (
    parse_environment_file,
    render_environment_file,
)
from hypothesis import given
from hypothesis import strategies as st

HARD_VALUES = json.loads((Path(__file__).parent / "data/environment_values.json").read_text())
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


def systemd_reads(text: str) -> dict[str, str]:
    """The part of systemd's reader that double-quoted values meet (env-file.c), written down from its manual, character by character."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        name, _equals, rest = text[position:].partition("=")
        assert rest[0] == '"'
        value, index = "", 1
        while rest[index] != '"':
            if rest[index] == "\\":
                index += 1
                if rest[index] == "\n":
                    pass  # a continued line
                elif rest[index] in '"\\`$':
                    value += rest[index]
                else:
                    value += "\\" + rest[index]
            else:
                value += rest[index]
            index += 1
        assert rest[index + 1] == "\n"
        found[name] = value
        position += len(name) + 1 + index + 2
    return found


@given(st.dictionaries(NAMES, TEXT, max_size=4))
def test_every_text_arrives(environment: dict[str, str]) -> None:
    text = render_environment_file(environment)
    assert systemd_reads(text) == environment
    assert parse_environment_file(text) == environment


@pytest.mark.parametrize("name", sorted(HARD_VALUES))
def test_hard_values(name: str) -> None:
    assert systemd_reads(render_environment_file({name: HARD_VALUES[name]})) == {name: HARD_VALUES[name]}


def test_numbers_and_booleans_as_vllm_reads_them() -> None:
    assert render_environment_file({"B": True, "A": 1, "C": False}) == 'A="1"\nB="1"\nC="0"\n'


@pytest.mark.parametrize(
    "environment",
    [{"1A": "x"}, {"A B": "x"}, {"A": None}, {"A": {}}, {"A": "se\x00cret"}, {"A": "se\rcret"}, {"A": "se\ud800cret"}],
)
def test_what_systemd_would_drop_is_refused_without_showing_it(environment: dict[str, str]) -> None:
    with pytest.raises(VllmHostError) as raised:
        render_environment_file(environment)
    assert raised.value.code == "environment_invalid"
    assert "cret" not in raised.value.message + str(raised.value.details)
