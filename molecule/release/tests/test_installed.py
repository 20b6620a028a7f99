"""The demo's service, made by the installed collection alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

EPHEMERAL = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INSTALLED = EPHEMERAL / "installed/collections/ansible_collections/gpuhost/vllm"


def test_unit_is_healthy_and_answers(host):
    assert host.service("vllm-demo.service").is_running
    question = {
        "model": "demo/smollm2-135m",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 40,
    }
    url = "http://127.0.0.1:8000/v1/chat/completions"
    said = host.check_output("curl -fsS %s -H 'Content-Type: application/json' -d %s", url, json.dumps(question))
    assert "Paris" in json.loads(said)["choices"][0]["message"]["content"]


def test_every_task_file_came_from_the_installed_collection():
    included = re.findall(r"^included: (/\S+) for ", (EPHEMERAL / "road.log").read_text(), re.MULTILINE)
    assert included and all(Path(path).is_relative_to(INSTALLED) for path in included)


def test_report_came_to_the_controller():
    (page,) = (INSTALLED / "reports").glob("**/latest.html")
    assert "demo/smollm2-135m" in page.read_text()


def test_the_next_run_finds_nothing_but_the_inventory_in_its_folder():
    command = ["ansible-inventory", "-i", INSTALLED / "inventories/demo", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "inventory source" not in done.stderr and "not a valid group" not in done.stderr
    assert set(json.loads(done.stdout)) <= {"_meta", "all", "vllm"}
