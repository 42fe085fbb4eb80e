"""What the chat model expects after a text: the question of `serving/sentence_judge.py`, computed in this process.

The same prompt, weights and twenty likeliest tokens as vLLM answers with; without a server to start.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from duolog.adapters.chat_tokenizer import ChatTokenizer
from duolog.ports.llm import ChatMessage, PromptEnd, Role, TokenChance
from duolog.serving.sentence_judge import LIKELIEST_TOKENS, bare_words, chance_of_end


def sentence_ends(texts: Iterable[str], folder: Path, *, fresh: bool = False) -> dict[str, float]:
    """Each text's probability of being a whole sentence. What is known already is kept in a temporary file."""
    memory = Path(tempfile.gettempdir()) / f"duolog-sentence-ends-{folder.name}.json"
    known: dict[str, float] = json.loads(memory.read_text(encoding="utf-8")) if memory.is_file() and not fresh else {}
    wanted = [text for text in dict.fromkeys(texts) if text not in known and bare_words(text)]
    if wanted:
        reader = _Reader(folder)
        for number, text in enumerate(wanted, 1):
            known[text] = chance_of_end(reader.likeliest(text)) or 0.0
            if number % 50 == 0:
                print(f"  {number} of {len(wanted)} texts", flush=True)
        memory.write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")
    return known


class _Reader:
    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        logging.disable_progress_bar()
        self._tokenizer = ChatTokenizer(folder)
        self._model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True)
        self._ends = frozenset(self._tokenizer.end_of_turn_ids())

    def likeliest(self, text: str) -> list[TokenChance]:
        ids = self._tokenizer.prompt_ids((ChatMessage(Role.USER, bare_words(text)),), PromptEnd.OPEN)
        with torch.inference_mode():
            chances = self._model(torch.tensor([ids])).logits[0, -1].softmax(-1)
        best = chances.topk(LIKELIEST_TOKENS)
        tokens = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [TokenChance("" if token in self._ends else self._text(token), chance) for token, chance in tokens]

    def _text(self, token: int) -> str:
        return self._tokenizer.decoder()(token)
