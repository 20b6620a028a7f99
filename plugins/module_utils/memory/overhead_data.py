# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the memory outside weights and KV cache that no formula gives: measured, or read in a release.

"H200" means: measured with vLLM 0.23.0 on one H200, TP 1, 16-bit models (28 of these runs are kept as tests). "rtx6kpro" means: the
public logs and tables of 8 x RTX PRO 6000 hosts, github.com/local-inference-lab/rtx6kpro, models/kimi-k2*.md.
"""

from __future__ import annotations

MIB = 2**20
GIB = 2**30

#: Memory of one process that PyTorch does not own, in bytes, without NCCL; the older runner's graphs add a little. Source: H200.
NON_TORCH_BYTES = 230 * MIB
NON_TORCH_GRAPHS_BYTES = 2 * MIB
NON_TORCH_HIGH_BYTES = 238 * MIB

#: NCCL, all-reduce buffers and their workspaces for each other GPU of the tensor-parallel group: (low, expected, high).
#: Source: rtx6kpro; Kimi-K2.6 at TP 8, graphs not deducted, leaves 0.3 to 0.6 GiB beside what the formulas explain.
COLLECTIVES_BYTES_PER_PEER = (16 * MIB, 56 * MIB, 112 * MIB)

#: Rounding of PyTorch's allocator while the weights are loaded: (low, expected, high). Source: H200, up to 85 MiB.
LOAD_SLACK_BYTES = (0, 24 * MIB, 85 * MIB)

#: Allocated beside every forward pass. Source: H200.
FORWARD_BASE_BYTES = 32 * MIB

#: The share of an activation forecast by which the runs with formulas of their own (TP 1) miss it. Source: H200 (0.9 MiB on average).
MEASURED_TOLERANCE = 0.02

#: Multimodal models keep the encoder's outputs while the language model is profiled, and the encoder itself may need more
#: than the language model does: (low, high) beyond the outputs. Not measured alone; bounded by the reference deployment.
ENCODER_EXTRA_BYTES = (0, 850 * MIB)

#: Fraction of the sampler's older figure that a release before 0.20 may not have needed, and what else its profile may have
#: counted. Not measured; bounded by the reference deployment (7.7 GiB outside weights and cache).
UNMEASURED_OLD_PROFILE_BYTES = (0, 300 * MIB, 1640 * MIB)

#: First PIECEWISE capture and each further graph, in bytes, older model runner; FULL graphs grow with the layers from 1 to 4
#: MiB (8 layers 1, 32 layers 4; MLA with 4 layers 2.6). Source: H200.
PIECEWISE_FIRST_BYTES = 2 * MIB
PIECEWISE_GRAPH_BYTES = 1 * MIB
FULL_GRAPH_BYTES_PER_LAYER = MIB / 8
FULL_GRAPH_LOW_BYTES = 1 * MIB
FULL_GRAPH_LOW_BYTES_MLA = 2.6 * MIB
FULL_GRAPH_HIGH_BYTES = 4 * MIB

#: The first FULL capture of MLA with many sequences took twice its formula. Source: H200, cause unknown; 1 at 64 sequences.
MLA_FULL_CAPTURE_FACTOR = 2
MLA_FULL_CAPTURE_FACTOR_FROM = 512

#: All graphs of the newer model runner: a base and a share for each layer. Source: H200 (8 and 32 layers).
V2_GRAPHS_BASE_BYTES = 722 * MIB
V2_GRAPHS_BYTES_PER_LAYER = 8.75 * MIB

#: Graph capture beside NCCL (TP > 1), and the newer runner's estimate, were not measured: (low, high) as factors of the expectation.
UNMEASURED_GRAPH_FACTORS = {"v1": (0.6, 2.0), "v2": (0.75, 1.45)}

#: Quantizations whose experts run on kernels with a smaller workspace (Marlin). Source: vLLM's fused_moe/fused_marlin_moe.py.
PACKED_EXPERT_METHODS = ("compressed-tensors", "awq", "awq_marlin", "gptq", "gptq_marlin", "mxfp4")

#: Since which release: which runner is the default, and whether its graphs are taken from the KV budget.
#: ``runner``: ``v1``; ``some``: v2 for V2_ARCHITECTURES when nothing is quantized; ``v2``. Between 0.23 and 0.32 no release was read.
#: Sources: 0.15-0.23 the facts of kv-cache.md 5 and gpu-memory.md; 0.32 config/vllm.py, v1/worker/gpu_worker.py and
#: v1/worker/gpu/cudagraph_utils.py.
RUNNERS: tuple[tuple[str, str, bool, bool], ...] = (
    # since, runner, v1 graphs deducted, v2 graphs deducted
    ("0.0.0", "v1", False, False),
    ("0.20.0", "v1", True, False),
    ("0.23.0", "some", True, False),
    ("0.32.0", "v2", True, True),
)
V2_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM")

#: Streaming multiprocessors by product name (substring) and, failing that, by compute capability. Source: NVIDIA's data sheets.
MULTIPROCESSORS_BY_NAME = (
    ("H200", 132),
    ("H100", 132),
    ("B200", 148),
    ("B300", 148),
    ("RTX PRO 6000", 188),
    ("A100", 108),
    ("L40", 142),
)
MULTIPROCESSORS_BY_CAPABILITY = {(8, 0): 108, (8, 6): 84, (8, 9): 142, (9, 0): 132, (10, 0): 148, (12, 0): 188}
MULTIPROCESSORS_DEFAULT = 132

#: NVML's reserved memory as a share of its total, when the driver does not tell it (NVML v1). Sources: H200 644,939,776 of
#: 150,754,820,096; RTX PRO 6000 97,887 MiB of NVML against 94.97 GiB of CUDA (reported).
RESERVED_BY_CAPABILITY = {(9, 0): 644_939_776 / 150_754_820_096, (12, 0): 1 - 94.97 * GIB / (97_887 * MIB)}
RESERVED_DEFAULT = 0.006
