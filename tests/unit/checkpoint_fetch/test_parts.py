"""The pieces below the transfer: part files, retry rules, trees, progress lines, the store."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint import part as part_module
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.hub import origin, public_url
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.manifest import (
    Manifest,
    read_manifest,
    write_manifest,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.part import BLOCK, BUFFER_BYTES, PartFile
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.progress import Progress, duration, progress_line
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.retry import Gate, RetryPolicy, wait_as_told
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.store import Store
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.tree import TreeFile, select, tree_file
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.checkpoint_fetch.repository import Fetch


def feed(part: PartFile, content: bytes) -> None:
    """As a transfer does it."""
    pending = memoryview(content)
    while pending:
        space = part.space()
        count = min(len(space), len(pending))
        space[:count] = pending[:count]
        part.received(count)
        pending = pending[count:]


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, BUFFER_BYTES - 1, BUFFER_BYTES, 2 * BUFFER_BYTES + 12345]
)
@pytest.mark.parametrize("direct", [True, False])
def test_a_part_becomes_the_file(tmp_path: Path, size: int, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not direct:
        monkeypatch.setattr(os, "O_DIRECT", 0)
    content = os.urandom(size)
    with PartFile(tmp_path / "part", size, hashlib.sha256()) as part:
        for start in range(0, size, 1_234_567):
            feed(part, content[start : start + 1_234_567])
        part.complete()
        assert part.digest == hashlib.sha256(content).hexdigest()
        part.move_to(tmp_path / "file", 0o444)
    assert (tmp_path / "file").read_bytes() == content
    assert not (tmp_path / "part").exists()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 300_000), max_size=5), size=st.integers(1, 300_000))
def test_a_part_that_is_interrupted_anywhere(tmp_path: Path, cuts: list[int], size: int) -> None:
    """After each interruption whole blocks are kept, and the digest at the end is right."""
    content = os.urandom(size)
    path = tmp_path / "part"
    path.unlink(missing_ok=True)
    for cut in sorted(min(cut, size) for cut in cuts):
        with PartFile(path, size, hashlib.sha256()) as part:
            assert part.offset % BLOCK == 0
            feed(part, content[part.offset : max(cut, part.offset)])
        assert path.stat().st_size % BLOCK == 0
    with PartFile(path, size, hashlib.sha256()) as part:
        feed(part, content[part.offset :])
        part.complete()
        assert part.digest == hashlib.sha256(content).hexdigest()
    assert path.read_bytes() == content


def test_a_part_longer_than_the_file_is_of_no_use(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(bytes(2 * BLOCK))
    with PartFile(tmp_path / "part", BLOCK + 1, hashlib.sha256()) as part:
        assert part.offset == 0


def test_space_is_reserved_without_changing_the_length(tmp_path: Path) -> None:
    size = 64 << 20
    with PartFile(tmp_path / "part", size, hashlib.sha256()):
        status = (tmp_path / "part").stat()
        assert status.st_size == 0 and status.st_blocks * 512 >= size


def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(3 * BUFFER_BYTES)
    real = os.pwrite

    def full_after_one_buffer(descriptor: int, view: memoryview, offset: int) -> int:
        if offset >= BUFFER_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, view, offset)

    monkeypatch.setattr(part_module.os, "pwrite", full_after_one_buffer)
    with (
        pytest.raises(VllmHostError, match="is full") as raised,
        PartFile(tmp_path / "part", len(content), hashlib.sha256()) as part,
    ):
        feed(part, content)
    assert raised.value.code == "disk_full"
    monkeypatch.undo()
    with PartFile(tmp_path / "part", len(content), hashlib.sha256()) as part:
        assert part.offset == BUFFER_BYTES
        feed(part, content[BUFFER_BYTES:])
        part.complete()
        assert part.digest == hashlib.sha256(content).hexdigest()


def test_waits_are_read_from_either_header() -> None:
    assert wait_as_told({"Retry-After": "7"}) == 7
    in_a_minute = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=60), usegmt=True)
    assert 57 < (wait_as_told({"Retry-After": in_a_minute}) or 0) <= 60
    assert wait_as_told({"RateLimit": '"api";r=0;t=55'}) == 55
    assert wait_as_told({"RateLimit": '"api";r=3;t=55'}) is None
    assert wait_as_told({"Retry-After": "soon"}) is None


def test_pauses_double_up_to_the_cap() -> None:
    policy = RetryPolicy(attempts=9, base_s=1.0, cap_s=30.0)
    for failures, longest in ((1, 1), (2, 2), (3, 4), (6, 30), (9, 30)):
        assert 0.75 * longest <= policy.pause_s(failures) <= longest


def test_a_gate_that_is_told_to_stop_ends_every_wait() -> None:
    gate = Gate()
    gate.close_for(3600)
    gate.stopped.set()
    assert gate.wait(3600) is False


def test_git_blob_ids_and_sha256() -> None:
    empty = TreeFile("empty", 0, None, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    assert empty.hasher().hexdigest() == empty.digest
    lfs = TreeFile("shard", 3, hashlib.sha256(b"abc").hexdigest(), "0" * 40)
    hasher = lfs.hasher()
    hasher.update(b"abc")
    assert hasher.hexdigest() == lfs.digest


@pytest.mark.parametrize(
    ("size", "sha256", "oid"),
    [(-1, None, "0" * 40), ("1", None, "0" * 40), (1, "zz", "0" * 40), (1, None, None), (1, None, "0")],
)
def test_entries_without_a_usable_size_and_digest(size: object, sha256: str | None, oid: str | None) -> None:
    with pytest.raises(VllmHostError) as raised:
        tree_file("a", size, sha256, oid)
    assert raised.value.code == "tree_invalid"


@pytest.mark.parametrize(
    ("allow", "ignore", "selected"),
    [
        ([], [], ["a.json", "b/c.json", "b/d.bin"]),
        (["*.json"], [], ["a.json", "b/c.json"]),
        (["b/"], [], ["b/c.json", "b/d.bin"]),
        ([], ["*.bin"], ["a.json", "b/c.json"]),
        (["b/*"], ["*.json"], ["b/d.bin"]),
    ],
)
def test_patterns_select_as_in_huggingface_hub(allow: list[str], ignore: list[str], selected: list[str]) -> None:
    from huggingface_hub.utils import filter_repo_objects

    paths = ["a.json", "b/c.json", "b/d.bin"]
    files = [TreeFile(path, 1, None, "0" * 40) for path in paths]
    assert [file.path for file in select(files, allow, ignore)] == selected
    assert list(filter_repo_objects(paths, allow_patterns=allow or None, ignore_patterns=ignore or None)) == selected


def test_progress_fits_a_line() -> None:
    progress = {
        "bytes_done": 212_400_000_000,
        "bytes_total": 540_100_000_000,
        "files_done": 47,
        "files_total": 119,
        "bytes_per_second": 812_000_000,
        "seconds_left": 403,
    }
    assert progress_line(progress, "gpu1") == "gpu1: 212.4 of 540.1 GB (39 %), 47/119 files, 812 MB/s, 6 min 43 s left"
    for name in ("", "a-host-with-a-long-name.example.com"):
        assert len(progress_line(progress, name)) <= 80
    assert (duration(59), duration(3600 * 5 + 60)) == ("59 s", "5 h 1 min")


def test_progress_forgets_what_was_in_vain() -> None:
    progress = Progress(bytes_total=100, bytes_done=10, files_total=2, files_done=1)
    progress.resumed(20)
    progress.received(50)
    progress.forget(70)
    progress.received(90)
    progress.file_done()
    seen = progress.as_json()
    assert (seen["bytes_done"], seen["bytes_downloaded"], seen["bytes_resumed"], seen["files_done"]) == (
        100,
        140,
        20,
        2,
    )


def test_urls_in_messages_show_no_secret() -> None:
    assert public_url("https://user:pw@cdn.example:8443/a/b?Signature=x#y") == "https://cdn.example:8443/a/b"
    assert origin("https://a.example/x") == origin("https://a.example:443/y") != origin("http://a.example/x")


def test_a_damaged_manifest_says_what_to_do(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest("a/b", "main", "0" * 40))
    manifest = read_manifest(tmp_path)
    assert manifest and not manifest.complete
    (tmp_path / ".manifest.json").write_text('{"schema": 1}')
    with pytest.raises(VllmHostError, match="Remove this file"):
        read_manifest(tmp_path)
    assert read_manifest(tmp_path / "none") is None


@pytest.mark.parametrize("repo_id", ["", "a/b/c", "../x", "a/../b", "-a/b", "a--b/c", "a/b\n", ".x/y"])
def test_names_that_are_no_repository(tmp_path: Path, repo_id: str) -> None:
    with pytest.raises(VllmHostError) as raised:
        Store(tmp_path, repo_id)
    assert raised.value.code == "repo_id_invalid"


def view_of(store: Store, commit: str, name: str) -> None:
    (store.views / name).mkdir(parents=True)
    (store.views / name / ".view.json").write_text(
        json.dumps({"snapshot": str(store.snapshot(commit)), "commit": commit})
    )


def test_removing_and_pruning(run: Fetch, hub: object, store: Path, tmp_path: Path) -> None:
    import shutil

    from tests.host.hub import Hub
    from tests.unit.checkpoint_fetch.repository import REPO

    assert isinstance(hub, Hub)
    commits = [run().commit]
    for revision in ("v2", "v3"):
        shutil.copytree(tmp_path / "hub" / REPO, tmp_path / "hub" / f"{REPO}@{revision}")
        (tmp_path / "hub" / f"{REPO}@{revision}" / "config.json").write_text(revision)
        commits.append(run(revision=revision).commit)
    where = Store(store, REPO)
    view_of(where, commits[0], "served")

    assert where.prune(commits[2], check_mode=True) == [commits[1]]
    assert set(where.commits()) == set(commits)
    assert where.prune(commits[2], check_mode=False) == [commits[1]]
    assert set(where.commits()) == {commits[0], commits[2]}

    with pytest.raises(VllmHostError, match="served") as raised:
        where.remove("main", check_mode=False)
    assert raised.value.code == "snapshot_in_use"
    assert where.remove("v3", check_mode=False) == [commits[2]]
    assert where.remove("v3", check_mode=False) == []
    shutil.rmtree(where.views)
    assert where.remove("*", check_mode=False) == [commits[0]]
    assert where.commits() == []
