"""Members are cut from the text; every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint import json_text
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.json_text import (
    REMOVE,
    decode_object,
    edit_members,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from hypothesis import given, settings
from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=5),
    max_leaves=25,
)
WRITERS = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 1, 2, 4, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (", ", ": "), (" , ", " :  ")]),
        "ensure_ascii": st.booleans(),
    }
)


def paths_of(value: Any, at: tuple = ()) -> list[tuple]:
    if isinstance(value, dict):
        return [path for key, item in value.items() for path in [(*at, key), *paths_of(item, (*at, key))]]
    if isinstance(value, list):
        return [path for index, item in enumerate(value) for path in paths_of(item, (*at, index))]
    return []


def expected(value: Any, changes: dict, at: tuple = ()) -> Any:
    if isinstance(value, list):
        return [expected(item, changes, (*at, index)) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return {
        key: changes.get((*at, key)) if (*at, key) in changes else expected(item, changes, (*at, key))
        for key, item in value.items()
        if changes.get((*at, key)) is not REMOVE
    }


@settings(max_examples=150, deadline=None)
@given(value=st.dictionaries(st.text(), JSON_VALUES, max_size=6), writer=WRITERS, data=st.data())
def test_any_document_looks_as_if_its_writer_had_never_known_the_removed_keys(value, writer, data):
    paths = paths_of(value)
    chosen = data.draw(st.lists(st.sampled_from(paths), unique=True, max_size=4)) if paths else []
    changes = {path: data.draw(st.sampled_from([REMOVE, None])) for path in chosen}
    try:
        text = json.dumps(value, **writer)
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    end = data.draw(st.sampled_from(["", "\n", "\r\n", "  \n"]))

    edited = edit_members(text + end, changes, "config.json")

    assert edited == json.dumps(expected(value, changes), **writer) + end


def test_what_no_writer_would_repeat_stays():
    text = (
        '{\r\n\t"a" : 1.0e+05,  "b":[ -0, 1E400, NaN ],\r\n"kv": {"x": "}"} ,\r\n "\\u00e9\\/": "\\ud83d\\ude00é"}\r\n'
    )
    edited = edit_members(text, {("kv",): REMOVE}, "config.json")
    assert edited == text.replace(',\r\n"kv": {"x": "}"}', "")


@pytest.mark.parametrize(
    ("text", "paths", "wanted"),
    [
        ('{"a": 1}', [("a",)], "{}"),
        ('{ "a": 1 }', [("a",)], "{}"),
        ('{"a": 1, "b": 2}', [("a",)], '{"b": 2}'),
        ('{"a": 1, "b": 2}', [("b",)], '{"a": 1}'),
        ('{"a": 1, "b": 2, "c": 3}', [("a",), ("b",)], '{"c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', [("b",), ("c",)], '{"a": 1}'),
        ('{"a": 1, "b": 2, "c": 3, "d": 4}', [("a",), ("c",)], '{"b": 2, "d": 4}'),
        ('{"q": {"a": [{"kv": 1, "b": 2}]}}', [("q", "a", 0, "kv")], '{"q": {"a": [{"b": 2}]}}'),
        ('{"q": {"kv": 1}, "r": {"kv": 1}}', [("q", "kv"), ("q",)], '{"r": {"kv": 1}}'),
    ],
)
def test_members_are_removed_wherever_they_stand(text, paths, wanted):
    assert edit_members(text, dict.fromkeys(paths, REMOVE), "config.json") == wanted


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        (b"", "json_invalid", "config.json"),
        (b"[1]", "json_not_an_object", "array"),
        (b"null", "json_not_an_object", "null"),
        (b'{"a": 1, "b": {"k": 1, "k": 2}}', "json_duplicate_key", "'k'"),
        (b'\xef\xbb\xbf{"a": 1}', "json_invalid", "byte order mark"),
        (b'{"a": 1,}', "json_invalid", "line 1"),
        (b'{"a": "\xff"}', "json_invalid", "UTF-8"),
        (b'{"a": ' + b"[" * 200_000, "json_invalid", "deep"),
    ],
)
def test_bad_documents_are_refused_with_their_name(raw, code, says):
    with pytest.raises(VllmHostError) as refused:
        decode_object(raw, "config.json")
    assert refused.value.code == code
    assert refused.value.details["file"] == "config.json"
    assert says in refused.value.message


def test_a_file_of_50_megabytes_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": "' + b"x" * 50_000_000 + b'"}')
    with pytest.raises(VllmHostError, match="50,000,009 bytes") as refused:
        json_text.read_object(path)
    assert (refused.value.code, refused.value.details["file"]) == ("json_too_large", str(path))


def test_a_large_file_is_edited_too(tmp_path):
    """An ignore list of every expert of a large model: 100,000 names."""
    names = [f"model.layers.{i % 61}.mlp.experts.{i}.down_proj" for i in range(100_000)]
    path = tmp_path / "config.json"
    document = {"quantization_config": {"ignore": names, "kv_cache_scheme": "FP8"}}
    path.write_text(json.dumps(document, indent=1))
    text, _value = json_text.read_object(path)
    del document["quantization_config"]["kv_cache_scheme"]
    edited = edit_members(text, {("quantization_config", "kv_cache_scheme"): REMOVE}, "config.json")
    assert edited == json.dumps(document, indent=1)


def test_not_a_number_passes_as_python_writes_it():
    _text, value = decode_object(b'{"time_step_limit": [0.0, Infinity]}', "config.json")
    assert value["time_step_limit"][1] == float("inf")


def test_a_wrong_edit_is_never_returned(monkeypatch):
    monkeypatch.setattr(json_text, "_removals", lambda *_args: [(1, 2, "")])
    with pytest.raises(VllmHostError) as refused:
        edit_members('{"a": 1, "b": 2}', {("a",): REMOVE}, "config.json")
    assert refused.value.code == "json_edit_failed"
