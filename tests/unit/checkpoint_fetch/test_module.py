"""The module as Ansible calls it, and the action plugin that waits for it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.gpuhost.vllm.plugins.action import checkpoint_fetch as action
from ansible_collections.gpuhost.vllm.plugins.modules import checkpoint_fetch

from tests.host.hub import Hub
from tests.unit.checkpoint_fetch.repository import REPO, contents
from tests.unit.module_process import module_process


@pytest.fixture
def module(hub: Hub, store: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(**options: Any) -> dict[str, Any]:
        check = options.pop("check_mode", False)
        defaults = {
            "repo_id": REPO,
            "endpoint": hub.endpoint,
            "store": str(store),
            "space_margin_bytes": 0,
            "timeout": 2,
        }
        with module_process({**defaults, **options, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            checkpoint_fetch.main()
        return dict(json.loads(capsys.readouterr().out.strip().splitlines()[-1]))

    return call


def test_what_the_contract_says(module: Any, files: dict[str, bytes], store: Path) -> None:
    dry = module(check_mode=True)
    assert dry["changed"] and dry["bytes_to_download"] == dry["bytes_total"] and not store.exists()
    result = module()
    assert result["changed"] and contents(result["path"]) == files
    assert {"path", "commit", "bytes_total", "bytes_downloaded", "bytes_resumed", "files"} <= set(result)
    assert len(result["files"]) == len(files)
    assert not module()["changed"]
    assert module(state="absent", revision="*")["removed"] == [result["commit"]]
    assert not module(state="absent", revision="*")["changed"]


def test_failures_are_structured_and_hold_no_token(module: Any, hub: Hub) -> None:
    result = module(token="hf_very_secret")
    assert result["failed"] and result["failure"]["code"] == "token_refused"
    assert "hf_very_secret" not in json.dumps({**result, "invocation": None})
    assert result["invocation"]["module_args"]["token"] == "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


def test_the_token_from_a_file_or_the_environment(
    module: Any, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.tokens = {"hf_good": "ann"}
    hub.gated = {REPO: {"ann"}}
    assert module(token_file=str(tmp_path / "none"))["failure"]["code"] == "token_file_unreadable"
    (tmp_path / "token").write_text("hf_good\n")
    assert module(token_file=str(tmp_path / "token"))["changed"]
    module(state="absent", revision="*")
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert module()["changed"]


class Script(action.ActionModule):
    """The action plugin over answers that were written down; an exception among them is raised."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []

    def _look(self, options: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        self.asked.append(dict(options))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


def test_a_lost_connection_ends_neither_the_transfer_nor_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(action.display, "display", shown.append)
    monkeypatch.setattr(action.time, "sleep", lambda seconds: None)
    lost = AnsibleConnectionFailure("gone")
    script = Script([lost, lost, {"finished": True, "changed": True}])

    class Connection:
        resets = 0

        def reset(self) -> None:
            self.resets += 1

    script._connection = Connection()
    assert script._patient_look({}, None) == {"finished": True, "changed": True}
    assert script._connection.resets == 2
    assert len(shown) == 1 and "the transfer goes on" in shown[0]


def test_one_line_each_half_minute_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    shown: list[tuple[float, str]] = []
    monkeypatch.setattr(action.display, "display", lambda line: shown.append((now[0], line)))
    monkeypatch.setattr(action.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(action.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(action.ActionBase, "run", lambda self, tmp, task_vars: {})
    progress = {
        "bytes_done": 212_400_000_000,
        "bytes_total": 540_100_000_000,
        "files_done": 47,
        "files_total": 119,
        "bytes_per_second": 812_000_000,
        "seconds_left": 40_000,
    }

    class SlowLooks(Script):
        def _look(self, options: dict[str, Any], task_vars: Any) -> dict[str, Any]:
            now[0] += 2.0
            done = now[0] > 1200.0
            return {"finished": done, "job": "j", "progress": progress, "changed": done}

    script = SlowLooks([])
    script._task = SimpleNamespace(check_mode=False, args={"background": True, "progress_interval": 30})
    assert script.run(None, {"inventory_hostname": "gpu-server-number-one.example.com"})["changed"]
    assert all(30 <= later[0] - sooner[0] <= 34 for sooner, later in zip(shown, shown[1:], strict=False))
    assert len(shown) in (6, 7) and all(len(line) <= 80 for _, line in shown)
    assert "gpu-server" in shown[0][1] and "812 MB/s" in shown[0][1] and "11 h 6 min left" in shown[0][1]
