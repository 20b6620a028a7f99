"""The probe against a good server and against servers with one vice each: every verdict is right and says why."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.openai_client import Client
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.probe import (
    CheckResult,
    ProbeResult,
    ProbeSettings,
    probe,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.probe_data import ALL_CHECKS, BASIC
from fake_openai import MODEL, FakeServer


def run(server: FakeServer, timeout: float = 20, **settings: Any) -> ProbeResult:
    settings = {"speed_levels": (), **settings}
    with server.running():
        return probe(Client(server.url, server.api_key, timeout), ProbeSettings(**settings))


def check(result: ProbeResult, name: str) -> CheckResult:
    return next(one for one in result.checks if one.id == name)


def test_a_good_server_passes_everything() -> None:
    result = run(FakeServer(reasoning=True), reasoning=True, tools=True, speed_levels=(1, 3), speed_tokens=16)
    assert {one.id: one.verdict for one in result.checks} == dict.fromkeys(ALL_CHECKS, "passed")
    assert (result.verdict, result.failures, result.warnings) == ("passed", (), ())
    assert result.model == MODEL
    assert result.max_model_len == 4096
    assert [point.concurrency for point in result.speed] == [1, 3]
    assert result.tokens_per_second and result.time_to_first_token_s


def test_what_is_not_on_is_skipped() -> None:
    result = run(FakeServer())
    assert check(result, "reasoning").verdict == "skipped"
    assert check(result, "tool_call").verdict == "skipped"
    assert result.verdict == "passed"


def test_each_check_shows_what_was_asked_and_answered() -> None:
    factual = check(run(FakeServer(), checks=["factual"]), "factual")
    assert factual.exchanges[0] == {
        "prompt": "What is the capital of Japan?",
        "answer": "The capital of Japan is Tokyo.",
        "reasoning": "",
    }
    assert factual.answer == "It is H2O."


@pytest.mark.parametrize(
    ("vice", "failed_check", "why"),
    [
        ("garbage", "factual", "the character '!' is repeated 64 times"),
        ("empty", "factual", "the answer is empty"),
        ("loop", "creative", "repeats itself"),
        ("wrong", "factual", "does not say Tokyo"),
        ("forgetful", "multi_turn", "does not say mango"),
        ("leaks_markup", "factual", "<|im_end|>"),
        ("cut_stream", "streaming", "without its end mark"),
        ("other_stream", "streaming", "differs from character"),
        ("no_usage", "streaming", "did not report its usage"),
        ("wrong_usage", "usage", "8 tokens were asked for, completion_tokens says 11"),
        ("wrong_total", "usage", "total_tokens is"),
        ("no_tool", "tool_call", "no tool was called"),
        ("tool_as_text", "tool_call", "the tool call parser does not fit"),
        ("broken_arguments", "tool_call", "the arguments are no JSON"),
        ("error_500", "factual", "illegal memory access"),
        ("html", "factual", "the answer is no JSON"),
        ("mixed_up", "concurrency", "of 6 simultaneous requests failed"),
    ],
)
def test_a_vice_is_found_and_named(vice: str, failed_check: str, why: str) -> None:
    result = run(FakeServer(vice), checks=[failed_check], tools=True, concurrency=6)
    found = check(result, failed_check)
    assert found.verdict == "failed"
    assert why in found.reason
    assert result.verdict == "failed"
    assert why in result.failures[0]


def test_a_weak_model_may_err_once() -> None:
    factual = check(run(FakeServer("weak"), checks=["factual"]), "factual")
    assert factual.verdict == "passed"
    assert "all answers but one were right" in factual.reason
    assert "Kyoto" in factual.exchanges[0]["answer"]


def test_a_failed_check_that_is_not_required_is_a_warning() -> None:
    result = run(FakeServer("forgetful"), required=[name for name in BASIC if name != "multi_turn"])
    assert result.verdict == "passed"
    assert [warning.partition(":")[0] for warning in result.warnings] == ["multi_turn"]


def test_reasoning_in_the_answer_fails() -> None:
    result = run(FakeServer("leaks_reasoning", reasoning=True), reasoning=True, checks=["factual", "reasoning"])
    assert "the reasoning parser does not fit" in check(result, "reasoning").reason


def test_a_parser_without_reasoning_fails() -> None:
    result = run(FakeServer("no_reasoning", reasoning=True), reasoning=True, checks=["factual", "reasoning"])
    assert "no answer came with reasoning" in check(result, "reasoning").reason


def test_an_answer_that_is_never_the_same_says_nothing_about_streaming() -> None:
    streaming = check(run(FakeServer("unstable"), checks=["streaming"]), "streaming")
    assert streaming.verdict == "skipped"
    assert "two answers in one piece differ" in streaming.reason


def test_a_slow_server_is_a_time_out_and_the_deadline_holds() -> None:
    result = run(FakeServer("slow"), timeout=0.4, checks=["factual", "creative", "usage"], deadline=0.5)
    assert "not complete after" in check(result, "factual").reason
    assert {check(result, name).verdict for name in ("creative", "usage")} == {"failed"}
    assert "deadline" in check(result, "usage").reason


def test_a_server_that_is_gone_is_said_once() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    result = probe(Client(url, timeout=2), ProbeSettings(required=["models"]))
    assert "does not answer" in check(result, "models").reason
    assert {one.verdict for one in result.checks if one.id != "models"} == {"skipped"}
    assert result.failures == (f"models: {check(result, 'models').reason}",)


def test_required_checks_that_could_not_run_fail() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert probe(Client(url, timeout=2), ProbeSettings(required=["factual"])).verdict == "failed"


def test_another_model_than_asked_for_fails() -> None:
    result = run(FakeServer(), model="other/model", checks=["models"])
    assert check(result, "models").reason == f"the server lists {MODEL}, not other/model"


def test_the_api_key_is_sent() -> None:
    result = run(FakeServer(api_key="secret-1"), checks=["factual"])
    assert result.verdict == "passed"


def test_a_wrong_api_key_is_told_without_it() -> None:
    server = FakeServer(api_key="secret-1")
    with server.running():
        result = probe(Client(server.url, "secret-2", 5), ProbeSettings(checks=["models"], speed_levels=()))
    assert "401" in check(result, "models").reason
    assert "secret" not in str(result)


def test_an_url_with_v1_is_accepted_and_nonsense_is_not() -> None:
    server = FakeServer()
    with server.running():
        assert (
            probe(Client(server.url + "/v1/", "", 5), ProbeSettings(checks=["models"], speed_levels=())).verdict
            == "passed"
        )
    with pytest.raises(VllmHostError) as caught:
        Client("localhost:8000")
    assert caught.value.code == "url_invalid"


def test_the_long_context_fills_its_share() -> None:
    server = FakeServer()
    run(server, checks=["long_context"], long_context_share=0.8)
    words = len(server.requests[-1]["messages"][0]["content"].split())
    assert 0.7 * 4096 < words < 0.82 * 4096


def test_the_result_is_json_serialisable() -> None:
    assert json.loads(json.dumps(run(FakeServer()).as_result()))["verdict"] == "passed"
