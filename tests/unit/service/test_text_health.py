"""Texts of working and of broken models."""

from __future__ import annotations

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.text_health import (
    language_of,
    leaked_markup,
    unhealthy,
)

STORY = """The harbour wakes before the sun does. Fishermen mend their nets under yellow lamps, and the first gulls argue about yesterday's
bread. By eight the square is full: a baker shouts his prices, two children race a dog along the quay, and an old woman counts coins for a
newspaper that she will not read. In the afternoon the wind turns and brings the smell of rain from the hills. Boats return one after the
other, low in the water, and their skippers trade jokes across the gap. When it gets dark the lights come on again, one by one, and somebody
plays the accordion badly but with great confidence until the rain finally begins and everyone runs for the arcades."""


@pytest.mark.parametrize(
    "text",
    [
        "Paris",
        "12",
        STORY,
        "Anna has 3 + 4 = 7 apples.\n\n7 - 2 = 5\n\n#### 5",
        "| a | b |\n|---|---|\n|   |   |\n" + "-" * 40,
        "Der Himmel ist blau, weil Licht gestreut wird. 空は青い。",
        "Sure! Here is a list:\n- one\n- two\n- three\n- four\n- five",
        "ha ha ha ha",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    ],
)
def test_language(text: str) -> None:
    assert unhealthy(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  \n ", "empty"),
        ("!!!!!!!!!!!!!!!!", "'!' is repeated 16 times"),
        ("The answer is " + "0" * 40, "'0' is repeated"),
        ("The sea is deep. " * 12, "repeats itself"),
        ("Well, " + "la femme au martyre, " * 8, "repeats itself"),
        (
            "I think that the cat sat on the mat. " + "The cat sat and then the dog sat and " * 30 + "stop",
            "repeats itself",
        ),
        ("Hello \ufffd\ufffd world", "no text"),
        ("Hello \x00\x01 world", "control"),
    ],
)
def test_broken(text: str, why: str) -> None:
    assert why in (unhealthy(text) or "")


@pytest.mark.parametrize(
    ("text", "markup"), [("Paris<|im_end|>", "<|im_end|>"), ("<think>x</think>4", "<think>"), ("a < b and c > d", None)]
)
def test_markup(text: str, markup: str | None) -> None:
    assert leaked_markup(text) == markup


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (STORY, "en"),
        ("Der Himmel ist blau, weil das Licht der Sonne in der Luft gestreut wird.", "de"),
        ("Le ciel est bleu parce que la lumière du soleil est diffusée dans l'air.", "fr"),
        ("海は広くて静かです。", "other-script"),
        ("Paris", ""),
        ("12", ""),
    ],
)
def test_language_of(text: str, language: str) -> None:
    assert language_of(text) == language
