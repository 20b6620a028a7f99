# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures that vLLM prints about itself at a start, over all its workers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

from .log_patterns_data import MEASURED

#: No figure of a log is larger.
_TOO_MUCH = 10**15


def _number(text: str) -> int:
    """A whole number; ValueError for what is none, or none of a log."""
    number = int(text.replace(",", ""))
    if number >= _TOO_MUCH:
        raise ValueError("no figure of a log")
    return number


def _figure(text: str) -> float:
    figure = float(text)
    if not abs(figure) < _TOO_MUCH:
        raise ValueError("no figure of a log")
    return figure


_COMPILED = [(key, anchor, re.compile(regex)) for key, anchor, regex in MEASURED]
_CONFIG_KEYS: dict[str, Callable[[str], Any]] = {  # of the line "Initializing a V1 LLM engine (v…) with config: …"
    "kv_cache_dtype": str,
    "quantization": str,
    "dtype": str,
    "tensor_parallel_size": _number,
    "pipeline_parallel_size": _number,
    "data_parallel_size": _number,
    "max_seq_len": _number,
    "enforce_eager": lambda value: value == "True",
}


class Measurements:
    """Collects figures line by line; the last word of each worker counts.

    `result()` holds only what was printed:
        weights_gib: weights of the fullest worker, GiB. weights_gib_by_worker: per process.
        load_seconds: until the slowest worker had its weights in place. weights_read_seconds: reading the files alone.
        available_kv_gib: KV cache memory of the worker with the least, GiB. available_kv_gib_by_worker: per process.
        kv_cache_tokens, max_concurrency, max_model_len: capacity as vLLM prints it (with data parallelism: of one engine).
        kv_cache_device: `GPU`, `CPU`, ...
        graph_gib, graph_seconds: CUDA graphs of the fullest, of the slowest worker.
        init_engine_seconds: profile, KV cache and warm-up.
        attention_backend, vllm_version, kv_cache_dtype, quantization, dtype, tensor_parallel_size, pipeline_parallel_size,
        data_parallel_size, max_seq_len, enforce_eager.
    """

    def __init__(self) -> None:
        self._by_worker: dict[str, dict[str, float]] = {}
        self._values: dict[str, Any] = {}

    def take(self, stream: str, text: str) -> None:
        """Read the figures of one line; ``stream`` tells the workers apart."""
        for key, anchor, regex in _COMPILED:
            if anchor in text:
                match = regex.search(text)
                if match is not None:
                    # The log says what it likes, a crash may cut a line: what is no figure is none.
                    with contextlib.suppress(ValueError):
                        self._store(key, stream, match)

    def _worker(self, name: str, stream: str, value: float) -> None:
        self._by_worker.setdefault(name, {})[stream] = value

    def _store(self, key: str, stream: str, match: re.Match[str]) -> None:
        values = self._values
        if key == "weights":
            size, seconds = _figure(match["gib"]), _figure(match["seconds"])
            self._worker("weights_gib", stream, size)
            self._worker("load_seconds", stream, seconds)
        elif key == "weights_read":
            self._worker("weights_read_seconds", stream, _figure(match["seconds"]))
        elif key in ("available_kv", "cpu_kv"):
            self._worker("available_kv_gib", stream, _figure(match["gib"]))
        elif key == "graph":
            size, seconds = _figure(match["gib"]), _figure(match["seconds"])
            self._worker("graph_gib", stream, size)
            self._worker("graph_seconds", stream, seconds)
        elif key == "init_engine":
            self._worker("init_engine_seconds", stream, _figure(match["seconds"]))
        elif key == "kv_tokens":
            values.update(kv_cache_tokens=_number(match["tokens"]), kv_cache_device=match["device"])
        elif key == "concurrency":
            length, concurrency = _number(match["max_model_len"]), _figure(match["concurrency"])
            values.update(max_model_len=length, max_concurrency=concurrency)
        elif key == "backend":
            values["attention_backend"] = match["backend"]
        elif key == "engine":
            values["vllm_version"] = match["version"]
            values.update(_engine_config(match["config"]))

    def result(self) -> dict[str, Any]:
        result = dict(self._values)
        for name, workers in self._by_worker.items():
            pick = min if name == "available_kv_gib" else max
            result[name] = pick(workers.values())
            if len(workers) > 1 and name in ("weights_gib", "available_kv_gib"):
                result[name + "_by_worker"] = list(workers.values())
        return result


def _engine_config(config: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, convert in _CONFIG_KEYS.items():
        match = re.search(rf"\b{key}=([^,\s]+)", config)
        if match is not None and match[1] != "None":
            with contextlib.suppress(ValueError):
                found[key] = convert(match[1].strip("'\"").replace("torch.", ""))
    return found
