"""Fetch and patch in any order: neither undoes the other, and nothing is downloaded twice."""

from __future__ import annotations

STORE = "/var/lib/vllm/checkpoints/demo--tiny-mla"


def state_of(host, facts):
    """Content and inode of every file of the snapshot, and where the served name points."""
    snapshot = facts["vllm_checkpoint"]["path"]
    files = host.check_output(
        f"cd {snapshot} && find . -type f ! -name .manifest.json -exec sha256sum {{}} + | sort -k2"
    )
    inodes = host.check_output(
        f"cd {snapshot} && find . -type f ! -name .manifest.json -printf '%p %i %m %T@\\n' | sort"
    )
    return files, inodes, host.check_output(f"readlink {STORE}/views/tiny")


def test_once_more_in_both_orders(host, facts, converge):
    before = state_of(host, facts)
    for travel in (["fetch"], ["patch"], ["fetch", "patch"], ["patch"], ["fetch"]):
        variables = {} if "fetch" in travel else {"checkpoint_patch_snapshot": facts["vllm_checkpoint"]["path"]}
        run = converge(travel=travel, **variables)
        assert run.ok, run.text[-2000:]
        assert run.changed == 0, run.text[-2000:]
        assert state_of(host, facts) == before


def test_original_and_back(host, facts, converge, read_json):
    before = state_of(host, facts)
    run = converge(state="original")
    assert run.ok, run.text[-2000:]
    assert run.changed >= 2
    published = read_json(f"{STORE}/views/tiny/config.json")
    assert published == read_json(f"{facts['vllm_checkpoint']['path']}/config.json")
    again = converge(state="original")
    assert again.changed == 0
    assert converge(travel=["fetch"]).changed == 0
    assert converge(state="stripped").ok
    assert state_of(host, facts) == before


def test_check_mode_tells_the_truth(host, facts, converge):
    before = state_of(host, facts)
    run = converge("--check", "--diff", state="original")
    assert run.ok, run.text[-2000:]
    assert "tiny would serve" in run.text
    assert '+ "kv_cache_scheme": {' in run.text
    assert state_of(host, facts) == before
    assert converge("--check").changed == 0


def test_patch_before_anything_was_fetched(host, converge):
    empty = "/var/lib/vllm/checkpoints/demo--nothing/snapshots/0000000000000000000000000000000000000000"
    would = converge("--check", travel=["patch"], checkpoint_patch_snapshot=empty)
    assert would.ok, would.text[-2000:]
    assert "once it has been fetched completely" in would.text
    refused = converge(travel=["patch"], checkpoint_patch_snapshot=empty)
    assert not refused.ok
    assert "does not exist. Run checkpoint_fetch first" in refused.text
    unset = converge(travel=["patch"])
    assert not unset.ok
    assert "checkpoint_patch_snapshot must be the absolute path" in unset.text
    assert not host.file("/var/lib/vllm/checkpoints/demo--nothing").exists


def test_an_incomplete_snapshot_is_refused(host, facts, converge):
    snapshot = facts["vllm_checkpoint"]["path"]
    broken = f"{STORE}/snapshots/broken"
    host.check_output(f"cp -al {snapshot} {broken} && rm {broken}/.manifest.json")
    host.check_output(
        f'sed \'s/"complete": true/"complete": false/\' {snapshot}/.manifest.json >{broken}/.manifest.json'
    )
    refused = converge(travel=["patch"], checkpoint_patch_snapshot=broken)
    host.check_output(f"rm -r {broken}")
    assert not refused.ok
    assert "its manifest says that it is incomplete" in refused.text
