"""Large files over Xet: by the real hf_xet out of a storage in a folder, and by stand-ins that hang and crash as it may. The public storage is not reached."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils import checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint import xet
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.retry import RetryPolicy
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError

from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import SHARD_BYTES, Fetch, contents, cut_every_shard
from tests.unit.checkpoint_fetch.xet_storage import client, keep_in_xet, keep_sources

pytestmark = pytest.mark.slow

HALF = 1_500_000


@pytest.fixture(autouse=True)
def package(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code as the tools environment has it, and the local Hub in the place of the public one."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "gpuhost_vllm").symlink_to(Path(checkpoint.__path__[0]).parent)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.setattr(xet, "PUBLIC_ENDPOINT", hub.endpoint)


@pytest.fixture
def sources(files: dict[str, bytes], tmp_path: Path) -> list[str]:
    shards = [content for path, content in files.items() if path.endswith(".safetensors")]
    return keep_sources(tmp_path / "sources", shards)


@pytest.fixture
def announced(hub: Hub, sources: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards that only the stand-ins can deliver."""
    hub.xet_hashes = {Path(source).name: Path(source).name for source in sources}
    monkeypatch.setenv("XET_SOURCES", str(Path(sources[0]).parent))


@pytest.fixture
def storage(hub: Hub, tmp_path: Path, sources: list[str]) -> None:
    """Shards that hf_xet can deliver, to one client at a time: a storage in a folder lets no second one in."""
    keep_in_xet(hub, tmp_path / "xet", sources)


def from_cdn(hub: Hub) -> list[int]:
    """Where each request to the plain storage began."""
    return [int((seen.range or "bytes=0-")[6:-1]) for seen in hub.seen if seen.origin == "cdn"]


def test_by_the_real_client(
    run: Fetch, hub: Hub, storage: None, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.tokens = {"hf_good": "ann"}
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    result = run(xet=True, timeout_s=20.0, workers=1, token="hf_good")
    assert contents(result.path) == files
    assert result.warnings == [] and from_cdn(hub) == []
    assert all(seen.authorized for seen in hub.seen), "the token goes to the Hub, which gives one for the storage"
    assert not any(list((tmp_path / name).iterdir()) for name in ("home", "work")), (
        "hf_xet's log would hold signed URLs"
    )


def test_the_real_client_goes_on_at_the_byte(run: Fetch, hub: Hub, storage: None, files: dict[str, bytes]) -> None:
    cut_every_shard(hub, HALF)
    with pytest.raises(VllmHostError):
        run(policy=RetryPolicy(attempts=1))
    hub.seen.clear()
    result = run(xet=True, timeout_s=20.0, workers=1)
    assert contents(result.path) == files and from_cdn(hub) == []
    assert result.bytes_resumed > 4 * (HALF - 8192)
    assert result.bytes_resumed + result.bytes_downloaded == 4 * SHARD_BYTES


def test_the_real_client_at_a_storage_that_never_answers(
    run: Fetch, hub: Hub, storage: None, files: dict[str, bytes]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub.xet_storage = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = run(xet=True, workers=1)
    assert contents(result.path) == files
    assert "hf_xet was silent for 1 s" in result.warnings[0] and len(from_cdn(hub)) == 4


def test_the_real_client_without_a_token_for_the_storage(
    run: Fetch, hub: Hub, storage: None, files: dict[str, bytes]
) -> None:
    hub.faults.add(where="xet-token", status=404, times=None)
    result = run(xet=True, timeout_s=20.0, workers=1)
    assert contents(result.path) == files and len(from_cdn(hub)) == 4
    assert "hf_xet ended with status 1 (" in result.warnings[0], "with the kind of its error"


@pytest.mark.parametrize(
    ("body", "why", "received"),
    [
        pytest.param("time.sleep(600)", "silent for 1 s", 0, id="hangs at once"),
        pytest.param(f"send({HALF}); time.sleep(600)", "silent for 1 s", HALF, id="hangs in mid-file"),
        pytest.param(
            f"signal.pthread_sigmask(signal.SIG_BLOCK, {{15, 2}}); send({HALF}); time.sleep(600)",
            "silent for 1 s",
            HALF,
            id="hangs and ignores signals",
        ),
        pytest.param(f"send({HALF}); os.abort()", "killed by signal 6", HALF, id="crashes in mid-file"),
        pytest.param("os._exit(3)", "ended with status 3", 0, id="ends at once"),
        pytest.param(f"send({HALF})", "ended with status 0", HALF, id="says that all is well in mid-file"),
        pytest.param("send(-1); send(0); os.write(1, b'x' * 99)", "", None, id="sends too much"),
        pytest.param("sys.stdout.write('x' * (order['size'] - order['start']))", "wrong digest", 0, id="sends rubbish"),
    ],
)
@pytest.mark.parametrize("attempts", [1, 4])
def test_a_client_that_fails_costs_no_byte_and_no_attempt(
    run: Fetch,
    hub: Hub,
    announced: None,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    why: str,
    received: int | None,
    attempts: int,
) -> None:
    monkeypatch.setattr(xet, "CLIENT", client(body))
    result = run(xet=True, workers=1, policy=RetryPolicy(attempts=attempts, base_s=0.01))
    assert contents(result.path) == files
    if received is not None:
        assert why in result.warnings[0] and "plain HTTP" in result.warnings[0]
        assert from_cdn(hub) == [received, 0, 0, 0], "one file went on where Xet ended, the others never tried it"


def test_a_slow_client_is_not_a_silent_one(
    run: Fetch, hub: Hub, announced: None, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xet, "CLIENT", client("for _ in range(5): send(1000); time.sleep(0.5)\nsend(-1)"))
    result = run(xet=True)
    assert contents(result.path) == files and result.warnings == [] and from_cdn(hub) == []


def test_everybody_else_gets_plain_http(
    run: Fetch, hub: Hub, announced: None, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xet, "CLIENT", ["/bin/false"])
    monkeypatch.setattr(xet, "PUBLIC_ENDPOINT", "https://huggingface.co")
    result = run(xet=True)
    assert contents(result.path) == files
    assert len(from_cdn(hub)) == 4 and not any(seen.method == "HEAD" for seen in hub.seen)
    assert "plain HTTP" in result.warnings[0]
    assert not run(xet=True).changed


def test_files_that_are_not_in_xet(
    run: Fetch, hub: Hub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xet, "CLIENT", ["/bin/false"])
    result = run(xet=True)
    assert contents(result.path) == files and result.warnings == []


def test_without_hf_xet_it_is_refused(run: Fetch, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xet.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VllmHostError, match="checkpoint_fetch_xet: false") as raised:
        run(xet=True)
    assert raised.value.code == "xet_missing" and not store.exists()


PARENT = """
import sys, time
from gpuhost_vllm.checkpoint import retry, xet
order = {"hash": "0" * 64, "size": 10, "start": 0, "token_url": sys.argv[1], "headers": {"user-agent": "test", "authorization": "Bearer hf_very_secret"}}
content = xet.XetContent(order, 0, 600.0, retry.Gate())
print(content._process.pid, flush=True)
time.sleep(600)
"""


def test_a_client_dies_with_its_parent_and_shows_no_token() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        with subprocess.Popen([sys.executable, "-c", PARENT, url], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout
            pid = int(parent.stdout.readline())
            silent.settimeout(20)
            asking, _ = silent.accept()  # it has read its order
            for place in ("cmdline", "environ"):
                assert b"hf_very_secret" not in Path(f"/proc/{pid}/{place}").read_bytes()
            os.kill(parent.pid, signal.SIGKILL)
        asking.close()
        for _ in range(100):
            if not is_alive(pid):
                return
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        raise AssertionError("the client outlived its parent")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
