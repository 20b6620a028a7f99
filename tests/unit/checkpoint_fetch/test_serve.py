"""One host's store as the endpoint of another: whole, resumed, proved, and not for everybody."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils import checkpoint
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.retry import Gate
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.serve import StoreServer
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.hub_metadata import METADATA_RETRIES, MetadataHub
from huggingface_hub import snapshot_download

from tests.host import paths
from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import REPO, SHARD_BYTES, Fetch, contents

SHARD = "model-00002-of-00004.safetensors"
TOKEN = "a-token-among-our-hosts"


@pytest.fixture
def serve(tmp_path: Path, store: Path) -> Iterator[Any]:
    """Start it; returns its URL, or what it said when it refused."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "gpuhost_vllm").symlink_to(Path(checkpoint.__path__[0]).parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "python")}
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, **more: str) -> str:
        command = [sys.executable, "-m", "gpuhost_vllm.checkpoint.serve", "--store", str(store), *options]
        process = subprocess.Popen(command, env=environment | more, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr
        line = process.stderr.readline()
        found = re.search(r" at (http://\S+)$", line.rstrip())
        return found[1] if found else line

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return str(tmp_path / "token")


def test_another_host_gets_everything(
    run: Fetch, hub: Hub, serve: Any, files: dict[str, bytes], token_file: str, tmp_path: Path
) -> None:
    first = run()
    hub.stop()
    endpoint = serve("--listen", "127.0.0.1:0", "--token-file", token_file)
    there: dict[str, Any] = {"endpoint": endpoint, "token": TOKEN, "store": str(tmp_path / "second")}
    second = run(**there)
    assert contents(second.path) == files and second.commit == first.commit and second.warnings == []
    assert not run(**there).changed
    third = run(**{**there, "store": str(tmp_path / "third"), "revision": first.commit})
    assert contents(third.path) == files
    digests = [{file["path"]: file["digest"] for file in result.files} for result in (first, second, third)]
    assert digests[0] == digests[1] == digests[2]


def test_huggingface_hub_downloads_from_it_too(run: Fetch, serve: Any, files: dict[str, bytes], tmp_path: Path) -> None:
    run()
    endpoint = serve("--listen", "127.0.0.1:0")
    assert contents(snapshot_download(REPO, endpoint=endpoint, cache_dir=tmp_path / "cache")) == files


def test_the_plan_reads_pieces_of_it(run: Fetch, serve: Any, files: dict[str, bytes]) -> None:
    first = run()
    endpoint = serve("--listen", "127.0.0.1:0")
    hub = MetadataHub(REPO, endpoint, "", METADATA_RETRIES, 5.0, Gate())
    shard = next(file for file in hub.tree(hub.commit("main", 1)) if file.path == SHARD)
    assert hub.piece(shard, first.commit, 8, 100).content == files[SHARD][8:108]
    hub.close()
    url = f"{endpoint}/{REPO}/resolve/main/{SHARD}"
    for asked, start, end in (
        ("0-0", 0, 1),
        (f"{SHARD_BYTES - 1}-", -1, SHARD_BYTES),
        (f"2999999-{1 << 60}", -2, SHARD_BYTES),
    ):
        answer = httpx2.get(url, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, files[SHARD][start:end])
    assert httpx2.get(url, headers={"Range": "bytes=9-3"}).status_code == 416
    assert httpx2.get(url, headers={"Range": "lines=1-2"}).status_code == 200


def test_goes_on_at_the_byte(run: Fetch, serve: Any, files: dict[str, bytes], tmp_path: Path) -> None:
    first = run()
    endpoint = serve("--listen", "127.0.0.1:0")
    url = f"{endpoint}/{REPO}/resolve/{first.commit}/{SHARD}"
    answer = httpx2.get(url, headers={"Range": "bytes=1000000-"})
    assert answer.status_code == 206 and answer.content == files[SHARD][1_000_000:]
    assert answer.headers["Content-Range"] == f"bytes 1000000-{SHARD_BYTES - 1}/{SHARD_BYTES}"
    assert httpx2.get(url, headers={"Range": f"bytes={SHARD_BYTES}-"}).status_code == 416
    digest = next(file["digest"] for file in first.files if file["path"] == SHARD)
    part = tmp_path / "second" / "acme--model" / "partial" / f"{digest}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(files[SHARD][:1_048_576])
    second = run(endpoint=endpoint, store=str(tmp_path / "second"))
    assert contents(second.path) == files and second.bytes_resumed == 1_048_576


def test_damage_on_the_serving_host_is_not_taken(run: Fetch, serve: Any, tmp_path: Path) -> None:
    shard = Path(run().path) / SHARD
    shard.chmod(0o644)
    with shard.open("r+b") as stream:
        stream.write(b"damage")
    with pytest.raises(VllmHostError, match=SHARD) as raised:
        run(endpoint=serve("--listen", "127.0.0.1:0"), store=str(tmp_path / "second"))
    assert raised.value.code == "content_mismatch"
    os.truncate(shard, 1000)
    with pytest.raises(VllmHostError, match=SHARD) as raised:
        run(endpoint=serve("--listen", "127.0.0.1:0"), store=str(tmp_path / "third"))
    assert raised.value.code == "transfer_failed"


def test_what_is_not_there_and_who_may_not(run: Fetch, serve: Any, token_file: str, tmp_path: Path) -> None:
    run(allow_patterns=["*.json"])
    endpoint = serve("--listen", "127.0.0.1:0", "--token-file", token_file)
    for fields, code in (
        ({"token": ""}, "repo_not_found"),
        ({"token": "hf_wrong"}, "token_refused"),
        ({"repo_id": "acme/none"}, "repo_not_found"),
        ({"revision": "none"}, "revision_not_found"),
        ({"revision": "c" * 40}, "revision_not_found"),
        ({}, "file_not_found"),
    ):
        with pytest.raises(VllmHostError) as raised:
            run(**{"endpoint": endpoint, "token": TOKEN, "store": str(tmp_path / "second"), **fields})
        assert raised.value.code == code, fields
    part = run(endpoint=endpoint, token=TOKEN, store=str(tmp_path / "third"), allow_patterns=["*.json"])
    assert set(contents(part.path)) == {"config.json", "sub/tokenizer.json"}


def test_only_complete_snapshots_and_nothing_beside_them(run: Fetch, hub: Hub, serve: Any, store: Path) -> None:
    hub.faults.add(where="cdn", path=SHARD, status=503, times=None)
    with pytest.raises(VllmHostError):
        run()
    endpoint = serve("--listen", "127.0.0.1:0")
    (commit,) = (path.name for path in (store / "acme--model" / "snapshots").iterdir())
    (store / "secret").write_text("of this host")
    assert httpx2.get(f"{endpoint}/api/models/{REPO}/revision/{commit}").status_code == 404
    hub.faults.clear()
    run()
    assert httpx2.get(f"{endpoint}/api/models/{REPO}/revision/{commit}").json()["sha"] == commit
    for path in (
        f"/{REPO}/resolve/main/%2e%2e/%2e%2e/%2e%2e/secret",
        f"/{REPO}/resolve/main/.manifest.json",
        f"/{REPO}/resolve/main/",
        "/..%2f../x/resolve/main/secret",
        f"/{REPO}/resolve/..%2f..%2f..%2fsecret/config.json",
        f"/api/models/{REPO}/revision/..%2f..%2fsecret",
        "/secret",
        "/",
    ):
        assert httpx2.get(endpoint + path).status_code == 404, path
    assert httpx2.post(f"{endpoint}/{REPO}/resolve/main/config.json").status_code == 501


def test_not_beyond_loopback_without_a_token(serve: Any, tmp_path: Path, token_file: str) -> None:
    assert "no token was given" in serve("--listen", "0.0.0.0:0")
    assert "give an IPv4 address" in serve("--listen", "localhost:0")
    assert "give ADDRESS:PORT" in serve("--listen", "127.0.0.1")
    assert "cannot be read" in serve("--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "none"))
    (tmp_path / "empty").write_text("\n")
    assert "is empty" in serve("--listen", "0.0.0.0:0", "--token-file", str(tmp_path / "empty"))
    url = serve("--listen", "0.0.0.0:0", CREDENTIALS_DIRECTORY=str(tmp_path))
    assert url.startswith("http://"), "the token as a credential of a systemd unit"
    assert httpx2.get(url.replace("0.0.0.0", "127.0.0.1") + f"/api/models/{REPO}").status_code == 401


def test_the_unit_in_the_docs(run: Fetch, serve: Any, files: dict[str, bytes], token_file: str, tmp_path: Path) -> None:
    run()
    page = (paths.CHECKOUT / "docs/operations.md").read_text()
    (options,) = re.findall(r"^ExecStart=/opt/vllm/tools/bin/python -m gpuhost_vllm.checkpoint.serve (.*)$", page, re.M)
    assert "LoadCredential=token:" in page
    words = ["127.0.0.1:0" if re.match(r"[\d.]+:\d+$", word) else word for word in options.split()]
    words = words[: words.index("--store")]  # the fixture's store instead
    endpoint = serve(*words, CREDENTIALS_DIRECTORY=str(Path(token_file).parent))
    result = run(endpoint=endpoint, token=TOKEN, store=str(tmp_path / "second"))
    assert contents(result.path) == files


def test_over_tls(run: Fetch, files: dict[str, bytes], store: Path, tmp_path: Path, monkeypatch: Any) -> None:
    run()
    certificate = str(tmp_path / "certificate.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", certificate, "-out", certificate]
        + ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with StoreServer(store, "127.0.0.1", 0, "") as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        there = {"endpoint": f"https://127.0.0.1:{server.server_port}", "store": str(tmp_path / "second")}
        with pytest.raises(VllmHostError, match="certificate"):
            run(**there)
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert contents(run(**there).path) == files
        server.shutdown()
