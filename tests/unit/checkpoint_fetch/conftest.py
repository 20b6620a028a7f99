"""A Hub with one small repository, and a store to fetch it into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.fetch import FetchRequest, FetchResult, fetch
from ansible_collections.gpuhost.vllm.plugins.module_utils.checkpoint.retry import RetryPolicy

from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import REPO, Fetch, make_repository


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return make_repository(tmp_path / "hub" / REPO)


@pytest.fixture
def hub(tmp_path: Path, files: dict[str, bytes]) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", page_size=4) as hub:
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def request_for(hub: Hub, store: Path) -> Callable[..., FetchRequest]:
    def make(**fields: Any) -> FetchRequest:
        defaults: dict[str, Any] = {
            "repo_id": REPO,
            "revision": "main",
            "store": str(store),
            "endpoint": hub.endpoint,
            "timeout_s": 1.0,
            "policy": RetryPolicy(attempts=4, base_s=0.01, cap_s=0.05),
            "space_margin_bytes": 0,
        }
        return FetchRequest(**{**defaults, **fields})

    return make


@pytest.fixture
def run(request_for: Callable[..., FetchRequest]) -> Fetch:
    def run(check_mode: bool = False, **fields: Any) -> FetchResult:
        return fetch(request_for(**fields), check_mode)

    return run
