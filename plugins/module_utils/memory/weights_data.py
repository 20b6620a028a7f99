# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How vLLM spreads a checkpoint's tensors over the GPUs of a pipeline rank, by tensor name. The first row that matches counts.

Kinds:
    absent      not on the GPU (recomputed, or scales that the cache brings itself)
    replicated  whole on every GPU
    vocabulary  rows padded to 64, then divided by TP
    experts     divided by TP (x DP); with expert parallelism whole experts, spread over TP x DP
    kv_heads    divided by min(TP, KV heads)
    fused_qkv   queries divided by TP, keys and values by min(TP, KV heads)
    vision      divided by TP, or whole with ``mm_encoder_tp_mode: data``
    shared      divided by TP; whole where the experts take their tokens in sequence-parallel slices (EP with TP and DP)
    mamba       divided by TP, after the groups of B and C are repeated until every GPU has one
    divided     divided by TP

Sources are files of vLLM 0.32.0 under ``vllm/model_executor``.
"""

from __future__ import annotations

VISION = r"(?:^|\.)(?:vision_tower|vision_model|visual|vision_encoder|vit|vpm|image_encoder|audio_tower)\."

#: (expression searched in the tensor's name, kind, source)
RULES: tuple[tuple[str, str, str], ...] = (
    (r"rotary_emb\.(?:inv_freq|cos_cached|sin_cached)$", "absent", "layers/rotary_embedding/base.py: recomputed"),
    (
        r"\.(?:k_scale|v_scale|k_proj\.output_scale|v_proj\.output_scale|q_scale|prob_output_scale)$",
        "absent",
        "layers/quantization/kv_cache.py: scalars of the attention layer",
    ),
    (r"(?:^|\.)(?:mm_projector|multi_modal_projector)\.", "replicated", "models/kimi_k25_vit.py: ReplicatedLinear"),
    (
        VISION + r".*(?:patch_embed|pos_emb|position_embedding|class_embedding|norm|ln_)",
        "replicated",
        "models/kimi_k25_vit.py, models/qwen2_5_vl.py",
    ),
    (VISION + r".*(?:proj|wo|fc1|fc2|out_proj)\.bias$", "vision", "layers/linear.py"),
    (VISION, "vision", "models/vision.py: the tower shards as the text model unless asked to run data parallel"),
    (
        r"(?:^|\.)(?:embed_tokens|lm_head|word_embeddings|wte|embeddings|shared_head\.head|tok_embeddings)\.[a-z_]+$",
        "vocabulary",
        "layers/vocab_parallel_embedding.py",
    ),
    (
        r"\.(?:gate|router|router\.layer|shared_expert_gate)\.(?:weight|bias|weight_scale|weight_scale_inv)$",
        "replicated",
        "layers/fused_moe: routers are ReplicatedLinear",
    ),
    (r"e_score_correction_bias$", "replicated", "models/deepseek_v2.py"),
    (r"\.experts\.", "experts", "layers/fused_moe/layer.py"),
    (r"\.block_sparse_moe\.(?:input|output)_linear\.", "experts", "models/granitemoe.py: rewritten into fused experts"),
    (r"\.shared_experts?\.", "shared", "config/parallel.py, use_sequence_parallel_moe; models/deepseek_v2.py"),
    (r"\.(?:mixer|mamba)\.(?:in_proj|conv1d)\.", "mamba", "layers/mamba/mamba_utils.py, extra_groups_for_head_shards"),
    (
        r"\.(?:q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj_with_mqa|eh_proj)\.",
        "replicated",
        "models/deepseek_v2.py: ReplicatedLinear",
    ),
    (r"\.indexer\.", "replicated", "models/deepseek_v2.py, class Indexer"),
    (r"\.mixer\.norm\.|\.mamba\.norm\.", "divided", "layers/mamba/mamba_mixer2.py: the gated norm follows its heads"),
    (
        r"norm[0-9]?\.(?:weight|bias)$|layernorm[^.]*\.(?:weight|bias)$|\.norm_f\.weight$",
        "replicated",
        "layers/layernorm.py",
    ),
    (
        r"\.(?:qkv_proj|query_key_value|Wqkv|wqkv|W_pack)\.",
        "fused_qkv",
        "layers/linear.py, class QKVParallelLinear, from one tensor",
    ),
    (r"\.(?:k_proj|v_proj)\.", "kv_heads", "layers/linear.py, class QKVParallelLinear"),
    (
        r"\.(?:o_proj|down_proj|out_proj|dense|dense_4h_to_h|c_proj|w2|wo|fc2)\.bias$",
        "replicated",
        "layers/linear.py, class RowParallelLinear: the bias is added once",
    ),
    (r"\.weight_shape$", "replicated", "layers/quantization/compressed_tensors: a fact, not a weight"),
)

#: ``all2all_backend`` values with which shared experts stay whole (EP, TP > 1 and DP > 1); the first is the default.
#: Source: config/parallel.py, ParallelConfig.use_sequence_parallel_moe.
SEQUENCE_PARALLEL_BACKENDS = (
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "flashinfer_nvlink_one_sided",
    "passthrough",
    "mori_high_throughput",
    "mori_low_latency",
    "nixl_ep",
)

#: Names of layers that only speculation uses.
PREDICTION_LAYERS = r"(?:^|\.)mtp\.|\.mtp_layers\.|(?:^|\.)nextn\."

#: Padding of MXFP4 experts: each rank's share of the intermediate width, and the hidden width, in values.
#: Source: layers/fused_moe/oracle/mxfp4.py, mxfp4_round_up_hidden_size_and_intermediate_size.
MXFP4_PADDING = {"intermediate": 128, "hidden": 256}

#: Rows of the vocabulary are padded to this. Source: layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE.
VOCABULARY_PADDING = 64

#: When only the size of a checkpoint is known: weights of a GPU as a share of size / GPUs (low, expected, high). Replicated
#: parts make it more (Kimi-K2.5 at TP 8: 1.027); tied or skipped parts make it less.
UNKNOWN_TENSORS_FACTORS = (0.97, 1.03, 1.10)

#: Models that keep embeddings and head on every pipeline rank. Source: models/qwen3_next.py makes both without asking for the rank.
ENDS_ON_EVERY_RANK = ("Qwen3NextForCausalLM",)

#: Smaller tensors keep the type of the checkpoint (corrections of routers, states), and do not matter.
CONVERTED_FROM_BYTES = 4 * 2**20

#: FP8 layers that vLLM keeps in 16 bit. Source: models/deepseek_v2.py, class Indexer, merges wk with an unquantized projection.
DEQUANTIZED_LAYERS = (".indexer.wk.weight",)
