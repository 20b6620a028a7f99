"""What a user would look at after the role has run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.host import paths

STORE = "/var/lib/vllm/checkpoints/demo--smollm2-135m"


def snapshot(host: Any) -> str:
    (folder,) = host.run(f"ls -d {STORE}/snapshots/*").stdout.split()
    return str(folder)


def test_every_file_is_there_and_right(host: Any) -> None:
    source = paths.HUB_REPOS / "demo/smollm2-135m"
    sums = host.check_output(f"cd {snapshot(host)} && sha256sum *")
    found = {line.split()[1]: line.split()[0] for line in sums.splitlines()}
    assert found == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in source.iterdir()}


def test_the_manifest_vouches_for_them(host: Any) -> None:
    manifest = json.loads(host.file(f"{snapshot(host)}/.manifest.json").content_string)
    assert manifest["complete"] and manifest["repo_id"] == "demo/smollm2-135m"
    assert snapshot(host).endswith(manifest["commit"])
    shard = next(file for file in manifest["files"] if file["path"] == "model-00001-of-00007.safetensors")
    assert len(shard["sha256"]) == 64 and shard["size"] == host.file(f"{snapshot(host)}/{shard['path']}").size


def test_files_are_read_only_and_readable_by_the_service(host: Any) -> None:
    shard = host.file(f"{snapshot(host)}/model-00001-of-00007.safetensors")
    assert (shard.mode, shard.user) == (0o444, "root")
    assert host.file(snapshot(host)).mode == 0o755


def test_nothing_of_the_transfer_is_left(host: Any) -> None:
    assert host.run(f"ls {STORE}/partial").stdout == ""
    assert host.run("ls /run | grep vllm-fetch").stdout == ""
    assert "vllm-fetch" not in host.check_output("systemctl list-units --all --no-legend --plain 'vllm-fetch*'")


def test_the_token_is_nowhere(host: Any) -> None:
    assert host.run(f"grep -rl hf_of_ann {STORE} /run /etc /var/log /tmp /root").stdout == ""
    journal = host.check_output("journalctl --no-pager -o cat")
    assert "hf_of_ann" not in journal and "Signature=" not in journal
