# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role serve refuses before anything is looked at: the conditions themselves, templated by Ansible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 templates every text

    def trust_as_template(value: Any) -> Any:
        return value


ROLE = Path(__file__).parents[3] / "roles/serve"
SECRET = "sk-SECRETSECRET"
GOOD: dict[str, Any] = {
    "serve_instance": "kimi-k25",
    "serve_port": 8000,
    "serve_host": "127.0.0.1",
    "serve_api_key": "",
    "serve_user": "vllm",
    "serve_model_name": "nvidia/Kimi-K2.5-NVFP4",
    "serve_model_path": "/var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/views/kimi-k25+0f1e2d3c4b5a-stripped-0123456789",
    "serve_model_revision": "0" * 40,
    "serve_release": "/opt/vllm/releases/0.32.0-c43956a59b8e",
    "serve_engine_args": {},
    "serve_env": {"VLLM_LOGGING_LEVEL": "DEBUG"},
    "serve_gpus": [0, 1],
    "ansible_check_mode": False,
    "__serve_all_engine_args": {"trust_remote_code": True},
}


def refused(**changes: Any) -> list[str]:
    """The messages of the conditions that do not hold."""
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    own = ("__serve_loopback", "__serve_reserved_args", "__serve_secret_names")
    rows = variables["__serve_rules"] + variables["__serve_late_rules"]
    known = {name: variables[name] for name in own}
    trusted = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in known.items()}
    templar = Templar(DataLoader(), {**trusted, **GOOD, **changes})
    return [
        str(templar.template(trust_as_template(row["otherwise"])))
        for row in rows
        if not templar.template(trust_as_template(row["that"]))
    ]


def test_the_usual_is_not_refused() -> None:
    assert refused() == []
    assert refused(serve_host="::", serve_api_key=SECRET, serve_model_name="", serve_env={}, serve_gpus=[]) == []
    assert refused(serve_api_key='key of the $test "100%"') == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("serve_instance", value) for value in ("", "../x", "a b", "UPPER", "a\n", "-a", "a" * 41, "ü")),
        *(
            ("serve_release", value)
            for value in ("/opt/a b", "opt/x", "/opt/x\nUser=root", "/opt/%i", "/opt/$HOME", '/opt/"x')
        ),
        *(("serve_user", value) for value in ("", "vllm\n", "a b", "root\nUser=x", "%i")),
        *(("serve_host", value) for value in ("", "127.0.0.1 x", "127.0.0.1\n", "$HOST")),
        *(("serve_model_name", value) for value in ("x\nExecStartPre=/bin/sh", "x\r", "\x00", "x\x7f")),
        ("serve_model_path", "/srv/x\ny"),
        *(("serve_api_key", SECRET + value) for value in ("\n", " ", "\r\nX: y", "é")),
        *(("serve_env", {value: SECRET}) for value in ("VLLM_API_KEY", "HF_TOKEN")),
        ("serve_model_revision", "0" * 40 + "\n"),
    ],
)
def test_what_would_become_something_else_is_refused_without_secrets(name: str, value: Any) -> None:
    told = refused(**{name: value})
    assert told and SECRET not in str(told)


@pytest.mark.parametrize("name", ["50 % \"quoted\" 'model' $HOME `x` ü \\", "{{ 7 * 7 }}", "a" * 500])
def test_other_characters_of_a_model_s_name_do_no_harm(name: str) -> None:
    assert refused(serve_model_name=name) == []
