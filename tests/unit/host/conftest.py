"""Fixtures of the test host's own tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host import image

Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def fake_nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fake NVML as the image step builds it."""
    folder = tmp_path_factory.mktemp("nvml")
    image.build_fake_nvml(folder / "libnvidia-ml.so.1")
    return folder


@pytest.fixture
def ask(fake_nvml_folder: Path, tmp_path: Path) -> Ask:
    """Evaluate an expression with the real pynvml (`n`) on the fake library, in a process of its own.

    `ask(expression, config)`: `config` is the JSON file's content (None: there is no file); in the expression `gpu(i)` is a
    handle. The answer is what the expression gave, or the name of the NVMLError it raised.
    """
    program = (
        "import json, sys, time\n"
        "import pynvml as n\n"
        "gpu = n.nvmlDeviceGetHandleByIndex\n"
        "try:\n"
        "    n.nvmlInit()\n"
        "    answer = eval(sys.argv[1])\n"
        "except n.NVMLError as error:\n"
        "    answer = type(error).__name__\n"
        "print(json.dumps(answer))\n"
    )

    def ask(expression: str, config: object = None) -> Any:
        path = tmp_path / "gpus.json"
        path.unlink(missing_ok=True)
        if config is not None:
            path.write_text(config if isinstance(config, str) else json.dumps(config))
        environment = {**os.environ, "LD_LIBRARY_PATH": str(fake_nvml_folder), "FAKE_NVML_CONFIG": str(path)}
        command = [sys.executable, "-W", "ignore", "-c", program, expression]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask
