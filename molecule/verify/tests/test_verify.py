"""The real server passes, and the report says so."""

import json

import pytest

REPORT = "/var/lib/vllm/reports/smol/latest.json"


@pytest.fixture(scope="module")
def report(host):
    return json.loads(host.file(REPORT).content_string)


def test_the_verdict(report):
    assert report["failures"] == []
    assert report["verdict"] in ("passed", "warnings")


def test_the_required_checks_passed(report):
    verdicts = {check["id"]: check["verdict"] for check in report["probe"]["checks"] if check["required"]}
    assert set(verdicts.values()) <= {"passed", "skipped"}
    assert verdicts["factual"] == verdicts["streaming"] == verdicts["usage"] == verdicts["concurrency"] == "passed"


def test_the_release_is_whole(report):
    assert report["install"]["clean"], report["install"]["modified_files"] + report["install"]["foreign_files"]
    assert report["install"]["version"].startswith("0.32.0")


def test_what_the_server_measured(report):
    # 1 GiB by 23,040 B a token in blocks of 128: SmolLM2-135M in 16 bit.
    assert report["log"]["measured"]["kv_cache_tokens"] == 46592
    assert report["log"]["verdict"] == "healthy"


def test_the_page_lies_beside_it(host):
    page = host.file("/var/lib/vllm/reports/smol/latest.html")
    assert page.mode == 0o644
    assert "The capital of Japan is Tokyo." in page.content_string
    assert "<script" not in page.content_string
