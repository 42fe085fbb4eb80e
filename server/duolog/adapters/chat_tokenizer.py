"""Makes the token ids of prompts in this process, with the model's own tokenizer and chat template.

By HTTP the same costs a round trip to a busy engine. `transformers` would do it, too, but takes seconds to import; this
is its template environment and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import DecodeStream

from duolog.ports.errors import EngineRejected, ModelMissing
from duolog.ports.llm import ChatMessage, PromptEnd, Role

CACHED_PIECES = 4_096
"""Pieces of prompts, most of them one message long, whose ids are remembered: a history is encoded once."""
MARK = "\u2062duolog\u2062"
"""Stands where an answer begins and an open message ends while the template is rendered; nobody says it."""
_SAMPLE = (
    ChatMessage(Role.USER, " Well,  hello! 你好。"),
    ChatMessage(Role.ASSISTANT, "Hi\n\nthere, it's 10:30. "),
    ChatMessage(Role.USER, ""),
)


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
        self._added: dict[int, AddedToken] = self._tokenizer.get_added_tokens_decoder()
        self._encode_piece = lru_cache(CACHED_PIECES)(self._encode_whole)
        self._encode = self._fastest_encoding()

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        """The prompt's token ids. Raises EngineRejected where the template refuses the conversation."""
        if end is PromptEnd.ANSWER:
            return self._encode(self._render(messages, answer=True))
        rendered = self._render(_open(messages), answer=False)
        before, mark, _ = rendered.rpartition(MARK)
        if not mark:
            raise EngineRejected("The model's chat template leaves out a message of this conversation.", engine="llm")
        return self._encode(before)

    def end_of_turn_ids(self) -> tuple[int, ...]:
        """The special tokens that the template writes after an answer; generating one of them ends it."""
        messages = (ChatMessage(Role.USER, "Hi"), ChatMessage(Role.ASSISTANT, MARK))
        try:
            tail = self._render(messages, answer=False).rpartition(MARK)[2]
        except EngineRejected:
            return ()
        ids = self._encode_whole(tail)
        return tuple(token for token in ids[:1] if token in self._added and self._added[token].special)

    def decoder(self) -> Callable[[int], str]:
        """Takes the tokens of one answer in order and gives the text of each: nothing for a special token, nor while a
        character is not complete."""
        stream = DecodeStream(skip_special_tokens=True)
        return lambda token: stream.step(self._tokenizer, token) or ""

    def _render(self, messages: tuple[ChatMessage, ...], *, answer: bool) -> str:
        chat = [{"role": message.role.value, "content": _content(message)} for message in messages]
        try:
            return self._template.render(messages=chat, add_generation_prompt=answer, **self._special)
        except TemplateError as error:
            raise EngineRejected(
                f"The model's chat template refuses this conversation: {error}.", engine="llm"
            ) from error

    def _encode_whole(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text.replace(MARK, ""), add_special_tokens=False).ids)

    def _fastest_encoding(self) -> Callable[[str], tuple[int, ...]]:
        """Piece by piece where that gives the same ids, which most tokenizers promise.

        Pieces end at special tokens and where an answer begins: its first token must not become one with the last of
        the prompt that it was generated from.
        """
        special = sorted((token.content for token in self._added.values() if token.special), key=len, reverse=True)
        borders = re.compile(f"{MARK}|(" + "|".join(map(re.escape, special)) + ")")

        def by_pieces(text: str) -> tuple[int, ...]:
            return tuple(token for piece in borders.split(text) if piece for token in self._encode_piece(piece))

        try:
            sample = self._render(_SAMPLE, answer=True)
        except EngineRejected:
            return self._encode_whole
        return by_pieces if special and by_pieces(sample) == self._encode_whole(sample) else self._encode_whole


def _content(message: ChatMessage) -> str:
    return MARK + message.content if message.role is Role.ASSISTANT else message.content


def _open(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """The mark at the end of the last message."""
    if not messages:
        return (ChatMessage(Role.USER, MARK),)
    last = messages[-1]
    return (*messages[:-1], ChatMessage(last.role, last.content + MARK))


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
    environment.globals["strftime_now"] = _today()
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise ModelMissing(f"The model's chat template cannot be read: {error}.") from error


def _today() -> Callable[[str], str]:
    """The date for templates that write one: that of the start, so that no prompt's beginning moves at midnight."""
    started = datetime.now()
    return started.strftime


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
