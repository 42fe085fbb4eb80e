"""The smallest model folder that a chat tokenizer can be made from: words as tokens, a template with an end of turn."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ("[UNK]", "<end>", "user", "assistant", "Hi", "one", "two", "three")
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ m.role }} {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
)
GREETING_IDS = [2, 4, 1, 3]
"""Of the user's message `Hi` and the generation prompt."""


def write_tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": {"content": "<end>"}, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
