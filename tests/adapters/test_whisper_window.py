"""When a piece is decoded again, and in which window."""

from __future__ import annotations

import numpy as np
import pytest

from duolog.adapters.whisper_window import FULL_WINDOW_FRAMES, Decoded, Piece, look_again

pytestmark = pytest.mark.pure
SECOND_FRAMES = 1_300


def piece(audio_s: float = 3.0) -> Piece:
    return Piece(np.zeros((80, int(100 * audio_s)), np.float32), audio_s, "en", ())


def decoded(text: str, *, mean_logprob: float = -0.2, capped: bool = False) -> Decoded:
    return Decoded(text, "en", len(text.split()), mean_logprob, 0.0, capped)


class Decoder:
    """Says one text for each window; notes which were asked for."""

    def __init__(self, second: Decoded, full: Decoded | None = None) -> None:
        self._says = {SECOND_FRAMES: second, FULL_WINDOW_FRAMES: full or second}
        self.asked: list[int] = []

    def __call__(self, frames: int) -> Decoded:
        self.asked.append(frames)
        return self._says[frames if frames == FULL_WINDOW_FRAMES else SECOND_FRAMES]


SURE = decoded("Turn on the lamp.")
LOOP = decoded("Turn on the lamp. Turn on the lamp.")


@pytest.mark.parametrize("text", ["Turn on the lamp.", "Turn on the lamp", "No."])
def test_a_sure_piece_is_decoded_once(text: str) -> None:
    again = Decoder(SURE)
    result = look_again(decoded(text), piece(), again)
    assert (result.text, result.looks, again.asked) == (text, 1, [])


@pytest.mark.parametrize(
    "first",
    [LOOP, decoded("Can pairs lack full", mean_logprob=-0.7), decoded("a b c", capped=True), decoded("la " * 30)],
    ids=["repeats", "unsure", "capped", "compresses"],
)
def test_a_doubtful_one_again_with_more_zeros(first: Decoded) -> None:
    again = Decoder(SURE)
    result = look_again(first, piece(), again)
    assert (result.text, result.looks, again.asked) == (SURE.text, 2, [SECOND_FRAMES])


def test_one_that_still_repeats_in_the_full_window() -> None:
    again = Decoder(LOOP, SURE)
    result = look_again(LOOP, piece(), again)
    assert (result.text, result.looks, again.asked) == (SURE.text, 3, [SECOND_FRAMES, FULL_WINDOW_FRAMES])


def test_one_that_is_still_unsure_stands() -> None:
    again = Decoder(decoded("Can pairs lack full", mean_logprob=-0.6))
    result = look_again(decoded("Can pears", mean_logprob=-0.7), piece(), again)
    assert (result.text, result.looks) == ("Can pairs lack full", 2)


def test_a_long_one_that_ends_in_mid_sentence_in_the_full_window_at_once() -> None:
    again = Decoder(SURE, decoded("They were unable to reap any advantage."))
    result = look_again(decoded("They were unable to reap any"), piece(10.0), again)
    assert (result.text, again.asked) == ("They were unable to reap any advantage.", [FULL_WINDOW_FRAMES])
