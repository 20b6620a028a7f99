"""The code on a host is one zip that depends on the code alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from ansible_collections.gpuhost.vllm.plugins.action.tools_code import zip_package

MODULE_UTILS = Path(__file__).resolve().parents[3] / "plugins/module_utils"


def test_same_code_gives_the_same_bytes_whatever_its_times(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    first = zip_package(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "notes.txt").write_text("not code")
    assert zip_package(tmp_path) == first


def test_every_module_of_ours_imports_from_the_zip_alone(tmp_path):
    """Units and transfers import it without Ansible and without the checkout on their path."""
    archive = tmp_path / "code.zip"
    archive.write_bytes(zip_package(MODULE_UTILS))
    names = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in zipfile.ZipFile(archive).namelist()
    ]
    program = (
        "import importlib, sys\nsys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "assert not any(name.startswith('ansible') for name in sys.modules), 'imports Ansible'\n"
    )
    subprocess.run([sys.executable, "-c", program, str(archive), *names], check=True, cwd=tmp_path, env={})
