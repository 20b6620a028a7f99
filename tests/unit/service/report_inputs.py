"""What the modules return for the reference deployment, to build reports from."""

from __future__ import annotations

import copy
from typing import Any

GIB = 1 << 30
MODEL = "nvidia/Kimi-K2.5-NVFP4"
COMMIT = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"


def check(name: str, verdict: str = "passed", required: bool = True, reason: str = "as expected") -> dict[str, Any]:
    exchange = {
        "prompt": f"A question of {name}?",
        "answer": f"An answer of {name}.",
        "reasoning": "Let me think." if name == "factual" else "",
    }
    return {
        "id": name, "title": f"Title of {name}", "verdict": verdict, "reason": reason, "required": required,
        "prompt": exchange["prompt"], "answer": exchange["answer"], "exchanges": [exchange], "seconds": 1.0,
    }  # fmt: skip


def found(**changes: Any) -> dict[str, Any]:
    """Everything that `build_report` takes; ``changes`` replace parts."""
    options = {
        "tensor_parallel_size": 8, "max_model_len": 131072, "gpu_memory_utilization": 0.95, "reasoning_parser": "kimi_k2",
        "tool_call_parser": "kimi_k2", "enable_auto_tool_choice": True, "kv_cache_dtype": "bfloat16", "served_model_name": [MODEL],
    }  # fmt: skip
    everything: dict[str, Any] = {
        "instance": "kimi-k25",
        "host": "gpu1.example.com",
        "generated_at": "2026-12-02T04:20:31Z",
        "required_checks": ["service", "install", "log", "factual", "creative"],
        "expected_tokens_per_second": 60,
        "service": {
            "unit": "vllm-kimi-k25.service", "active": True, "url": "http://127.0.0.1:8000", "model": MODEL, "restarts": 0,
            "model_path": "/var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/views/0f1e2d3c-stripped", "revision": COMMIT,
            "options": options, "release": "/opt/vllm/releases/0.32.0-c43956a59b8e", "release_id": "0.32.0-c43956a59b8e", "gpus": [],
            "device": "cuda", "start_id": "0f1e", "start_seconds": 612.4,
        },
        "plan": {
            "model": MODEL, "revision": COMMIT, "checkpoint_state": "stripped", "kv_cache_dtype": "bfloat16", "load_seconds_expected": 560,
            "kv_decision": {
                "policy": "auto",
                "reason": "On compute capability 12.0 the release offers TRITON_MLA alone, which does not take FP8 there.",
                "source": "vllm/v1/attention/backends/mla/triton_mla.py",
            },
            "budget": {
                "weights_bytes_per_gpu": [int(66.2 * GIB)] * 8, "available_kv_cache_bytes": int(11.2 * GIB), "kv_cache_tokens": 171136,
                "max_concurrency": 1.31,
            },
        },
        "view": {
            "edits": [
                {"file": "config.json", "key": "quantization_config.kv_cache_scheme", "before": {"type": "float", "num_bits": 8}, "after": None},
                {"file": "hf_quant_config.json", "key": "quantization.kv_cache_quant_algo", "before": "FP8", "after": None},
            ]
        },
        "gpus": {
            "driver_version": "580.95.05", "cuda_version": "13.0", "container": "lxc",
            "gpus": [
                {
                    "index": i, "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "total_bytes": 97887 << 20,
                    "reserved_bytes": 639 << 20, "used_bytes": int((86.5 + i * 0.2) * GIB),
                }
                for i in range(8)
            ],
            "problems": [
                {
                    "id": "acs_redirect", "severity": "warning", "gpus": [],
                    "found": "ACS redirects the peer traffic of 8 GPUs to the root complex.",
                    "cost": "Peer-to-peer copies run at the speed of the root complex, or hang.", "remedy": "Switch ACS redirection off.",
                }
            ],
        },
        "install": {
            "clean": True, "files": 35338, "torch": "2.13.0+cu130", "cuda": "13.0", "triton": "3.9.0", "flashinfer": "0.6.1",
            "python": "3.12.3", "version": "0.32.0", "modified_files": [], "missing_files": [], "foreign_files": [], "editable": [],
            "mixed": [], "gpu_fit": [{"compute_capability": "12.0", "supported": True, "how": "machine code for 12.0"}],
        },
        "log": {
            "verdict": "healthy", "cause": None, "lines": 1234,
            "findings": [
                {
                    "id": "autotuner_tactic_skipped", "severity": "harmless", "count": 42,
                    "meaning": "FlashInfer tried kernels that need more shared memory than this GPU has and uses others (known on SM120).",
                    "remedy": "Nothing to do.", "example": "[Autotuner]: Skipping tactic <x> 14", "source": "flashinfer#2077",
                }
            ],
            "measured": {
                "weights_gib": 65.94, "available_kv_gib": 11.7, "kv_cache_tokens": 178768, "max_concurrency": 1.36, "max_model_len": 131072,
                "load_seconds": 537.1, "graph_gib": 1.62, "attention_backend": "TRITON_MLA", "vllm_version": "0.32.0",
                "available_kv_gib_by_worker": [11.7 + i * 0.01 for i in range(8)],
            },
        },
        "probe": {
            "verdict": "passed", "model": MODEL, "max_model_len": 131072, "failures": [], "warnings_found": [],
            "tokens_per_second": 61.3, "time_to_first_token_s": 0.142,
            "checks": [check("models"), check("factual"), check("creative"), check("multi_step", required=False)],
            "speed": [
                {"concurrency": 1, "time_to_first_token_s": 0.142, "tokens_per_second": 61.3, "total_tokens_per_second": 59.8, "error": ""},
                {"concurrency": 4, "time_to_first_token_s": 0.31, "tokens_per_second": 44.2, "total_tokens_per_second": 170.4, "error": ""},
                {"concurrency": 8, "time_to_first_token_s": 0.55, "tokens_per_second": 35.9, "total_tokens_per_second": 274.0, "error": ""},
            ],
        },
        "bench": {
            "points": [
                {
                    "concurrency": 16, "completed": 64, "failed": 0, "output_tokens_per_second": 431.7, "total_tokens_per_second": 2158.2,
                    "median_ttft_ms": 802.4, "p99_ttft_ms": 1300.0, "median_tpot_ms": 33.8,
                }
            ]
        },
        "previous": "",
    }  # fmt: skip
    return {**copy.deepcopy(everything), **changes}
