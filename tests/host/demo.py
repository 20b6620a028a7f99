"""`make demo`: a test host on this machine becomes a running, verified vLLM service; `make demo-down` removes it.

The host travels the road twice: first with its checkpoint as shipped, whose metadata makes vLLM keep the KV cache in FP8, then with the
policy of inventories/demo, which strips that. Both figures are vLLM's own, as its log printed them and the host recorded them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import yaml

from tests.host import paths
from tests.host.background import Background

HOST = "demo"
HUB_PORT = 8081
INVENTORY = paths.CHECKOUT / "inventories/demo"
REPORTS = paths.CHECKOUT / "reports"
TESTHOST = paths.CHECKOUT / "tests/host/testhost"
QUESTION = "What is the capital of France?"
HUB = Background("demo-hub")


def _testhost(*words: str) -> str:
    return subprocess.run([TESTHOST, *words], check=True, capture_output=True, text=True).stdout


def _on_host(*words: str) -> str:
    return _testhost("login", HOST, "--", *words)


def _hosts() -> dict[str, str]:
    return {host["name"]: host["status"] for host in json.loads(_testhost("list", "--json"))}


def _start_host() -> None:
    status = _hosts().get(HOST)
    if status == "running":
        return
    if status:
        _testhost("destroy", HOST)
    print("demo: booting the test host", flush=True)
    subprocess.run(
        [TESTHOST, "create", HOST, "--ro", f"{paths.CACHE / 'wheels'}:/mnt/wheels"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _start_hub() -> str:
    address = json.loads(_testhost("network"))["address"]
    HUB.ensure([sys.executable, "-m", "tests.host.hub", "--listen", f"{address}:{HUB_PORT}"], ready="hub: ready")
    return f"http://{address}:{HUB_PORT}"


def _write_inventory(endpoint: str) -> None:
    inventory = yaml.safe_load(_testhost("inventory", HOST))
    inventory["all"]["children"]["vllm"]["hosts"][HOST]["vllm_hub_endpoint"] = endpoint
    (INVENTORY / "hosts.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))


def _converge(*options: str) -> None:
    command = ["ansible-playbook", "-i", str(INVENTORY), "site.yml", *options]
    print(f"\ndemo: {' '.join(['ansible-playbook', '-i', 'inventories/demo', 'site.yml', *options])}", flush=True)
    subprocess.run(command, cwd=paths.CHECKOUT, check=True)


def _measured() -> dict[str, dict[str, Any]]:
    """What vLLM printed at the last start, by the state of the checkpoint: ``original`` and ``stripped``."""
    text = _on_host("sh", "-c", "cat /var/lib/vllm/measured/*.json 2>/dev/null || true")
    decoder, records = json.JSONDecoder(), {}
    while text := text.lstrip():
        record, end = decoder.raw_decode(text)
        records[record["key"]["checkpoint_state"]] = record
        text = text[end:]
    return records


def _ask() -> str:
    body = {
        "model": yaml.safe_load((INVENTORY / "group_vars/vllm.yml").read_text())["vllm_model"],
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 64,
    }
    answer = _on_host(
        "curl",
        "-fsS",
        "http://127.0.0.1:8000/v1/chat/completions",
        "-H",
        "Content-Type: application/json",
        "-d",
        json.dumps(body),
    )
    return json.loads(answer)["choices"][0]["message"]["content"].strip()


def _show(seconds: float) -> None:
    measured = _measured()
    report = json.loads(_on_host("cat", "/var/lib/vllm/reports/demo/latest.json"))
    tokens = {state: record["kv_cache_tokens"] for state, record in measured.items()}
    unit = _on_host("systemctl", "is-active", "vllm-demo.service").strip()
    missed = [warning.partition(":")[0] for warning in report["warnings"]]
    verdict = report["verdict"] + (f": {', '.join(missed)} (too much for a model of this size)" if missed else "")
    print(f"""
The demo, after {seconds:.0f} s
  unit                vllm-demo.service: {unit}
  KV cache, shipped   {tokens["original"]:>9,} tokens (FP8, which the checkpoint's metadata selects)
  KV cache, stripped  {tokens["stripped"]:>9,} tokens (16 bit; the server that runs now)
  question            {QUESTION}
  answer              {_ask()}
  speed               {report["probe"]["tokens_per_second"]:.1f} tokens/s, first token after {report["probe"]["time_to_first_token_s"]:.2f} s
  verdict             {verdict}
  report              {REPORTS.relative_to(paths.CHECKOUT)}/{HOST}/demo/latest.html

  log in              tests/host/testhost login {HOST}
  again               make demo (changes nothing); make demo-down (removes everything)""")


def up() -> None:
    """Make what is missing, converge, show."""
    begin = time.monotonic()
    os.environ.setdefault("ANSIBLE_CONFIG", str(paths.CHECKOUT / "ansible.cfg"))
    _start_host()
    _write_inventory(_start_hub())
    if "original" not in _measured():
        _converge("-e", "plan_kv_cache_policy=keep", "--skip-tags", "verify")
    _converge()
    _show(time.monotonic() - begin)


def down() -> None:
    """Remove the host, the Hub, the inventory and the reports; nothing is left when there was nothing."""
    HUB.stop()
    if HOST in _hosts():
        _testhost("destroy", HOST)
    (INVENTORY / "hosts.yml").unlink(missing_ok=True)
    shutil.rmtree(REPORTS / HOST, ignore_errors=True)
    print("demo: removed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.host.demo", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    {"up": up, "down": down}[parser.parse_args().command]()


if __name__ == "__main__":
    main()
