"""Engine arguments of any type arrive exactly: through the real parser of the installed vLLM, not through a model of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.engine_config import (
    check_known,
    option_name,
    render_config,
    unknown_arguments,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_parser import RealParser

from tests.host import paths, wheels

OPTIONS = {
    "help": {"kind": "flag"},
    "max-model-len": {"kind": "value"},
    "enable-prefix-caching": {"kind": "switch"},
    "headless": {"kind": "flag"},
    "served-model-name": {"kind": "list"},
    "middleware": {"kind": "repeated"},
    "allowed-origins": {"kind": "value"},
    "compilation-config": {"kind": "value"},
    "chat-template": {"kind": "value"},
    "hf-token": {"kind": "optional"},
}


def entries(engine_args: dict[str, Any]) -> Any:
    return yaml.safe_load(render_config(engine_args, OPTIONS, "0.32.0-x"))


def test_a_python_without_pyyaml_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(VllmHostError, match="interpreter of the role tools") as failure:
        render_config({"max_model_len": 8}, OPTIONS, "0.32.0-x")
    assert failure.value.code == "yaml_missing"


@pytest.mark.parametrize(
    "engine_args, expected",
    [
        ({"enable_prefix_caching": True}, {"enable-prefix-caching": True}),
        ({"enable_prefix_caching": False}, {"no-enable-prefix-caching": True}),
        ({"headless": False}, {}),
        ({"max_model_len": None}, {}),
        ({"max_model_len": 4096}, {"max-model-len": 4096}),
        ({"max_model_len": -1}, {"max-model-len=-1": True}),
        ({"max_model_len": "auto"}, {"max-model-len": "auto"}),
        ({"served_model_name": "one"}, {"served-model-name": ["one"]}),
        ({"served_model_name": ["a", "b"]}, {"served-model-name": ["a", "b"]}),
        ({"middleware": ["a.b", "c.d"]}, {"middleware=a.b": True, "middleware=c.d": True}),
        ({"allowed_origins": ["*"]}, {"allowed-origins": '["*"]'}),
        ({"compilation_config": {"mode": 3}}, {"compilation-config": '{"mode": 3}'}),
        ({"chat_template": "-{{ x }}"}, {"chat-template=-{{ x }}": True}),
        ({"hf_token": True}, {"hf-token": True}),
    ],
)
def test_forms(engine_args: dict[str, Any], expected: dict[str, Any]) -> None:
    assert entries(engine_args) == expected or (entries(engine_args) is None and not expected)


def test_the_file_is_ascii_and_names_its_release() -> None:
    text = render_config({"chat_template": "日本語 \u2028 🦙"}, OPTIONS, "0.32.0-x")
    assert text.isascii() and "release 0.32.0-x" in text.splitlines()[0]


@pytest.mark.parametrize(
    "engine_args, told",
    [
        ({"enable_prefix_caching": "yes"}, "takes true or false"),
        ({"served_model_name": []}, "empty list"),
        ({"middleware": ["a", "a"]}, "same value twice"),
        ({"served_model_name": ["a", "-b"]}, "taken for an option"),
        ({"compilation_config": {"x": float("nan")}}, "as JSON"),
        ({"chat_template": "--"}, "takes that away"),
        ({"chat_template": "\ud83e"}, "half a character"),
    ],
)
def test_what_no_command_line_carries_is_refused(engine_args: dict[str, Any], told: str) -> None:
    with pytest.raises(VllmHostError, match=told) as raised:
        render_config(engine_args, OPTIONS, "x")
    assert raised.value.code == "engine_argument_invalid"
    assert raised.value.details["argument"] == next(iter(engine_args))


def test_unknown_arguments_name_the_nearest() -> None:
    assert unknown_arguments({"max_modle_len": 1, "zzz": 2, "chat-template": "x"}, OPTIONS) == [
        {"argument": "max_modle_len", "nearest": "max_model_len"},
        {"argument": "zzz", "nearest": None},
    ]
    with pytest.raises(VllmHostError, match=r"no engine argument 'max_modle_len' \(did you mean 'max_model_len'\?\)"):
        check_known({"max_modle_len": 1}, OPTIONS, "0.32.0")
    check_known({"max_model_len": 1, "max-model-len": 1}, OPTIONS, "0.32.0")


# --- the real parser ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealParser]:
    if not (paths.VLLM_VENV / "bin/python").exists():
        wheels.vllm_environment()
    with RealParser(paths.VLLM_VENV / "bin/python", tmp_path_factory.mktemp("real")) as parser:
        yield parser


# NUL cannot be in an argument; half characters are no text.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40).filter("--".__ne__)
TRICKY = st.sampled_from(
    ["$HOME", "100%", '"', "'", "a b", "a\nb", " ", "\t", "\x7f", "\x85", "\u2028", "é", "🦙"]
    + ["-", "---", "-1", "-1.5", "-x.y", "--port", "-O3", "=", "a=b", "."]
    + ["true", "no", "null", "~", "1e5", "0x10", "0123", "a: b", "# x", "{}", "[1]", "{{ x }}"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | TRICKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | TRICKY, inner, max_size=3),
    max_leaves=8,
)
# Options without a meaning that the parser would check, one of each kind.
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "response_role": TEXT | TRICKY,
        "ssl_ciphers": (TEXT | TRICKY).filter(lambda text: text not in ("", "None")),
        "chat_template": (TEXT | TRICKY).filter(lambda text: text not in ("", "None")),
        "served_model_name": st.lists(
            (TEXT | TRICKY).filter(lambda text: not text.startswith("-")), min_size=1, max_size=3
        ).filter(lambda names: not {"", "None"} & set(names)),
        "middleware": st.lists(TEXT | TRICKY, min_size=1, max_size=3, unique=True),
        "allowed_origins": st.lists(TEXT | TRICKY, max_size=3),
        "default_chat_template_kwargs": st.dictionaries(TEXT | TRICKY, JSON, max_size=3),
        "hf_overrides": st.dictionaries(TEXT | TRICKY, JSON, max_size=3),
        "enable_prefix_caching": st.booleans(),
        "enforce_eager": st.booleans(),
        "headless": st.booleans(),
        "max_model_len": st.integers(-1, 2**40),
        "seed": st.integers(-(2**31), 2**31),
        "gpu_memory_utilization": st.floats(0, 1) | st.integers(0, 1),
        "disable_log_stats": st.booleans(),
    },
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(engine_args=ARGUMENTS)
def test_every_value_arrives_through_the_real_parser(engine_args: dict[str, Any], real: RealParser) -> None:
    text = render_config({"model": "x", **engine_args}, real.options, "0.32.0")
    parsed = real.parse(text)
    assert "error" not in parsed, parsed
    assert {key: parsed[key] for key in engine_args} == engine_args


@pytest.mark.slow
def test_every_switch_can_be_turned_on_and_off(real: RealParser) -> None:
    switches = [option["dest"] for option in real.options.values() if option["kind"] == "switch"]
    assert len(switches) > 50
    for value in (True, False):
        parsed = real.parse(render_config({"model": "x", **dict.fromkeys(switches, value)}, real.options, "0.32.0"))
        assert {name: parsed[name] for name in switches} == dict.fromkeys(switches, value)


@pytest.mark.slow
def test_vllm_drops_a_plain_false(real: RealParser) -> None:
    """Why a switch is never written as false: should vLLM mend this, the detour can go."""
    assert real.parse("model: x\nenable-prefix-caching: false\n")["enable_prefix_caching"] is None


@pytest.mark.slow
def test_options_of_the_release(real: RealParser) -> None:
    assert {
        "max-model-len",
        "kv-cache-dtype",
        "tensor-parallel-size",
        "reasoning-parser",
        "tool-call-parser",
    } <= real.options.keys()
    assert unknown_arguments({"max_modle_len": 1}, real.options)[0]["nearest"] == "max_model_len"
    assert option_name("max_model_len") in real.options
