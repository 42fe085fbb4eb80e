"""Prompts: a prefix that does not move, roles that alternate, a budget that holds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind
from duolog.turns.history import History, Message, estimate_tokens, interrupted_note

pytestmark = pytest.mark.pure

KINDS = {
    ItemRole.USER: PartKind.INPUT_AUDIO,
    ItemRole.ASSISTANT: PartKind.OUTPUT_AUDIO,
    ItemRole.SYSTEM: PartKind.INPUT_TEXT,
}


def item(number: int, role: ItemRole, text: str | None, *, interrupted: bool = False) -> Item:
    return Item(f"item_{number}", role, (ContentPart(KINDS[role], text),), interrupted=interrupted)


def talk(turns: int, words: int = 5) -> list[Item]:
    roles = (ItemRole.USER, ItemRole.ASSISTANT)
    return [item(number, roles[number % 2], f"turn {number} " + "word " * words) for number in range(turns)]


def test_instructions_come_first_and_items_follow() -> None:
    messages = History(1_000).messages("Be kind.", talk(3))
    assert [message.role for message in messages] == [
        ItemRole.SYSTEM,
        ItemRole.USER,
        ItemRole.ASSISTANT,
        ItemRole.USER,
    ]


def test_prefix_is_the_same_bytes_from_turn_to_turn() -> None:
    history, items = History(10_000), talk(40)
    before: tuple[Message, ...] = ()
    for count in range(1, 41):
        messages = history.messages("Be kind.", items[:count])
        assert messages[: len(before)] == before
        before = messages


def test_outgrown_history_is_trimmed_in_steps() -> None:
    history, items = History(600), talk(200)
    starts = [history.messages("Be kind.", items[:count])[1].content for count in range(1, 200)]
    changes = sum(1 for one, other in itertools.pairwise(starts) if one != other)
    assert 0 < changes < 25


@given(st.integers(1, 120), st.integers(1, 60))
def test_budget_holds(turns: int, words: int) -> None:
    messages = History(600).messages("Be kind.", talk(turns, words))
    assert sum(estimate_tokens(message.content) for message in messages[:-1]) <= 600


def test_room_asked_for_between_turns_makes_the_prompt_move_there_and_not_in_the_turn() -> None:
    history, items = History(600), talk(120, words=3)
    moved_between, before = 0, ""
    for count in range(2, 120, 2):
        between = history.messages("Be kind.", items[:count], room_tokens=60)
        in_turn = history.messages("Be kind.", items[: count + 1])
        assert in_turn[: len(between)] == between
        moved_between += between[1].content != before
        before = between[1].content
    assert 2 < moved_between < 25


def test_an_item_placed_at_the_head_is_shown() -> None:
    history, items = History(1_000), talk(2)
    history.messages("", items)
    assert history.messages("", [item(9, ItemRole.USER, "first"), *items])[0].content.startswith("first")


def test_items_without_text_are_left_out() -> None:
    items = [item(0, ItemRole.USER, "hello"), item(1, ItemRole.ASSISTANT, ""), item(2, ItemRole.USER, None)]
    assert History(1_000).messages("", items) == (Message(ItemRole.USER, "hello"),)


def test_two_user_items_in_a_row_become_one_message() -> None:
    items = [item(0, ItemRole.USER, "hello"), item(1, ItemRole.USER, "are you there?")]
    assert History(1_000).messages("", items) == (Message(ItemRole.USER, "hello\nare you there?"),)


def test_model_is_told_that_it_was_interrupted() -> None:
    items = [item(0, ItemRole.USER, "hi"), item(1, ItemRole.ASSISTANT, "Once upon", interrupted=True)]
    messages = History(1_000).messages("", items)
    assert [message.role for message in messages] == [ItemRole.USER, ItemRole.ASSISTANT, ItemRole.SYSTEM]
    assert 'after "Once upon"' in messages[-1].content


@pytest.mark.parametrize(
    ("heard", "quoted"),
    [
        ("One two three four five six seven, eight", "three four five six seven, eight"),
        ("从前有一座山", "从前有一座山"),
    ],
)
def test_note_of_an_interruption_says_after_which_words(heard: str, quoted: str) -> None:
    assert f'after "{quoted}" and' in interrupted_note(heard)


def test_chinese_counts_one_token_a_character() -> None:
    assert estimate_tokens("你好世界") == 10
