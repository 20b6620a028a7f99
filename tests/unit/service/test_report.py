"""The report as a document: sums, forecasts against facts, and what counts as a change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.report import as_json, build_report
from report_inputs import GIB, MODEL, check, found


def again(report: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The report after ``report``."""
    return build_report(found(previous=as_json(report), **changes))


def test_a_good_deployment() -> None:
    report = build_report(found(gpus={**found()["gpus"], "problems": []}))
    assert (report["verdict"], report["failures"], report["warnings"]) == ("passed", [], [])
    assert report["service"]["model"] == MODEL
    assert report["kv_cache"]["dtype"] == "bfloat16"
    assert report["first"] and report["news"]


def test_host_problems_are_warnings() -> None:
    report = build_report(found())
    assert report["verdict"] == "warnings"
    assert report["warnings"] == [
        "Host: ACS redirects the peer traffic of 8 GPUs to the root complex. Switch ACS redirection off."
    ]


def test_forecast_and_fact() -> None:
    rows = {row["id"]: row for row in build_report(found())["forecast"]}
    assert rows["tokens"]["forecast"] == 171136
    assert (rows["start"]["forecast"], rows["start"]["measured"]) == (560, 612)
    assert rows["start"]["error_percent"] is None, "a guess is not judged"
    assert rows["tokens"]["measured"] == 178768
    assert rows["tokens"]["error_percent"] == -4.3
    assert rows["weights"] == {
        "id": "weights",
        "name": "Weights a GPU",
        "unit": "GiB",
        "forecast": 66.2,
        "measured": 65.94,
        "error_percent": 0.4,
    }


def test_memory_adds_up_to_the_gpu() -> None:
    report = build_report(found())
    assert len(report["memory"]) == 8
    for gpu in report["memory"]:
        assert sum(part["bytes"] for part in gpu["parts"]) == gpu["total_bytes"]
    kv = [next(part["bytes"] for part in gpu["parts"] if part["name"] == "KV cache") for gpu in report["memory"]]
    assert kv[7] - kv[0] == pytest.approx(0.07 * GIB, abs=2)


def test_memory_shows_the_gpus_of_the_instance_alone() -> None:
    service = {**found()["service"], "gpus": [4, 5]}
    assert [gpu["index"] for gpu in build_report(found(service=service))["memory"]] == [4, 5]


def test_what_is_not_running_was_never_measured() -> None:
    gpus = found()["gpus"]
    gpus["gpus"] = [{**gpu, "used_bytes": 10 * GIB} for gpu in gpus["gpus"]]
    for gpu in build_report(found(gpus=gpus))["memory"]:
        assert sum(part["bytes"] for part in gpu["parts"]) == gpu["total_bytes"]


@pytest.mark.parametrize(
    ("part", "change", "sentence"),
    [
        ("service", {"active": False}, "vllm-kimi-k25.service is not running."),
        ("install", {"clean": False, "modified_files": ["vllm/a.py"]}, "modified vllm/a.py"),
        ("install", {"clean": False, "foreign_files": list("abcde")}, "foreign a, b, c and 2 more"),
        (
            "install",
            {"clean": False, "gpu_fit": [{"compute_capability": "12.0", "supported": False, "how": "no code for it"}]},
            "compute capability 12.0: no code for it",
        ),
        (
            "log",
            {"verdict": "failed", "cause": {"meaning": "Too small.", "remedy": "Shrink."}},
            "The log says: Too small. Shrink.",
        ),
        ("log", {"verdict": "failed", "cause": None}, "the cause is not in the log"),
        ("probe", {"failures": ["factual: wrong"]}, "factual: wrong"),
    ],
)
def test_failures(part: str, change: dict[str, Any], sentence: str) -> None:
    report = build_report(found(**{part: {**found()[part], **change}}))
    assert report["verdict"] == "failed"
    assert any(sentence in failure for failure in report["failures"])


def test_a_fault_that_is_not_required_is_a_warning() -> None:
    install = {**found()["install"], "clean": False, "modified_files": ["vllm/a.py"]}
    report = build_report(found(install=install, required_checks=["factual"]))
    assert report["failures"] == []
    assert any("modified vllm/a.py" in warning for warning in report["warnings"])


def test_less_speed_than_expected_is_a_warning() -> None:
    report = build_report(found(probe={**found()["probe"], "tokens_per_second": 20.25}))
    assert "A single request gets 20.2 tokens a second; this host is expected to give 60." in report["warnings"]


def test_a_benchmark_that_did_not_run_is_a_warning() -> None:
    report = build_report(found(bench={"failed": True, "msg": "no result"}))
    assert "vllm bench serve gave no figures: no result" in report["warnings"]


def test_the_same_again_is_no_news() -> None:
    first = build_report(found())
    second = again(first, generated_at="2026-12-03T00:00:00Z", probe={**found()["probe"], "tokens_per_second": 60.2})
    assert (second["changes"], second["news"], second["first"]) == ([], False, False)


def test_another_configuration_is_news() -> None:
    service = found()["service"]
    service["options"]["max_model_len"] = 65536
    del service["options"]["tool_call_parser"]
    second = again(build_report(found()), service=service)
    assert second["news"]
    assert {(c["what"], c["before"], c["after"]) for c in second["changes"]} == {
        ("option max_model_len", 131072, 65536),
        ("option tool_call_parser", "kimi_k2", None),
    }


def test_a_check_that_is_not_required_is_told_but_no_news() -> None:
    probe = found()["probe"]
    probe["checks"][3] = check("multi_step", "failed", required=False)
    second = again(build_report(found()), probe=probe)
    assert [(c["what"], c["after"], c["matters"]) for c in second["changes"]] == [("check multi_step", "failed", False)]
    assert not second["news"]


def test_a_quick_look_does_not_change_what_it_did_not_see() -> None:
    quick = again(
        build_report(found()),
        quick=True,
        install={},
        probe={**found()["probe"], "checks": [check("factual")], "speed": []},
    )
    assert not quick["news"]


def test_a_verification_alone_keeps_the_forecast_and_the_decision() -> None:
    second = again(build_report(found()), plan={}, view={})
    assert second["kv_cache"]["policy"] == "auto"
    assert next(row for row in second["forecast"] if row["id"] == "tokens")["forecast"] == 171136
    assert second["service"]["commit"] == found()["service"]["revision"]


def predecessor(**changes: Any) -> str:
    return json.dumps({**build_report(found()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"schema": 99}', "null", "[" * 100_000),
        *(
            predecessor(log=[1]),
            predecessor(service=5),
            predecessor(kv_cache=["x"]),
            predecessor(probe={"checks": [5]}),
        ),
        *(
            predecessor(forecast=[{}]),
            predecessor(forecast=[{"id": 1, "forecast": "x"}]),
            predecessor(log={"findings": [{}]}),
        ),
    ],
    ids=lambda text: text[-30:],
)
def test_a_damaged_predecessor_is_none(text: str) -> None:
    assert build_report(found(previous=text))["first"]


def test_little_is_enough() -> None:
    report = build_report({"instance": "x", "host": "h", "generated_at": "2026-12-02T00:00:00Z", "required_checks": []})
    assert report["verdict"] == "passed"
    assert json.loads(as_json(report)) == report


def test_what_json_and_utf8_cannot_hold_does_not_get_in() -> None:
    probe = {**found()["probe"], "tokens_per_second": float("nan"), "time_to_first_token_s": 1e400}
    probe["checks"] = [{**check("factual"), "exchanges": [{"prompt": "?", "answer": "half \ud83d", "reasoning": ""}]}]
    report = build_report(found(probe=probe, previous=json.dumps(build_report(found(probe=probe)))))
    as_json(report).encode("utf-8")
    assert report["probe"]["tokens_per_second"] is None
    assert report["probe"]["checks"][0]["exchanges"][0]["answer"] == "half ?"
