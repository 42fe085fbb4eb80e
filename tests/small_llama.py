"""A chat model of random weights that is made and run in milliseconds, as a model and as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.tokenizer_folder import WORDS, write_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT_TOKENS = 1_024


def small_llama() -> Any:
    """Always the same weights."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def write_small_llama(folder: Path) -> Path:
    small_llama().save_pretrained(folder)
    return write_tokenizer(folder)
