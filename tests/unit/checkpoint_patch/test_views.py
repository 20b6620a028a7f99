"""A view is whole or not there, and the snapshot below it never changes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint import views as views_module
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.served_view import serve_view
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from checkpoint_folders import COMMIT, add_manifest, write_checkpoint

NAME = "kimi"


def fingerprint(folder: Path) -> dict[str, tuple]:
    """Inode, mode, times and content of every file of a folder (link counts do change: that is what a hard link is)."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    return found


def kv_cache_is_quantized(view: Path) -> bool:
    """Read a view as vLLM would, every file of it."""
    config = json.loads((view / "config.json").read_text())
    hf_quant_config = json.loads((view / "hf_quant_config.json").read_text())
    assert (view / "model-00001-of-00002.safetensors").read_bytes() == b"\x01" * 5000
    assert (view / "model-00002-of-00002.safetensors").read_bytes() == b"\x02" * 5000
    assert (view / "tokenizer" / "vocab.txt").read_text() == "a\nb\n"
    assert json.loads((view / ".view.json").read_text())["commit"] == COMMIT
    declared = "kv_cache_scheme" in config["quantization_config"]
    assert declared == (hf_quant_config["quantization"]["kv_cache_quant_algo"] == "FP8")
    return declared


@pytest.fixture(autouse=True)
def snapshot_never_changes(request):
    """Holds for every test here, but for those that damage the snapshot themselves."""
    snapshot = request.getfixturevalue("snapshot") if "snapshot" in request.fixturenames else None
    before = fingerprint(snapshot) if snapshot else {}
    yield
    if snapshot and not getattr(request.function, "damages_snapshot", False):
        assert fingerprint(snapshot) == before


def damages_snapshot(test):
    test.damages_snapshot = True
    return test


def test_shards_are_hard_links_and_patched_json_is_not(snapshot, views):
    served = serve_view(snapshot, views, NAME, "stripped")
    assert served.changed
    assert (views / NAME).resolve() == served.path
    assert not kv_cache_is_quantized(served.path)
    for name in ("model-00001-of-00002.safetensors", "tokenizer/vocab.txt"):
        assert (served.path / name).samefile(snapshot / name)
        assert not (served.path / name).is_symlink()
    for name in ("config.json", "hf_quant_config.json"):
        assert not (served.path / name).samefile(snapshot / name)
        assert (served.path / name).stat().st_mode == (snapshot / name).stat().st_mode
    assert not (served.path / ".manifest.json").exists()


def test_a_second_run_changes_nothing(snapshot, views):
    first = serve_view(snapshot, views, NAME, "stripped")
    before = fingerprint(views)
    second = serve_view(snapshot, views, NAME, "stripped")
    assert (second.changed, second.path, second.edits, second.diff) == (False, first.path, first.edits, [])
    assert {name: entry for name, entry in fingerprint(views).items() if ".lock" not in name} == {
        name: entry for name, entry in before.items() if ".lock" not in name
    }


def test_original_is_the_untouched_view_again_and_the_old_one_stays(snapshot, views):
    stripped = serve_view(snapshot, views, NAME, "stripped")
    original = serve_view(snapshot, views, NAME, "original")
    assert (original.changed, original.edits, original.previous) == (True, (), stripped.path)
    assert kv_cache_is_quantized((views / NAME).resolve())
    assert (original.path / "config.json").read_bytes() == (snapshot / "config.json").read_bytes()
    assert not kv_cache_is_quantized(stripped.path)
    again = serve_view(snapshot, views, NAME, "stripped")
    assert (again.changed, again.path) == (True, stripped.path)


def test_check_mode_says_what_would_be(snapshot, views):
    would = serve_view(snapshot, views, NAME, "stripped", check=True)
    assert would.changed
    assert not views.exists()
    assert would.message.startswith(f"{NAME} would serve")
    assert {entry["after_header"].rsplit("/", 1)[1] for entry in would.diff} == {"config.json", "hf_quant_config.json"}
    done = serve_view(snapshot, views, NAME, "stripped")
    assert (would.path, would.edits, would.diff) == (done.path, done.edits, done.diff)
    assert not serve_view(snapshot, views, NAME, "stripped", check=True).changed


def test_check_mode_before_the_snapshot_is_there(tmp_path):
    would = serve_view(tmp_path / "snapshots" / COMMIT, tmp_path / "views", NAME, "stripped", check=True)
    assert would.changed
    assert "once it has been fetched" in would.message
    assert list(tmp_path.iterdir()) == []


def test_the_difference_is_that_of_what_is_served(snapshot, views):
    first = serve_view(snapshot, views, NAME, "stripped")
    assert any(
        '-    "kv_cache_scheme"' in line or '"kv_cache_scheme"' in line for line in first.diff[0]["before"].splitlines()
    )
    back = serve_view(snapshot, views, NAME, "original")
    assert back.diff[0]["before"] == first.diff[0]["after"]
    assert back.diff[0]["after"] == (snapshot / "config.json").read_text()


def test_nothing_to_strip_is_said(tmp_path):
    folder = write_checkpoint(tmp_path / "plain", config={"model_type": "llama"}, hf_quant_config=None)
    served = serve_view(folder, tmp_path / "views", NAME, "stripped")
    assert served.edits == ()
    assert "nothing to strip" in served.message


def test_an_unknown_declaration_becomes_a_warning(tmp_path):
    folder = write_checkpoint(tmp_path / "plain", config={"quantization_config": {"kv_cache_bits": 8}})
    served = serve_view(folder, tmp_path / "views", NAME, "stripped")
    assert "quantization_config.kv_cache_bits" in served.warnings[0]
    assert served.unknown == ({"file": "config.json", "key": "quantization_config.kv_cache_bits", "value": 8},)


@damages_snapshot
def test_a_shard_that_was_fetched_anew_leads_to_another_view(snapshot, views):
    first = serve_view(snapshot, views, NAME, "stripped")
    shard = snapshot / "model-00001-of-00002.safetensors"
    renewed = snapshot / "renewed"
    renewed.write_bytes(b"\x01" * 5000)
    renewed.replace(shard)
    second = serve_view(snapshot, views, NAME, "stripped")
    assert second.path != first.path
    assert (second.path / shard.name).samefile(shard)


def test_a_view_that_somebody_changed_is_made_anew_beside_it(snapshot, views):
    first = serve_view(snapshot, views, NAME, "stripped")
    config = first.path / "config.json"
    config.chmod(0o644)
    config.write_text("{}")
    (first.path / "model-00001-of-00002.safetensors").unlink()
    second = serve_view(snapshot, views, NAME, "stripped")
    assert second.changed
    assert second.path != first.path
    assert not kv_cache_is_quantized(second.path)
    assert "config.json, model-00001-of-00002.safetensors" in second.warnings[0]
    assert config.read_text() == "{}"
    third = serve_view(snapshot, views, NAME, "stripped")
    assert (third.changed, third.warnings) == (False, ())


def test_symbolic_links_where_hard_links_are_impossible(snapshot, views, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    served = serve_view(snapshot, views, NAME, "stripped")
    link = served.path / "tokenizer" / "vocab.txt"
    assert not link.readlink().is_absolute()
    assert not kv_cache_is_quantized(served.path)
    assert not serve_view(snapshot, views, NAME, "stripped").changed
    # The whole tree may be mounted elsewhere: relative links still lead to the shards.
    moved = snapshot.parents[2] / "elsewhere"
    shutil.copytree(snapshot.parents[1], moved, symlinks=True)
    assert not kv_cache_is_quantized(moved / "views" / NAME)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no second file system")
def test_another_file_system(snapshot):
    if Path("/dev/shm").stat().st_dev == snapshot.stat().st_dev:
        pytest.skip("/dev/shm is not a file system of its own")
    views = Path("/dev/shm") / f"gpuhost-views-{os.getpid()}"
    try:
        served = serve_view(snapshot, views, NAME, "stripped")
        assert (served.path / "model-00001-of-00002.safetensors").is_symlink()
        assert not kv_cache_is_quantized(served.path)
        assert not serve_view(snapshot, views, NAME, "stripped").changed
    finally:
        shutil.rmtree(views, ignore_errors=True)


def age(view: Path) -> None:
    long_ago = time.time() - views_module.RETIRED_SECONDS - 60
    os.utime(view, (long_ago, long_ago))


@damages_snapshot
def test_old_views_are_pruned_a_week_after_their_last_service(snapshot, views):
    served = []
    for content in ("a", "b", "c"):
        (snapshot / "chat_template.jinja").write_text(content)
        served.append(serve_view(snapshot, views, NAME, "stripped").path)
    oldest, previous, current = served
    other = serve_view(snapshot, views, "other", "stripped").path
    assert serve_view(snapshot, views, NAME, "stripped").pruned == ()
    for view in (oldest, current, other):
        age(view)
    assert serve_view(snapshot, views, NAME, "stripped").pruned == (oldest,)
    assert not oldest.exists()
    assert all(view.exists() for view in (previous, current, other))


def test_the_view_before_the_current_one_stays_however_old_it_is(snapshot, views):
    previous = serve_view(snapshot, views, NAME, "stripped").path
    serve_view(snapshot, views, NAME, "original")
    age(previous)
    assert serve_view(snapshot, views, NAME, "original").pruned == ()
    assert previous.exists()


def test_a_view_counts_as_old_from_the_end_of_its_service(snapshot, views):
    long_served = serve_view(snapshot, views, NAME, "stripped").path
    age(long_served)
    serve_view(snapshot, views, NAME, "original")
    assert time.time() - long_served.stat().st_mtime < 60


@pytest.mark.parametrize(
    ("damage", "code", "says"),
    [
        (lambda s: add_manifest(s, complete=False), "snapshot_incomplete", "checkpoint_fetch"),
        (lambda s: (s / "model-00002-of-00002.safetensors").unlink(), "snapshot_incomplete", "model-00002"),
        (lambda s: (s / ".manifest.json").write_text("{"), "manifest_unreadable", ".manifest.json"),
        (lambda s: (s / ".manifest.json").write_text("[" * 100_000), "manifest_unreadable", ".manifest.json"),
    ],
)
@damages_snapshot
def test_an_incomplete_snapshot_is_refused(snapshot, views, damage, code, says):
    damage(snapshot)
    with pytest.raises(VllmHostError) as refused:
        serve_view(snapshot, views, NAME, "stripped")
    assert refused.value.code == code
    assert says in refused.value.message
    assert not views.exists()


def test_a_plain_folder_is_checked_against_its_own_index(make_checkpoint, tmp_path):
    folder = make_checkpoint()
    assert serve_view(folder, tmp_path / "views", NAME, "stripped").changed
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(VllmHostError, match="model-00002") as refused:
        serve_view(folder, tmp_path / "views", NAME, "stripped")
    assert refused.value.code == "snapshot_incomplete"


def test_an_index_that_is_nested_without_end(make_checkpoint, tmp_path):
    folder = make_checkpoint()
    index = folder / "model.safetensors.index.json"
    index.unlink(missing_ok=True)
    index.write_text("[" * 100_000)
    with pytest.raises(VllmHostError) as refused:
        serve_view(folder, tmp_path / "views", NAME, "original")
    assert refused.value.code == "snapshot_incomplete"


def test_the_cache_layout_of_the_hub_is_linked_to_its_blobs(make_checkpoint, tmp_path):
    blobs = make_checkpoint("blobs")
    folder = tmp_path / "snapshots" / "main"
    folder.mkdir(parents=True)
    for path in blobs.iterdir():
        (folder / path.name).symlink_to(os.path.relpath(path, folder))
    served = serve_view(folder, tmp_path / "views", NAME, "stripped")
    shard = served.path / "model-00001-of-00002.safetensors"
    assert shard.samefile(blobs / shard.name)
    assert not shard.is_symlink()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda f: (f / "loop").symlink_to("loop"), "loop of symbolic links"),
        (lambda f: (f / "tokenizer" / "up").symlink_to(".."), "leads back"),
        (lambda f: (f / "gone").symlink_to("nowhere"), "points to nothing"),
    ],
)
def test_bad_links_are_named(make_checkpoint, tmp_path, make, says):
    folder = make_checkpoint()
    make(folder)
    with pytest.raises(VllmHostError, match=says) as refused:
        serve_view(folder, tmp_path / "views", NAME, "stripped")
    assert refused.value.code == "snapshot_bad_link"
    assert not (tmp_path / "views").exists()


def test_a_snapshot_that_is_a_loop_itself(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(VllmHostError) as refused:
        serve_view(tmp_path / "a", tmp_path / "views", NAME, "stripped")
    assert refused.value.code == "snapshot_bad_link"


def test_odd_places_are_refused(snapshot, views, make_checkpoint, tmp_path):
    def code(*args):
        with pytest.raises(VllmHostError) as refused:
            serve_view(*args)
        return refused.value.code

    served = serve_view(snapshot, views, NAME, "stripped")
    assert code(served.path, views, "other", "original") == "snapshot_is_a_view"
    assert code(tmp_path / "nowhere", views, NAME, "stripped") == "snapshot_missing"
    assert code(snapshot / "config.json", views, NAME, "stripped") == "not_a_checkpoint"
    assert code(snapshot, snapshot / "views", NAME, "stripped") == "views_misplaced"
    assert code(snapshot, snapshot.parents[1], NAME, "stripped") == "views_misplaced"
    for name in ("../evil", "a b", "", ".", "-x", "a/b", "a\n", "x" * 300):
        assert code(snapshot, views, name, "stripped") == "view_name_invalid"
    (tmp_path / "empty").mkdir()
    assert code(tmp_path / "empty", views, NAME, "stripped") == "not_a_checkpoint"
    (views / "folder").mkdir()
    assert code(snapshot, views, "folder", "stripped") == "views_misplaced"


@pytest.mark.parametrize("state", ["stripped", "original"])
def test_bad_json_stops_only_where_it_would_be_patched(make_checkpoint, tmp_path, state):
    folder = make_checkpoint(config=[1, 2])
    if state == "original":
        assert serve_view(folder, tmp_path / "views", NAME, state).changed
        return
    with pytest.raises(VllmHostError) as refused:
        serve_view(folder, tmp_path / "views", NAME, state)
    assert refused.value.code == "json_not_an_object"
    assert str(folder / "config.json") in refused.value.message
    assert not (tmp_path / "views").exists()


def test_a_full_disk_leaves_the_old_view(snapshot, views, monkeypatch):
    old = serve_view(snapshot, views, NAME, "original").path
    real = os.fsync

    def full(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "hf_quant_config.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VllmHostError) as refused:
        serve_view(snapshot, views, NAME, "stripped")
    assert refused.value.code == "disk_full"
    assert (views / NAME).resolve() == old
    monkeypatch.setattr(os, "fsync", real)
    assert not kv_cache_is_quantized(serve_view(snapshot, views, NAME, "stripped").path)
    assert not list(views.glob(f".{NAME}+*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize(("option", "code"), [("ro", "views_not_writable"), ("rw", "disk_full")])
def test_a_real_file_system_that_is_full_or_read_only(snapshot, tmp_path, option, code):
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=12", "tmpfs", str(mounted)], check=False
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (mounted / "views").mkdir()
        if option == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
        with pytest.raises(VllmHostError) as refused:
            serve_view(snapshot, mounted / "views", NAME, "stripped")
        assert refused.value.code == code
        assert str(mounted) in refused.value.message
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def run_in_child(work, trace=None) -> int:
    """Fork, work, and say how the child ended; the child never returns into pytest."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            sys.settrace(trace)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def good_state(views: Path) -> bool:
    """The served name leads to a whole view; which state it has."""
    return kv_cache_is_quantized((views / NAME).resolve(strict=True))


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch):
    """What a killed process wrote is seen by the next one in any case."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.mark.slow
@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_a_kill_at_every_line_leaves_a_good_view(snapshot, views):
    """The build ends without notice after 1, 2, 3 ... lines of this module, as by kill -9, until it gets through."""
    serve_view(snapshot, views, NAME, "original")

    def end_after(lines: int):
        left = lines

        def trace(frame, event, _argument):
            nonlocal left
            if not frame.f_code.co_filename.endswith(("checkpoint/views.py", "checkpoint/manifest.py")):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os._exit(9)
            return trace

        return trace

    states = []
    for lines in range(1, 5000):
        ended = run_in_child(lambda: serve_view(snapshot, views, NAME, "stripped"), end_after(lines))
        if ended == 0:
            break
        assert ended == 9
        states.append(good_state(views))
        # The next run gets through and cleans up. Then the same beginning again, so that the lines are counted alike.
        serve_view(snapshot, views, NAME, "stripped")
        assert not good_state(views)
        assert not list(views.glob(f".{NAME}+*"))
        serve_view(snapshot, views, NAME, "original")
        for stripped in views.glob(f"{NAME}+*-stripped-*"):
            shutil.rmtree(stripped)
    assert len(states) > 100
    assert states == sorted(states, reverse=True), "as published until the switch, stripped ever after"
    assert set(states) == {True, False}


@pytest.mark.slow
@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_kills_at_random_instants(snapshot, views):
    serve_view(snapshot, views, NAME, "original")

    def toggle():
        while True:
            for state in ("stripped", "original"):
                for old in views.glob(f"{NAME}+*"):
                    if old != (views / NAME).resolve() and not old.is_symlink():
                        shutil.rmtree(old)  # so that each round builds
                serve_view(snapshot, views, NAME, state)

    instants = random.Random(5)
    seen = set()
    for _ in range(120):
        pid = os.fork()
        if pid == 0:
            try:
                toggle()
            finally:
                os._exit(70)
        time.sleep(instants.uniform(0.002, 0.06))
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        seen.add(good_state(views))
    assert seen == {True, False}
    serve_view(snapshot, views, NAME, "stripped")
    assert not good_state(views)


@pytest.mark.slow
def test_many_runs_at_once(snapshot, views):
    children = []
    for number in range(12):
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                serve_view(snapshot, views, NAME, ("stripped", "original")[number % 2])
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 12
    good_state(views)
    assert len(list(views.glob(f"{NAME}+*"))) == 2


def test_a_run_that_waits_too_long_names_the_holder(snapshot, views, monkeypatch):
    serve_view(snapshot, views, NAME, "original")
    monkeypatch.setattr(views_module, "LOCK_SECONDS", 0.1)
    with (views / f".{NAME}.lock").open("w") as held:
        held.write(json.dumps({"pid": 4711}))
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(VllmHostError, match="process 4711") as refused:
            serve_view(snapshot, views, NAME, "stripped")
    assert refused.value.code == "views_busy"
