"""The in-process tokenizer: missing and damaged files are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from duolog.adapters.chat_tokenizer import ChatTokenizer
from duolog.ports.errors import EngineRejected, ModelMissing
from duolog.ports.llm import ChatMessage, Role

pytestmark = pytest.mark.real

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ bos_token }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}answer{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": {"content": "begin"}, "chat_template": TEMPLATE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_it_counts_the_rendered_template(folder: Path) -> None:
    assert ChatTokenizer(folder).count((ChatMessage(Role.USER, "one two three"),)) == 5


def test_a_template_file_goes_before_the_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("always four words here")
    assert ChatTokenizer(folder).count(()) == 4


def test_a_conversation_the_template_refuses(folder: Path) -> None:
    with pytest.raises(EngineRejected, match="no system"):
        ChatTokenizer(folder).count((ChatMessage(Role.SYSTEM, "Be kind."),))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{"),
        ("tokenizer_config.json", None),
        ("tokenizer_config.json", "not json"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{}"),
        ("chat_template.jinja", "{% for %}"),
    ],
)
def test_a_missing_or_damaged_file_is_named(folder: Path, file: str, content: str | None) -> None:
    (folder / file).unlink(missing_ok=True)
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(ModelMissing):
        ChatTokenizer(folder)
