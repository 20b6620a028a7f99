"""A DeepSeek-V3-shaped model with random weights, small enough for a CPU: exact figures for a cache of MLA latents.

Runs in vLLM's environment (torch, transformers, tokenizers).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from modelopt import declare_fp8_kv_cache, write_json
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, PreTrainedTokenizerFast

SEED = 20260101
VOCABULARY = 512
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
CARD = """\
---
license: apache-2.0
library_name: transformers
---
A DeepSeek-V3-shaped model of three layers with random weights. It says nothing sensible: it exists for its KV cache
(512 + 64 values per token and layer).
"""


def config() -> DeepseekV3Config:
    """Sizes that decide the KV cache are DeepSeek-V3's own; everything else is as small as vLLM accepts."""
    return DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        kv_lora_rank=512,
        q_lora_rank=64,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        max_position_embeddings=4096,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        bos_token_id=0,
        eos_token_id=1,
    )


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE, trained on the texts at hand."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([CARD, CHAT_TEMPLATE, __doc__ or ""], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<bos>", eos_token="<eos>", chat_template=CHAT_TEMPLATE, model_max_length=4096
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    DeepseekV3ForCausalLM(config()).to(torch.bfloat16).save_pretrained(options.out)
    tokenizer().save_pretrained(options.out)
    write_json(options.out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1}, indent=2)
    (options.out / "README.md").write_text(CARD, encoding="utf-8")
    declare_fp8_kv_cache(options.out)


if __name__ == "__main__":
    main()
