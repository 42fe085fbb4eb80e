"""The level in memory: its bounds hold whatever is put in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.serving.byte_lru import ENTRY_BYTES, ByteLru

pytestmark = pytest.mark.pure


def room_for(count: int, size: int = 10) -> ByteLru:
    return ByteLru(count * (size + ENTRY_BYTES))


def test_who_was_not_used_for_longest_goes_first() -> None:
    lru = room_for(2)
    lru.put("a", b"x" * 10, 99)
    lru.put("b", b"y" * 10, 99)
    assert lru.get("a", 0) == b"x" * 10
    lru.put("c", b"z" * 10, 99)
    assert lru.get("b", 0) is None
    assert lru.get("a", 0) == b"x" * 10
    assert lru.get("c", 0) == b"z" * 10


def test_a_value_lives_until_its_time() -> None:
    lru = room_for(2)
    lru.put("a", b"x", 5.0)
    assert lru.get("a", 4.9) == b"x"
    assert lru.get("a", 5.0) is None
    assert (len(lru), lru.used_bytes) == (0, 0)


def test_a_value_larger_than_all_is_not_kept_and_what_it_replaces_is_gone() -> None:
    lru = room_for(2)
    lru.put("a", b"x", 9)
    lru.put("b", b"y", 9)
    lru.put("a", b"x" * 10_000, 9)
    assert lru.get("a", 0) is None
    assert lru.get("b", 0) == b"y"


operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.integers(0, 900), st.integers(1, 30)),
        st.tuples(st.just("get"), st.integers(0, 9), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(operations, st.integers(0, 3_000))
def test_the_bound_holds_and_nothing_old_or_wrong_comes_back(
    steps: list[tuple[str, int, int, int]], max_bytes: int
) -> None:
    lru = ByteLru(max_bytes)
    newest: dict[str, tuple[bytes, int]] = {}
    for now, (what, number, size, life) in enumerate(steps):
        key = f"key {number}"
        if what == "put":
            newest[key] = (bytes([now]) * size, now + life)
            lru.put(key, *newest[key])
        elif what == "remove":
            newest.pop(key, None)
            lru.remove(key)
        found = lru.get(key, now)
        assert found is None or (found, True) == (newest[key][0], newest[key][1] > now)
        assert lru.used_bytes <= max_bytes
        assert (lru.used_bytes == 0) == (len(lru) == 0)
