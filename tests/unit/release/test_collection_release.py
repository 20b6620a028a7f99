# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as people get it: built from what is committed, installed where nothing else is, and used from there by its full name."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.host.hub import Hub
from tests.host.paths import CHECKOUT
from tests.hub_models import add_model
from tests.release import build, clean_environment, committed_files, copy_committed, install

BIN = Path(sys.executable).parent
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
CHANGELOG = yaml.safe_load((CHECKOUT / "changelogs/changelog.yaml").read_text())
PLAYBOOKS = sorted(path.stem for path in (CHECKOUT / "playbooks").glob("*.yml"))
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir() if path.is_dir())
KINDS = {"module": "modules", "lookup": "lookup", "filter": "filter"}

# Left behind by work in a checkout; see .gitignore.
LEFT_BEHIND = [
    ".venv/lib/x.py",
    ".cache/x",
    ".collections/x",
    ".hypothesis/x",
    ".mypy_cache/x.json",
    ".pytest_cache/x",
    ".ruff_cache/x",
    "plugins/modules/__pycache__/x.pyc",
    "gpuhost-vllm-0.0.9.tar.gz",
    "inventories/demo/hosts.yml",
    "tests/output/x.log",
    "reports/x.html",
    "changelogs/.plugin-cache.yaml",
]


def names(kind: str) -> list[str]:
    """Full names of the collection's plugins of a kind."""
    return sorted(f"gpuhost.vllm.{path.stem}" for path in (CHECKOUT / "plugins" / KINDS[kind]).glob("[!_]*.py"))


def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed files, where antsibull-docs and ansible-galaxy want them, and what work leaves behind."""
    folder = copy_committed(tmp_path_factory.mktemp("source") / "ansible_collections/gpuhost/vllm")
    for path in LEFT_BEHIND:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}\n")
    return folder


@pytest.fixture(scope="module")
def tarball(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tarball = build(source, tmp_path_factory.mktemp("built"))
    assert tarball.name == f"gpuhost-vllm-{GALAXY['version']}.tar.gz"
    return tarball


@pytest.fixture(scope="module")
def empty(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a command in an empty folder of a user who has this collection and no other."""
    home = tmp_path_factory.mktemp("home")
    env = clean_environment(home, ANSIBLE_COLLECTIONS_PATH=str(home / "collections"))
    install(tarball, home / "collections", env)
    work = home / "work"
    work.mkdir()
    return lambda command, *arguments: run(BIN / command, *arguments, cwd=work, env=env)


def test_everything_that_git_ignores_is_left_behind_here() -> None:
    ignored = [line.strip("/") for line in (CHECKOUT / ".gitignore").read_text().splitlines() if line]
    covered = [pattern for pattern in ignored if any(_matches(path, pattern) for path in LEFT_BEHIND)]
    assert covered == ignored


def _matches(path: str, pattern: str) -> bool:
    places = [path, Path(path).name, *map(str, Path(path).parents), *(parent.name for parent in Path(path).parents)]
    return any(fnmatch.fnmatch(place, pattern) for place in places)


@pytest.mark.slow
def test_tarball_has_what_is_committed_and_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        packed = {member.name for member in archive if member.isfile()} - {"MANIFEST.json", "FILES.json"}
    wanted = {
        path
        for path in committed_files()
        if path != "galaxy.yml" and not any(_matches(path, pattern) for pattern in GALAXY["build_ignore"])
    }
    assert packed == wanted
    assert {"roles/plan/tasks/main.yml", "recipes/kimi-k2.5-nvfp4.yml", "meta/execution-environment.yml"} <= packed


@pytest.mark.slow
def test_galaxy_importer_passes_without_a_warning(tarball: Path, tmp_path: Path) -> None:
    settings = {"GALAXY_IMPORTER_TMP_ROOT_DIR": str(tmp_path), "PATH": f"{BIN}:/usr/bin:/bin"}
    said = run(
        sys.executable,
        "-m",
        "galaxy_importer.main",
        tarball.name,
        cwd=tarball.parent,
        env=clean_environment(tmp_path / "home", **settings),
    )
    assert "Importer processing completed successfully" in said
    assert re.findall(r"^(?:WARNING|ERROR).*", said, re.MULTILINE) == []


@pytest.mark.slow
def test_docs_of_every_module_and_role_render(source: Path, tmp_path: Path) -> None:
    options = ["--plugin-docs", "--validate-collection-refs", "self"]
    env = clean_environment(tmp_path, PATH=f"{BIN}:/usr/bin:/bin")
    assert run(BIN / "antsibull-docs", "lint-collection-docs", *options, ".", cwd=source, env=env) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "role"])
def test_ansible_doc_knows_everything_by_its_full_name(kind: str, empty: Callable[..., str]) -> None:
    asked = [f"gpuhost.vllm.{role}" for role in ROLES] if kind == "role" else names(kind)
    said = empty("ansible-doc", "--type", kind, "--json", *asked)
    docs = json.loads(said)
    assert sorted(docs) == sorted(asked)
    for name, doc in docs.items():
        text = doc["entry_points"]["main"] if kind == "role" else doc["doc"]
        assert text["short_description"], name
    page = empty("ansible-doc", "--type", kind, *asked)
    assert all(name in page for name in asked)


@pytest.mark.slow
def test_every_playbook_is_found_by_its_full_name(empty: Callable[..., str]) -> None:
    playbooks = [f"gpuhost.vllm.{name}" for name in PLAYBOOKS if name != "awx"]  # that one needs awx.awx
    said = empty("ansible-playbook", "--syntax-check", "-i", "gpu1,", *playbooks)
    assert said.count("playbook: ") == len(playbooks)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    add_model(root, "nvidia/Kimi-K2.5-NVFP4", "kimi25-tp8-auto")
    with Hub(root) as running:
        yield running


@pytest.mark.slow
def test_installed_collection_plans_the_reference_deployment(empty: Callable[..., str], hub: Hub) -> None:
    asked = {"vllm_model": "nvidia/Kimi-K2.5-NVFP4", "gpus": "8x96GB", "vllm_hub_endpoint": hub.endpoint}
    said = empty("ansible-playbook", "gpuhost.vllm.plan", "-e", json.dumps(asked))
    assert "8 x RTX PRO 6000 Blackwell Server Edition" in said
    assert "tensor parallel  8" in said and "failed=0" in said
    assert f"at {hub.repository('nvidia/Kimi-K2.5-NVFP4').commit('main').sha[:12]}" in said  # type: ignore[union-attr]


@pytest.mark.slow
def test_changelog_is_in_order_and_fresh(source: Path, tmp_path: Path) -> None:
    env = clean_environment(tmp_path, PATH=f"{BIN}:/usr/bin:/bin")
    run(BIN / "antsibull-changelog", "lint", cwd=source, env=env)
    run(BIN / "antsibull-changelog", "lint-changelog-yaml", "changelogs/changelog.yaml", cwd=source, env=env)
    run(
        BIN / "antsibull-changelog",
        "generate",
        "--refresh-fragments",
        "--output",
        tmp_path / "fresh.md",
        cwd=source,
        env=env,
    )
    assert (tmp_path / "fresh.md").read_text() == (CHECKOUT / "CHANGELOG.md").read_text(), "run: make changelog"


def test_changelog_names_everything_that_is_new() -> None:
    release = CHANGELOG["releases"][GALAXY["version"]]
    listed = {
        "module": release["modules"],
        "lookup": release["plugins"]["lookup"],
        "filter": release["plugins"]["filter"],
    }
    for kind, items in listed.items():
        assert [f"gpuhost.vllm.{item['name']}" for item in items] == names(kind), "run: make changelog"
    assert [item["name"] for item in release["objects"]["role"]] == ROLES
    assert sorted(release["fragments"]) == sorted(
        path.name for path in (CHECKOUT / "changelogs/fragments").iterdir()
    ), "run: make changelog"
    told = " ".join(release["changes"]["minor_changes"])
    assert [role for role in ROLES if role not in told and role != "tools"] == []  # tools only serves the other roles


def test_version_is_the_first_release() -> None:
    assert GALAXY["version"] == "0.1.0" == list(CHANGELOG["releases"])[-1]
