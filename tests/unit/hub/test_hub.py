"""The local Hub speaks the protocol well enough for the client that everybody uses, unmodified."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import HfApi, RepoFile, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.host.hub import Hub

REPO = "demo/tiny"


def make_repository(folder: Path) -> dict[str, bytes]:
    header = json.dumps({"w": {"dtype": "F32", "shape": [262144], "data_offsets": [0, 1 << 20]}}).encode()
    files = {
        "config.json": b'{"model_type": "llama"}\n',
        "model.safetensors": len(header).to_bytes(8, "little") + header + os.urandom(1 << 20),
        "sub/folder/data.bin": os.urandom(3_000_000),
        "empty.txt": b"",
    }
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return files


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return make_repository(tmp_path / "hub" / REPO)


@pytest.fixture
def hub(tmp_path: Path, files: dict[str, bytes]) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", page_size=3) as hub:
        yield hub


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".cache" not in path.parts
    }


def test_the_unmodified_client_downloads_a_snapshot(hub: Hub, files: dict[str, bytes], tmp_path: Path) -> None:
    target = tmp_path / "target"
    code = f"from huggingface_hub import snapshot_download; snapshot_download({REPO!r}, local_dir={str(target)!r})"
    environment = os.environ | {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    assert contents(target) == files
    assert {seen.origin for seen in hub.seen} == {"hub", "cdn"}


def test_the_cache_layout_and_a_pinned_commit(hub: Hub, files: dict[str, bytes], tmp_path: Path) -> None:
    commit = HfApi(endpoint=hub.endpoint).model_info(REPO).sha
    assert commit is not None
    path = snapshot_download(REPO, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", revision=commit)
    assert Path(path).name == commit
    assert contents(Path(path)) == files


def test_the_tree_comes_in_pages_with_digests(hub: Hub, files: dict[str, bytes]) -> None:
    items = HfApi(endpoint=hub.endpoint).list_repo_tree(REPO, recursive=True)
    listed = {item.path: item for item in items if isinstance(item, RepoFile)}
    assert set(files) == set(listed)
    lfs = listed["model.safetensors"].lfs
    assert lfs and lfs.sha256 == hashlib.sha256(files["model.safetensors"]).hexdigest()
    assert listed["empty.txt"].blob_id == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # git's own name of nothing
    assert sum("/tree/" in seen.path for seen in hub.seen) == 2


def test_safetensors_metadata_and_paths_info(hub: Hub) -> None:
    api = HfApi(endpoint=hub.endpoint)
    assert api.get_safetensors_metadata(REPO).parameter_count == {"F32": 262144}
    (info,) = api.get_paths_info(REPO, ["sub/folder/data.bin", "missing"], expand=True)
    assert isinstance(info, RepoFile) and info.size == 3_000_000


def test_a_signed_url_expires_and_takes_ranges(hub: Hub, files: dict[str, bytes]) -> None:
    url = f"{hub.endpoint}/{REPO}/resolve/main/sub/folder/data.bin"
    location = httpx2.get(url).headers["Location"]
    assert location.startswith(hub.cdn) and hub.cdn != hub.endpoint
    part = httpx2.get(location, headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, files["sub/folder/data.bin"][1000:2000])
    assert part.headers["Content-Range"] == "bytes 1000-1999/3000000"
    assert httpx2.get(location, headers={"Range": "bytes=3000000-"}).status_code == 416
    assert httpx2.get(location.replace("Expires=1", "Expires=2")).status_code == 403
    hub.url_lifetime_s = -1
    assert httpx2.get(httpx2.get(url).headers["Location"]).status_code == 403


def test_a_branch_moves_and_its_old_commit_stays(hub: Hub, tmp_path: Path) -> None:
    make_repository(tmp_path / "hub" / f"{REPO}@v2")
    api = HfApi(endpoint=hub.endpoint)
    old = api.model_info(REPO).sha
    hub.repository(REPO).refs["main"] = "v2"
    assert api.model_info(REPO).sha == api.model_info(REPO, revision="v2").sha != old
    assert api.model_info(REPO, revision=old).sha == old
    assert {ref.name for ref in api.list_repo_refs(REPO).branches} == {"main", "v2"}


def test_refusals_have_the_codes_of_the_real_one(hub: Hub) -> None:
    hub.tokens = {"good": "ann", "other": "bob"}
    hub.gated = {REPO: {"ann"}}
    ann, bob, nobody = (HfApi(endpoint=hub.endpoint, token=token) for token in ("good", "other", False))
    url = f"{hub.endpoint}/{REPO}/resolve/main/config.json"
    assert ann.whoami()["name"] == "ann"
    assert ann.get_hf_file_metadata(url=url, token="good").size == 24
    for api, token in ((bob, "other"), (nobody, False)):
        with pytest.raises(GatedRepoError):
            api.get_hf_file_metadata(url=url, token=token)
    with pytest.raises(HfHubHTTPError, match="401"):
        HfApi(endpoint=hub.endpoint, token="bad").model_info(REPO)
    with pytest.raises(RepositoryNotFoundError):
        ann.model_info("demo/none")
    with pytest.raises(RevisionNotFoundError):
        ann.model_info(REPO, revision="none")
    with pytest.raises(EntryNotFoundError):
        ann.get_hf_file_metadata(url=f"{hub.endpoint}/{REPO}/resolve/main/none", token="good")


def fetch(hub: Hub, **headers: str) -> httpx2.Response:
    url = f"{hub.endpoint}/{REPO}/resolve/main/sub/folder/data.bin"
    return httpx2.get(url, follow_redirects=True, headers=headers, timeout=0.5)


@pytest.mark.parametrize(
    "fields", [{"drop_after": 5000}, {"drop_after": 5000, "reset": True}, {"drop_after": 0}, {"drop_after": -1}]
)
def test_dropped_connections(hub: Hub, files: dict[str, bytes], fields: dict[str, Any]) -> None:
    rule = hub.faults.add(where="cdn", **fields)
    with pytest.raises(httpx2.TransportError):
        fetch(hub)
    assert rule.spoiled == 1
    assert fetch(hub).content == files["sub/folder/data.bin"]


@pytest.mark.parametrize("after", [-1, 0, 100_000])
def test_stalls(hub: Hub, after: int) -> None:
    hub.faults.add(where="cdn", stall_after=after)
    with pytest.raises(httpx2.ReadTimeout):
        fetch(hub)


def test_wrong_bytes_and_wrong_lengths(hub: Hub, files: dict[str, bytes]) -> None:
    whole = files["sub/folder/data.bin"]
    hub.faults.add(where="cdn", path="*/data.bin", flip_at=1_234_567)
    damaged = fetch(hub).content
    assert [at for at in range(len(whole)) if damaged[at] != whole[at]] == [1_234_567]
    hub.faults.add(where="cdn", length_change=-10)
    assert fetch(hub).content == whole[:-10]
    hub.faults.add(where="cdn", length_change=10)
    assert fetch(hub).content == whole + bytes(10)
    hub.faults.add(where="cdn", ignore_range=True)
    assert fetch(hub, Range="bytes=5-").status_code == 200
    hub.faults.add(where="cdn", set_headers={"Content-Range": "bytes 0-1/2"})
    assert fetch(hub, Range="bytes=5-").headers["Content-Range"] == "bytes 0-1/2"


def test_statuses_headers_pages_and_redirects(hub: Hub, files: dict[str, bytes]) -> None:
    hub.faults.add(where="resolve", skip=1, status=429, headers={"Retry-After": "7"}, body="slow down")
    assert fetch(hub).status_code == 200
    assert fetch(hub).headers["Retry-After"] == "7"
    hub.faults.add(where="cdn", expire=True)
    assert fetch(hub).status_code == 403
    hub.faults.add(where="resolve", remove_headers=["x-repo-commit"], set_headers={"X-Linked-ETag": '"0"'})
    headers = httpx2.head(f"{hub.endpoint}/{REPO}/resolve/main/model.safetensors").headers
    assert "X-Repo-Commit" not in headers and headers["X-Linked-ETag"] == '"0"'
    hub.faults.add(where="tree", page=2, times=None, status=500)
    first = httpx2.get(f"{hub.endpoint}/api/models/{REPO}/tree/main", params={"recursive": "true"})
    assert (first.status_code, httpx2.get(first.links["next"]["url"]).status_code) == (200, 500)
    hub.faults.replace(
        [{"where": "tree", "times": None, "add_entries": [{"type": "file", "path": "../x", "oid": "0", "size": 1}]}]
    )
    assert "../x" in {item.path for item in HfApi(endpoint=hub.endpoint).list_repo_tree(REPO, recursive=True)}
