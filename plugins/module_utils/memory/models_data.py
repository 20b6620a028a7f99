# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models are of which kind, by the names that config.json uses.

Sources: vllm 0.32.0 transformers_utils/model_arch_config_convertor.py (MLA), transformers_utils/config.py (classes) and
model_executor/models/*.py (layers), each read for the architecture named.
"""

from __future__ import annotations

#: model_types of the language model whose layers keep an MLA latent when they have a kv_lora_rank.
MLA_MODEL_TYPES = frozenset(
    (
        "axk1",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_mtp",
        "glm_moe_dsa",
        "glm4_moe_lite",
        "glm4_moe_lite_mtp",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
        "pangu_ultra_moe_mtp",
        "bailing_hybrid",
        "bailing_hybrid_mtp",
        "hy_v4",
    )
)

#: model_types with caches of a kind that is not modelled here (compressed or indexed keys and values with rules of their
#: own) -> vLLM's directory of their implementation. They are refused: full attention would be far from the truth.
UNMODELLED = {
    "deepseek_v4": "vllm/models/deepseek_v4",
    "deepseek_v41": "vllm/models/deepseek_v41",
    "dots3_note": "vllm/models/dots3_note",
    "glm5_next": "vllm/models/glm5next",
    "glm5_next_text": "vllm/models/glm5next",
    "hy_v4": "vllm/models/hy_v4",
    "inkling_text": "vllm/models/inkling",
    "inkling_model": "vllm/models/inkling",
    "minimax_m3_vl_text": "vllm/models/minimax_m3",
    "minimax_m3": "vllm/models/minimax_m3",
    "qwen4_exp_text": "vllm/models/qwen4_exp",
}

#: model_type -> the key that counts its decoder layers, where that is not num_hidden_layers.
LAYER_COUNT_KEYS = {"longcat_flash": "num_layers", "whisper": "decoder_layers"}

#: model_type -> the model_type whose configuration class vLLM loads it with.
SAME_CONFIG_CLASS = {
    "kimi_k2": "deepseek_v3",
    "deepseek_v32": "deepseek_v3",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
}

#: model_types whose window is one token wider in vLLM than in config.json (commandr.py, cohere2_moe.py, modernbert.py).
WINDOW_PLUS_ONE = frozenset(("cohere2", "cohere2_moe", "modernbert"))

#: model_types whose vLLM implementation builds all layers alike whatever layer_types says.
IGNORES_LAYER_TYPES = frozenset(("qwen2_moe", "qwen3_moe"))

#: model_types that vLLM refuses when only some layers slide (qwen2.py).
REFUSES_MIXED_WINDOWS = frozenset(("qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text"))

#: model_types whose attention caches vLLM creates before all recurrent ones (zamba2.py).
ATTENTION_CREATED_FIRST = frozenset(("zamba2",))

#: architecture -> the recurrent state of its linear layers.
RECURRENT_BY_ARCHITECTURE = {
    "BailingMoeV2_5ForCausalLM": "linear",
    "BailingMoeV3ForCausalLM": "kda",
}

#: model_type of the language model -> the recurrent state of its linear layers.
RECURRENT_BY_MODEL_TYPE = {
    "bamba": "mamba2",
    "falcon_h1": "mamba2",
    "falcon_mamba": "mamba1",
    "granitemoehybrid": "mamba2",
    "jamba": "mamba1",
    "kimi_linear": "kda",
    "lfm2": "short_conv",
    "lfm2_moe": "short_conv",
    "mamba": "mamba1",
    "mamba2": "mamba2",
    "minimax_text_01": "linear",
    "minimax_m1": "linear",
    "nemotron_h": "mamba2",
    "olmo_hybrid": "gdn",
    "qwen3_5_moe_text": "gdn",
    "qwen3_5_text": "gdn",
    "qwen3_next": "gdn",
    "zamba2": "mamba2",
}

#: model_type -> MLA caches of one decoder layer, where that is not one (longcat_flash.py).
MLA_CACHES_PER_LAYER = {"longcat_flash": 2}

#: model_types whose decoder attends to an encoder (whisper.py).
ENCODER_DECODER_MODEL_TYPES = frozenset(("whisper",))

#: model_types of pooling models whose layers all attend both ways (bert.py, roberta.py, modernbert.py, bert_with_rope.py).
ENCODER_ONLY_MODEL_TYPES = frozenset(
    ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "modernbert", "nomic_bert", "new", "gte", "ernie")
)

#: model_types with attention sinks (gpt_oss.py, granite.py).
SINK_MODEL_TYPES = frozenset(("gpt_oss", "granite_swa", "granitemoe_swa"))

#: model_types whose images attend both ways (is_mm_prefix_lm of model_arch_config_convertor.py).
IMAGE_PREFIX_MODEL_TYPES = frozenset(("bagel", "gemma3", "molmo2", "moondream3", "paligemma"))
