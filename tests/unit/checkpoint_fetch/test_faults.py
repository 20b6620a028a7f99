"""Every row of the fault table (tests/host/hub/README.md): what goes wrong on the way, and how the run must end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.fetch import FetchRequest, FetchResult, fetch
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError

from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import REPO, SHARD_BYTES, Fetch, contents, make_repository

pytestmark = pytest.mark.slow

SHARD = "model-00002-of-00004.safetensors"


def test_everything_arrives_with_a_manifest(run: Fetch, files: dict[str, bytes], hub: Hub) -> None:
    result = run()
    assert contents(result.path) == files
    assert result.bytes_total == result.bytes_downloaded == sum(map(len, files.values()))
    assert result.changed and result.commit == Path(result.path).name
    manifest = json.loads((Path(result.path) / ".manifest.json").read_text())
    assert manifest["complete"] and {f["path"] for f in manifest["files"]} == set(files)
    assert not any(path.stat().st_mode & 0o222 for path in Path(result.path).glob("*.safetensors"))
    assert list((Path(result.path).parent.parent / "partial").iterdir()) == []

    hub.seen.clear()
    again = run()
    assert not again.changed and again.bytes_downloaded == 0
    assert len(hub.seen) == 1, "only the branch is resolved"
    assert not run(revision=result.commit).changed
    assert len(hub.seen) == 1, "a pinned and complete commit needs no Hub"


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"drop_after": 1_000_000}, id="FIN"),
        pytest.param({"drop_after": 1_000_000, "reset": True}, id="RST"),
        pytest.param({"drop_after": -1}, id="closed before the answer"),
        pytest.param({"length_change": -1000}, id="short body"),
        pytest.param({"length_change": 1000}, id="long body"),
        pytest.param({"drop_after": 0}, id="empty body under an honest length"),
        pytest.param(
            {"length_change": 1000, "remove_headers": ["Content-Length"], "set_headers": {"Connection": "close"}},
            id="long without a length",
        ),
        pytest.param({"stall_after": -1}, id="stall before the header"),
        pytest.param({"stall_after": 1_000_000}, id="stall in the body"),
        pytest.param({"flip_at": 1_500_000}, id="flipped byte"),
        pytest.param({"status": 408, "times": 3}, id="408"),
        pytest.param({"status": 500, "times": 3}, id="500"),
        pytest.param({"status": 503, "times": 3}, id="503"),
        pytest.param({"status": 416}, id="416"),
        pytest.param({"status": 404}, id="storage has lost it for a moment"),
        pytest.param({"expire": True}, id="expired URL"),
        pytest.param({"set_headers": {"Content-Encoding": "gzip"}}, id="encoded"),
    ],
)
def test_trouble_with_one_shard_is_overcome(
    run: Fetch, hub: Hub, files: dict[str, bytes], rule: dict[str, Any]
) -> None:
    fault = hub.faults.add(where="cdn", path=SHARD, **rule)
    assert contents(run().path) == files
    assert fault.spoiled == rule.get("times", 1)


def test_a_drop_every_mebibyte_is_progress(run: Fetch, hub: Hub, files: dict[str, bytes]) -> None:
    fault = hub.faults.add(where="cdn", path="*.safetensors", drop_after=1 << 18, times=None)
    result = run()
    assert contents(result.path) == files
    assert fault.spoiled > 4 * 4, "many more failures than attempts"
    assert result.bytes_downloaded == result.bytes_total, "no byte was fetched twice"


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"ignore_range": True}, id="200 instead of 206"),
        pytest.param({"set_headers": {"Content-Range": "bytes 0-9/10"}}, id="another range"),
        pytest.param({"remove_headers": ["Content-Range"]}, id="no Content-Range"),
        pytest.param({"status": 416}, id="416"),
    ],
)
def test_a_refused_range_starts_that_file_again(
    run: Fetch, hub: Hub, files: dict[str, bytes], rule: dict[str, Any]
) -> None:
    hub.faults.add(where="cdn", path=SHARD, drop_after=1_000_000)
    refused = hub.faults.add(where="cdn", path=SHARD, skip=1, **rule)
    assert contents(run().path) == files
    assert refused.spoiled == 1


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        pytest.param({"where": "cdn", "flip_at": 5}, "content_mismatch", id="always a flipped byte"),
        pytest.param({"where": "cdn", "status": 503}, "transfer_failed", id="503 for ever"),
        pytest.param({"where": "cdn", "length_change": -10}, "transfer_failed", id="always short"),
        pytest.param({"where": "cdn", "stall_after": 0}, "transfer_failed", id="always a stall"),
        pytest.param({"where": "cdn", "expire": True}, "transfer_failed", id="URLs that never work"),
        pytest.param(
            {"where": "resolve", "status": 404, "headers": {"X-Error-Code": "EntryNotFound"}},
            "file_not_found",
            id="404 file",
        ),
    ],
)
def test_one_bad_file_does_not_stop_the_others(
    run: Fetch, hub: Hub, files: dict[str, bytes], store: Path, rule: dict[str, Any], code: str
) -> None:
    hub.faults.add(path=SHARD, times=None, **rule)
    with pytest.raises(VllmHostError) as raised:
        run()
    assert raised.value.code == code
    assert SHARD in raised.value.message
    (snapshot,) = (store / "acme--model" / "snapshots").iterdir()
    assert set(contents(snapshot)) == set(files) - {SHARD}
    assert not json.loads((snapshot / ".manifest.json").read_text())["complete"]

    hub.faults.clear()
    hub.seen.clear()
    assert contents(run().path) == files
    assert sum(seen.origin == "cdn" for seen in hub.seen) == 1, "only the bad file was fetched"


def test_a_mismatch_names_both_hashes(run: Fetch, hub: Hub) -> None:
    hub.faults.add(where="cdn", path=SHARD, flip_at=5, times=None)
    with pytest.raises(VllmHostError) as raised:
        run()
    assert raised.value.details["expected"] in raised.value.message
    assert raised.value.details["found"] in raised.value.message
    assert raised.value.details["expected"] != raised.value.details["found"]


@pytest.mark.parametrize("where", ["info", "tree", "resolve"])
@pytest.mark.parametrize("status", [408, 500, 503])
def test_failures_of_the_server_end_after_a_bounded_number(run: Fetch, hub: Hub, where: str, status: int) -> None:
    hub.faults.add(where=where, status=status, times=3)
    assert run().changed
    shutil.rmtree(Path(run().path).parent.parent)
    fault = hub.faults.add(where=where, status=status, times=None)
    with pytest.raises(VllmHostError) as raised:
        run()
    assert str(status) in raised.value.message
    assert fault.spoiled <= 7 * 4


@pytest.mark.parametrize("headers", [{"Retry-After": "1"}, {"RateLimit": '"resolvers";r=0;t=1'}])
@pytest.mark.parametrize("where", ["tree", "resolve"])
def test_waits_as_told(
    run: Fetch, hub: Hub, headers: dict[str, str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.retry import Gate

    told: list[float] = []
    monkeypatch.setattr(Gate, "close_for", lambda gate, seconds: told.append(seconds))
    hub.faults.add(where=where, status=429, headers=headers)
    assert run().changed
    assert told == [1.0]


def test_a_wait_of_hours_is_not_sat_out(run: Fetch, hub: Hub) -> None:
    hub.faults.add(where="tree", status=429, headers={"Retry-After": "86400"})
    with pytest.raises(VllmHostError, match="86400 s") as raised:
        run()
    assert raised.value.code == "rate_limited"


@pytest.mark.parametrize("store_holds", ["nothing", "a part", "another commit"])
@pytest.mark.parametrize(
    ("token", "code", "words"),
    [
        ("", "repo_gated", "no token was given"),
        ("hf_bob_secret", "repo_gated", "has not been granted access"),
        ("hf_wrong_secret", "token_refused", "wrong, expired or revoked"),
    ],
)
def test_refused_access_fails_at_once(
    run: Fetch, hub: Hub, store: Path, tmp_path: Path, store_holds: str, token: str, code: str, words: str
) -> None:
    if store_holds == "another commit":
        run()
        make_repository(tmp_path / "hub" / f"{REPO}@v2")
        hub.repository(REPO).refs = {"main": "v2"}
    elif store_holds == "a part":
        run(allow_patterns=["*.json"])
    hub.tokens = {"hf_bob_secret": "bob"}
    hub.gated = {REPO: {"ann"}}
    hub.seen.clear()
    with pytest.raises(VllmHostError, match=words) as raised:
        run(token=token)
    assert raised.value.code == code
    assert "secret" not in str(raised.value.as_result())
    refused = [seen for seen in hub.seen if seen.status in (401, 403)]
    assert 1 <= len(refused) <= 8, "one for each worker at the most"


def test_what_does_not_exist(run: Fetch, hub: Hub) -> None:
    hub.tokens = {"hf_good": "ann"}
    for fields, code in (
        ({"repo_id": "acme/none"}, "repo_not_found"),
        ({"repo_id": "acme/none", "token": "hf_good"}, "repo_not_found"),
        ({"revision": "none"}, "revision_not_found"),
        ({"allow_patterns": ["*.none"]}, "no_files_match"),
    ):
        hub.seen.clear()
        with pytest.raises(VllmHostError) as raised:
            run(**fields)
        assert raised.value.code == code
        assert len(hub.seen) <= 3


def test_a_mirror_without_headers_or_with_wrong_ones(run: Fetch, hub: Hub, files: dict[str, bytes]) -> None:
    hub.faults.add(
        where="resolve", times=None, remove_headers=["X-Repo-Commit", "ETag", "X-Linked-Size", "X-Linked-ETag"]
    )
    first = run()
    assert contents(first.path) == files
    assert any("X-Repo-Commit" in warning for warning in first.warnings)
    shutil.rmtree(Path(first.path).parent.parent)
    hub.faults.clear()
    hub.faults.add(
        where="resolve",
        path=SHARD,
        times=None,
        set_headers={"X-Linked-ETag": '"' + "0" * 64 + '"', "X-Repo-Commit": "1" * 40},
    )
    second = run()
    assert contents(second.path) == files
    assert any("another digest" in warning for warning in second.warnings)


def test_a_branch_that_moves_is_never_mixed(run: Fetch, hub: Hub, tmp_path: Path, files: dict[str, bytes]) -> None:
    new = make_repository(tmp_path / "hub" / f"{REPO}@v2")
    first = run(allow_patterns=["*.json", "model-00001*"])
    hub.repository(REPO).refs["main"] = "v2"
    second = run()
    assert second.commit != first.commit
    assert contents(second.path) == new
    assert contents(first.path).items() <= files.items()
    assert contents(run(revision=first.commit).path) == files


def test_shards_that_two_commits_share_are_not_fetched_again(run: Fetch, hub: Hub, tmp_path: Path) -> None:
    first = run()
    shutil.copytree(tmp_path / "hub" / REPO, tmp_path / "hub" / f"{REPO}@v2")
    (tmp_path / "hub" / f"{REPO}@v2" / "config.json").write_text("{}")
    hub.repository(REPO).refs["main"] = "v2"
    second = run()
    assert second.bytes_downloaded == 2
    assert (Path(first.path) / SHARD).samefile(Path(second.path) / SHARD)


def test_a_second_page_that_fails_leaves_nothing(run: Fetch, hub: Hub, store: Path) -> None:
    hub.faults.add(where="tree", page=2, status=500, times=None)
    with pytest.raises(VllmHostError):
        run()
    assert not store.exists()


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "a//b", ".manifest.json", "a\\b"])
def test_paths_that_leave_the_snapshot(run: Fetch, hub: Hub, store: Path, path: str) -> None:
    hub.faults.add(where="tree", times=None, add_entries=[{"type": "file", "path": path, "oid": "0" * 40, "size": 1}])
    with pytest.raises(VllmHostError) as raised:
        run()
    assert raised.value.code == "unsafe_path"
    assert not store.exists()


def test_the_token_goes_to_the_endpoint_only(run: Fetch, hub: Hub) -> None:
    hub.tokens = {"hf_good": "ann"}
    run(token="hf_good")
    assert all(seen.authorized for seen in hub.seen if seen.origin == "hub")
    assert not any(seen.authorized for seen in hub.seen if seen.origin == "cdn")


def test_another_origin_gets_no_token(run: Fetch, hub: Hub, tmp_path: Path) -> None:
    hub.tokens = {"hf_good": "ann"}
    with Hub(tmp_path / "hub") as other:
        hub.faults.add(where="resolve", times=None, redirect_to=other.endpoint)
        run(token="hf_good")
        assert other.seen and not any(seen.authorized for seen in other.seen)


def test_a_full_disk_is_seen_before_the_first_byte(run: Fetch, hub: Hub, store: Path) -> None:
    with pytest.raises(VllmHostError, match="Make room") as raised:
        run(space_margin_bytes=1 << 60)
    assert raised.value.code == "disk_space"
    assert not any(seen.origin == "cdn" for seen in hub.seen)
    assert not (store / "acme--model" / "snapshots").exists()


def test_two_runs_at_once(run: Fetch, hub: Hub, request_for: Callable[..., FetchRequest], store: Path) -> None:
    import threading

    hub.faults.add(where="cdn", times=None, bytes_per_second=2_000_000)
    results: list[FetchResult] = []
    first = threading.Thread(target=lambda: results.append(fetch(request_for())))
    first.start()
    while not any(seen.origin == "cdn" for seen in hub.seen):
        assert first.is_alive()
    with pytest.raises(VllmHostError) as raised:
        run()
    hub.faults.clear()
    first.join()
    assert raised.value.code == "store_busy"
    assert f"process {raised.value.details['holder']['pid']}" in raised.value.message
    assert results[0].changed and not run().changed


def test_a_truncated_shard_with_its_old_time(run: Fetch, hub: Hub, files: dict[str, bytes]) -> None:
    import os

    path = Path(run().path) / SHARD
    times = path.stat()
    path.chmod(0o644)
    os.truncate(path, 1000)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    hub.seen.clear()
    result = run()
    assert result.changed and result.bytes_downloaded == SHARD_BYTES
    assert contents(result.path) == files


@pytest.mark.parametrize("verify", ["size", "full", "never"])
def test_a_damaged_file_under_each_policy(run: Fetch, files: dict[str, bytes], verify: str) -> None:
    path = Path(run().path) / SHARD
    path.chmod(0o644)
    with path.open("r+b") as stream:
        stream.write(b"\0\0\0\0damaged")
    result = run(verify=verify)
    assert result.changed == (verify == "full")
    assert result.bytes_downloaded == (SHARD_BYTES if verify == "full" else 0)
    assert (contents(result.path) == files) == (verify == "full")


def test_the_hub_is_down(run: Fetch, hub: Hub, files: dict[str, bytes]) -> None:
    complete = run()
    hub.stop()
    offline = run()
    assert not offline.changed and offline.path == complete.path
    assert "could not be resolved" in offline.warnings[0]
    assert run(revision=complete.commit).warnings == []
    (Path(complete.path) / SHARD).unlink()
    for revision in ("main", complete.commit):
        with pytest.raises(VllmHostError, match=SHARD) as raised:
            run(revision=revision)
        assert raised.value.code == "snapshot_incomplete"
        assert raised.value.details["missing"] == [SHARD]


def test_nobody_answers_and_nothing_is_there(run: Fetch, hub: Hub, store: Path) -> None:
    hub.stop()
    with pytest.raises(VllmHostError) as raised:
        run()
    assert raised.value.code == "hub_unreachable"
    assert not store.exists()


def test_check_mode_asks_for_the_tree_and_writes_nothing(run: Fetch, hub: Hub, store: Path) -> None:
    result = run(check_mode=True)
    assert result.changed and result.bytes_to_download == result.bytes_total > 0
    assert not store.exists()
    assert not any("/resolve/" in seen.path or seen.origin == "cdn" for seen in hub.seen)
    run()
    assert not run(check_mode=True).changed


def test_patterns(run: Fetch, hub: Hub, files: dict[str, bytes]) -> None:
    result = run(allow_patterns=["*.json"], ignore_patterns=["sub/"])
    assert set(contents(result.path)) == {"config.json"}
    assert set(contents(run().path)) == set(files), "the rest comes when it is asked for"
    assert not run(allow_patterns=["*.json"]).changed
