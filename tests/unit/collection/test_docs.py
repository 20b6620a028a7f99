"""The docs name what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]


def failure_codes() -> set[str]:
    """The code of every VllmHostError, or of a class derived from it, that the sources make."""
    trees = [ast.parse(path.read_text()) for path in (CHECKOUT / "plugins").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    errors = {"VllmHostError"} | {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "VllmHostError" for base in node.bases)
    }
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") in errors and node.args
    ]
    return {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}


def test_every_failure_code_is_explained():
    page = (CHECKOUT / "docs/troubleshooting.md").read_text()
    explained = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", page))
    assert sorted(failure_codes() - explained) == []


def test_no_explained_code_is_a_dead_one():
    page = (CHECKOUT / "docs/troubleshooting.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    explained = {code for row in rows for code in re.findall(r"`([a-z]+(?:_[a-z]+)*)`", row.split("|")[1])}
    sources = "\n".join(path.read_text() for path in (CHECKOUT / "plugins").rglob("*.py"))
    assert [code for code in sorted(explained) if f'"{code}"' not in sources] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_and_playbooks_in_the_docs_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    playbooks = {path.stem for path in (CHECKOUT / "playbooks").glob("*.yml")}
    named = re.findall(r"ansible-playbook[^\n]*?gpuhost\.vllm\.([a-z_]+)", text)
    assert set(named) <= playbooks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_in_the_docs_exist(page):
    """A variable of a role that the docs name is one of the role's."""
    known = set()
    for specs in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        known |= set(re.findall(r"^      ([a-z_]+):$", specs.read_text(), re.MULTILINE))
    roles = sorted(path.name for path in (CHECKOUT / "roles").iterdir())
    named = set(re.findall(rf"\b((?:{'|'.join(roles)})_[a-z_]+)\b", page.read_text()))
    modules = {path.stem for path in (CHECKOUT / "plugins").rglob("*.py")}
    assert sorted(named - known - modules - set(roles)) == []
