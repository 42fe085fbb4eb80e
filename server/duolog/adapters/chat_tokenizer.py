"""Counts prompt tokens in this process, with the model's own tokenizer and chat template.

A count takes about a millisecond for a short history; the same by HTTP costs a round trip to a busy engine.
`transformers` would do it, too, but takes seconds to import; this is its template environment and nothing else.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from duolog.ports.errors import EngineRejected, ModelMissing
from duolog.ports.llm import ChatMessage


class ChatTokenizer:
    """Made from a Hugging Face model folder. Raises ModelMissing where a file is absent or damaged."""

    def __init__(self, folder: Path) -> None:
        config = _read_json(folder / "tokenizer_config.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises bare Exception
            raise ModelMissing(
                f"The tokenizer in {folder} cannot be read; run `duolog models fetch` to mend it."
            ) from error
        self._template = _compiled(_template_text(folder, config))
        self._special = {
            name: _text(config[name])
            for name in ("bos_token", "eos_token", "unk_token", "pad_token")
            if config.get(name)
        }

    def count(self, messages: tuple[ChatMessage, ...]) -> int:
        """Tokens of the prompt, generation prompt included. Raises EngineRejected where the template refuses."""
        chat = [{"role": message.role.value, "content": message.content} for message in messages]
        try:
            prompt = self._template.render(messages=chat, add_generation_prompt=True, **self._special)
        except TemplateError as error:
            raise EngineRejected(
                f"The model's chat template refuses this conversation: {error}.", engine="llm"
            ) from error
        return len(self._tokenizer.encode(prompt, add_special_tokens=False).ids)


def _template_text(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if not isinstance(template, str):
        raise ModelMissing(f"The model in {folder} has no chat template, so it cannot hold a conversation.")
    return template


def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise ModelMissing(f"The model's chat template cannot be read: {error}.") from error


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _text(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelMissing(f"{path} is missing or damaged; run `duolog models fetch` to mend it.") from error
    if not isinstance(read, dict):
        raise ModelMissing(f"{path} is damaged; run `duolog models fetch` to mend it.")
    return read
