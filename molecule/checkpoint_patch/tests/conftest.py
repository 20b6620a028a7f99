"""The scenario's playbook in other orders and states, and vLLM on a view."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.playbook import Run, run_playbook

START_S = 600
TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")


@pytest.fixture(scope="session")
def converge(request: pytest.FixtureRequest) -> Callable[..., Run]:
    inventory = request.config.getoption("ansible_inventory")
    return partial(run_playbook, inventory, "molecule/checkpoint_patch/converge.yml")


@pytest.fixture
def facts(host: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.file("/root/facts.json").content_string)
    return found


@pytest.fixture
def read_json(host: Any) -> Callable[[str], Any]:
    return lambda path: json.loads(host.file(path).content_string)


@pytest.fixture
def kv_cache_tokens(host: Any) -> Callable[[str], int]:
    """Start the installed vLLM on a checkpoint, with nothing said about its cache, and read the size that it prints."""

    def start(checkpoint: str) -> int:
        release = host.check_output("ls -d /opt/vllm/releases/*/bin/vllm")
        script = (
            "cd /tmp; VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_HOST_IP=127.0.0.1 "
            f"setsid {release} serve {checkpoint} --host 127.0.0.1 --port 8009 --enforce-eager --max-model-len 1024 "
            "--max-num-seqs 8 >/tmp/vllm.log 2>&1 & echo $! >/tmp/vllm.pid"
        )
        assert host.run(f"sh -c '{script}'").rc == 0
        try:
            deadline = time.monotonic() + START_S
            while True:
                log = host.file("/tmp/vllm.log").content_string
                found = TOKENS.search(log)
                if found:
                    return int(found.group(1).replace(",", ""))
                alive = host.run("kill -0 $(cat /tmp/vllm.pid)").rc == 0
                assert alive and time.monotonic() < deadline, log[-4000:]
                time.sleep(1)
        finally:
            # Its own session: the server and all that it started.
            host.run("/bin/kill -9 -- -$(cat /tmp/vllm.pid)")

    return start
