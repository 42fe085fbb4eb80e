"""How much of the bot's speech was heard: by the client's word, else by the clock."""

from __future__ import annotations

import anyio
import pytest

from duolog.session.control import PlayoutReport
from duolog.session.playing import MAX_HOLD_S, MAX_REMEMBERED, REPORT_SLACK_S, UNDERRUN_S, Playback, Playbacks
from duolog.telemetry import metrics
from duolog.turns.playout import HeardWord

pytestmark = pytest.mark.session

RATE_HZ = 24_000


def begun(*, reports: bool = True) -> tuple[Playbacks, Playback]:
    playbacks = Playbacks(reports=reports)
    playback = playbacks.begin("item_1", RATE_HZ)
    playback.ledger.add_text("one two")
    playback.ledger.add_words([HeardWord(RATE_HZ, 3), HeardWord(2 * RATE_HZ, 7)])
    return playbacks, playback


async def test_generations_grow() -> None:
    playbacks = Playbacks(reports=True)
    assert [playbacks.begin("item", RATE_HZ).ledger.generation for _ in range(3)] == [1, 2, 3]
    assert playbacks.generation == 3


async def test_report_moves_the_position_and_the_end_is_the_end() -> None:
    playbacks, playback = begun()
    playback.note_sent(2 * RATE_HZ)
    playback.ledger.complete = True
    assert playbacks.report(PlayoutReport(1, RATE_HZ)) is playback
    assert playback.ledger.heard_text() == "one"
    assert playbacks.unfinished() == [playback]
    playbacks.report(PlayoutReport(1, 2 * RATE_HZ, ended=True))
    assert playback.over.is_set()
    assert playbacks.unfinished() == []


async def test_report_of_an_unknown_generation_is_ignored() -> None:
    playbacks, playback = begun()
    assert playbacks.report(PlayoutReport(9, 1)) is None
    assert not playback.reported


async def test_client_that_stops_early_has_not_ended_what_is_still_being_made() -> None:
    playbacks, playback = begun()
    playback.note_sent(RATE_HZ)
    playbacks.report(PlayoutReport(1, RATE_HZ, ended=True))
    assert not playback.over.is_set()


async def test_clock_counts_only_what_can_have_been_played() -> None:
    """The voice pauses for two seconds in the middle: nothing is played meanwhile."""
    _, playback = begun(reports=False)
    playback.update_by_clock()
    assert playback.ledger.played_samples == 0
    assert playback.note_sent(RATE_HZ) == 0
    await anyio.sleep(3)
    assert playback.note_sent(RATE_HZ) == RATE_HZ
    assert playback.remaining_s == pytest.approx(1.0)
    await anyio.sleep(0.5)
    playback.update_by_clock()
    assert playback.ledger.played_samples == pytest.approx(1.5 * RATE_HZ, abs=1)
    assert playback.ledger.approximate


async def test_clients_own_word_stands_against_the_clock() -> None:
    playbacks, playback = begun()
    playback.note_sent(RATE_HZ)
    playbacks.report(PlayoutReport(1, 100))
    await anyio.sleep(1)
    playback.update_by_clock()
    assert playback.ledger.played_samples == 100
    assert not playback.ledger.approximate


@pytest.mark.parametrize(("reports", "after_s"), [(False, 2.0), (True, 2.0 + REPORT_SLACK_S)])
async def test_silent_client_is_counted_as_having_played_all(reports: bool, after_s: float) -> None:
    _, playback = begun(reports=reports)
    playback.note_sent(2 * RATE_HZ)
    playback.ledger.complete = True
    await playback.played_out()
    assert anyio.current_time() == pytest.approx(after_s)
    assert playback.ledger.finished


async def test_playback_that_is_over_is_not_waited_for() -> None:
    _, playback = begun()
    playback.note_sent(2 * RATE_HZ)
    playback.over.set()
    await playback.played_out()
    assert anyio.current_time() == 0
    assert playback.ledger.played_samples == 0


async def test_playback_without_sound_is_played_out_at_once() -> None:
    _, playback = begun(reports=False)
    await playback.played_out()
    assert anyio.current_time() == 0


async def test_only_the_newest_are_remembered() -> None:
    playbacks = Playbacks(reports=True)
    for number in range(MAX_REMEMBERED + 1):
        playbacks.begin(f"item_{number}", RATE_HZ)
    assert playbacks.of_item("item_0") is None
    newest = playbacks.of_item(f"item_{MAX_REMEMBERED}")
    assert newest is not None
    assert newest.ledger.generation == MAX_REMEMBERED + 1


async def test_client_that_holds_its_playback_has_the_time_it_held() -> None:
    _, playback = begun()
    playback.note_sent(2 * RATE_HZ)
    playback.ledger.complete = True
    with anyio.move_on_after(60) as patience:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_report_for, playback, 10.0)
            began = anyio.current_time()
            await playback.played_out()
            took_s = anyio.current_time() - began
            tasks.cancel_scope.cancel()
    assert not patience.cancelled_caught
    assert took_s == pytest.approx(10.0 + 2.0 + REPORT_SLACK_S, abs=0.2)
    assert playback.ledger.finished


async def test_client_that_never_moves_on_is_waited_for_no_longer_than_a_hold() -> None:
    _, playback = begun()
    playback.note_sent(2 * RATE_HZ)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_report_for, playback, 1_000.0)
        began = anyio.current_time()
        await playback.played_out()
        assert anyio.current_time() - began < MAX_HOLD_S + 2.0 + REPORT_SLACK_S + 0.2
        tasks.cancel_scope.cancel()


async def test_words_around_what_is_played_now() -> None:
    playbacks, playback = begun(reports=False)
    assert playbacks.said_around_now(4.0, 0.5) == "one"
    playback.note_sent(2 * RATE_HZ)
    await anyio.sleep(1.5)
    assert playbacks.said_around_now(0.2, 0.6) == " two"
    assert playbacks.said_around_now(4.0, 0.6) == "one two"
    assert not playback.ledger.approximate


async def _report_for(playback: Playback, seconds: float) -> None:
    """The page while it holds the playback: reports that stand still."""
    until = anyio.current_time() + seconds
    while anyio.current_time() < until:
        playback.take_report(0)
        await anyio.sleep(0.1)


async def test_a_client_that_ran_dry_is_counted_once_for_each_gap() -> None:
    def counted() -> float:
        return metrics.REGISTRY.get_sample_value("duolog_playout_underruns_total") or 0.0

    before = counted()
    _, playback = begun()
    for wait_s, gaps in ((0.5, 0), (1.5 + UNDERRUN_S / 2, 0), (2.0, 1), (0.9, 1)):
        playback.note_sent(RATE_HZ)
        await anyio.sleep(wait_s)
        assert counted() - before <= gaps
    assert counted() - before == 1
    playback.take_report(RATE_HZ)
    playback.note_sent(RATE_HZ)
    assert counted() - before == 1
