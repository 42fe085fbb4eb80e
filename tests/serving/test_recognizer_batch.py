"""Which waiting requests go together: order, likeness, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.ports.asr import TranscriptionRequest
from duolog.serving.recognizer_batch import LENGTH_STEP_S, BatchLimits, next_batch

pytestmark = pytest.mark.pure


def final(seconds: float, language: str | None = "en") -> TranscriptionRequest:
    return TranscriptionRequest(np.zeros(int(seconds * 16_000), np.float32), language)


def partial(seconds: float, language: str | None = "en") -> TranscriptionRequest:
    return TranscriptionRequest(np.zeros(int(seconds * 16_000), np.float32), language, partial=True)


@pytest.mark.parametrize(
    ("waiting", "batch"),
    [
        ([], []),
        ([partial(1)], [0]),
        ([partial(1), final(1)], [1, 0]),
        ([final(1), final(3), final(4)], [0, 1, 2]),
        ([final(1), final(5), final(2)], [0, 2]),
        ([final(1, "en"), final(1, "zh"), final(1, None), final(1, "en")], [0, 3]),
        ([partial(1), final(1), partial(1), final(1), partial(1)], [1, 3, 0, 2]),
        ([partial(1), partial(2), partial(6)], [0, 1]),
        ([final(58), final(59), final(58)], [0, 1]),
        ([final(200), final(1)], [0]),
    ],
)
def test_who_goes_together(waiting: list[TranscriptionRequest], batch: list[int]) -> None:
    assert next_batch(waiting, BatchLimits(4)) == batch


REQUESTS = st.builds(
    TranscriptionRequest,
    st.floats(0, 70).map(lambda seconds: np.zeros(int(seconds * 16_000), np.float32)),
    st.sampled_from(["en", "zh", None]),
    st.booleans(),
)


@given(st.lists(REQUESTS, max_size=12), st.integers(1, 6))
def test_every_batch_is_led_by_the_oldest_of_the_first_class_and_all_are_served(
    waiting: list[TranscriptionRequest], size: int
) -> None:
    limits = BatchLimits(size, audio_s=60.0)
    left = list(enumerate(waiting))
    while left:
        places = next_batch([request for _, request in left], limits)
        batch = [left[place] for place in places]
        oldest_final = next((entry for entry in left if not entry[1].partial), left[0])
        assert batch[0] is oldest_final
        assert len(set(places)) == len(places) <= size
        assert len(places) == 1 or sum(request.audio_s for _, request in batch) <= 60.0
        assert max(r.audio_s for _, r in batch) - min(r.audio_s for _, r in batch) <= LENGTH_STEP_S
        assert [request.partial for _, request in batch] == sorted(request.partial for _, request in batch)
        left = [entry for place, entry in enumerate(left) if place not in places]


def test_an_engine_that_takes_one_at_a_time_is_given_one() -> None:
    assert next_batch([final(1), final(1), partial(1)], BatchLimits()) == [0]
