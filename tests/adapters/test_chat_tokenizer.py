"""The in-process tokenizer: each prompt begins as the one before it, and damaged files are named."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tests.services import TINY_MODEL
from tests.tokenizer_folder import GREETING_IDS, write_tokenizer

from duolog.adapters.chat_tokenizer import ChatTokenizer
from duolog.ports.errors import EngineRejected, ModelMissing
from duolog.ports.llm import ChatMessage, PromptEnd, Role
from duolog.serving.prefill import UNSETTLED_TOKENS
from duolog.serving.token_ids import common_prefix

pytestmark = pytest.mark.real

SYSTEM = ChatMessage(Role.SYSTEM, "You are Ava. Answer in one short sentence.\n")
TALK = (
    ("Hello, how are you?", "I'm fine, thanks!  And you?\n\nTell me."),
    ("what's 3.14 times 2", "About 6.28 — roughly. 😀"),
    ("你好，今天天气怎么样？", "今天天气很好，适合散步。"),
    ("<b>odd</b> \u2028 text ", "  spaces at both ends  "),
    ("bye", "Bye bye."),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path)


@pytest.fixture(params=["smollm2-135m", "qwen2.5-0.5b"])
def real(request: pytest.FixtureRequest) -> ChatTokenizer:
    model: Path = TINY_MODEL.parent / request.param
    if not (model / "tokenizer.json").exists():
        pytest.skip(f"no model in .duolog/models/{model.name}; run `duolog models prepare`")
    return ChatTokenizer(model)


def conversation(first: tuple[ChatMessage, ...]) -> list[tuple[ChatMessage, ...]]:
    """The messages of each turn, as its request sends them."""
    turns, messages = [], first
    for said, answered in TALK:
        messages = (*messages, ChatMessage(Role.USER, said))
        turns.append(messages)
        messages = (*messages, ChatMessage(Role.ASSISTANT, answered))
    return turns


def test_ids_are_those_of_the_rendered_template(folder: Path) -> None:
    tokenizer = ChatTokenizer(folder)
    assert tokenizer.prompt_ids((ChatMessage(Role.USER, "Hi"),), PromptEnd.ANSWER) == tuple(GREETING_IDS)
    assert tokenizer.prompt_ids((ChatMessage(Role.USER, "Hi one"),), PromptEnd.OPEN) == (2, 4, 5)
    assert tokenizer.prompt_ids((ChatMessage(Role.USER, ""),), PromptEnd.OPEN) == (2,)
    assert tokenizer.end_of_turn_ids() == (1,)


def test_a_template_file_goes_before_the_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("Hi one two three")
    tokenizer = ChatTokenizer(folder)
    assert tokenizer.prompt_ids((), PromptEnd.ANSWER) == (4, 5, 6, 7)
    assert tokenizer.end_of_turn_ids() == ()
    with pytest.raises(EngineRejected, match="leaves out"):
        tokenizer.prompt_ids((ChatMessage(Role.USER, "Hi"),), PromptEnd.OPEN)


def test_a_date_in_the_template_does_not_move(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ strftime_now('%H:%M:%S.%f') }} {{ messages[0].content }}")
    tokenizer = ChatTokenizer(folder)
    first, second = (tokenizer._render((ChatMessage(Role.USER, "Hi"),), answer=True) for _ in range(2))
    assert first == second


def test_a_conversation_the_template_refuses(folder: Path) -> None:
    with pytest.raises(EngineRejected, match="no system"):
        ChatTokenizer(folder).prompt_ids((ChatMessage(Role.SYSTEM, "Be kind."),), PromptEnd.ANSWER)


@pytest.mark.parametrize("first", [(SYSTEM,), ()], ids=["persona", "the template's own system prompt"])
def test_a_prompt_with_its_answer_begins_the_next_prompt(real: ChatTokenizer, first: tuple[ChatMessage, ...]) -> None:
    """Byte-stable: what was sent, and the answer as it was generated, are the beginning of what is sent next."""
    for (before, after), (_, answered) in zip(pairwise(conversation(first)), TALK, strict=False):
        sent = real.prompt_ids(before, PromptEnd.ANSWER)
        following = real.prompt_ids(after, PromptEnd.ANSWER)
        assert following[: len(sent)] == sent
        with_answer = real.prompt_ids((*before, ChatMessage(Role.ASSISTANT, answered)), PromptEnd.OPEN)
        assert with_answer[: len(sent)] == sent
        assert following[: len(with_answer)] == with_answer


@pytest.mark.parametrize("first", [(SYSTEM,), ()], ids=["persona", "the template's own system prompt"])
def test_a_caption_begins_the_final_prompt_but_for_its_last_tokens(
    real: ChatTokenizer, first: tuple[ChatMessage, ...]
) -> None:
    for messages in conversation(first):
        final = real.prompt_ids(messages, PromptEnd.ANSWER)
        said = messages[-1].content
        for length in range(len(said) + 1):
            caption = (*messages[:-1], ChatMessage(Role.USER, said[:length]))
            ids = real.prompt_ids(caption, PromptEnd.OPEN)
            assert common_prefix(ids, final) >= len(ids) - UNSETTLED_TOKENS


def test_an_end_of_turn_is_one_special_token(real: ChatTokenizer) -> None:
    assert len(real.end_of_turn_ids()) == 1


def test_pieces_encode_as_the_whole(real: ChatTokenizer) -> None:
    for messages in conversation((SYSTEM,))[:-1]:
        text = real._render(messages, answer=True)
        assert real.prompt_ids(messages, PromptEnd.ANSWER) == real._encode_whole(text)


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
