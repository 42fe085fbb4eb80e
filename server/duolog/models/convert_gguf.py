"""GGUF file → the folder of safetensors, configuration and tokenizer that vLLM serves.

A child process of `duolog.models.convert`: `python -m duolog.models.convert_gguf SOURCE_FOLDER TARGET_FOLDER`.
Half a billion weights take some 20 s on two cores and three times the file in memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert_gguf(source: Path, target: Path) -> None:
    """Dequantise the one GGUF file in `source` to bfloat16 and write `target`."""
    files = sorted(source.glob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"{source} must hold exactly one .gguf file, it holds {len(files)}")
    folder, name = str(source), files[0].name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))


if __name__ == "__main__":
    convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
