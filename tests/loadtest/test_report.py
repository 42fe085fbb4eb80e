"""The report: what it says, as text, JSON and a page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from hdrh.histogram import HdrHistogram
from tests.loadtest.written_outcomes import answered, call, figures_of, missed, quiet, refused

from duolog.loadtest.call_plan import TurnKind
from duolog.loadtest.limit_search import Goal
from duolog.loadtest.load_figures import Window
from duolog.loadtest.load_run import LoadResult
from duolog.loadtest.load_session import LoadReport, Search, SearchStep
from duolog.loadtest.outcomes import CallRecord, TurnEnding
from duolog.loadtest.profile import LoadProfile, Mode
from duolog.loadtest.report_html import headline, report_html
from duolog.loadtest.report_json import report_fields
from duolog.loadtest.report_text import report_table
from duolog.loadtest.server_figures import ServerFigures, ServerSample
from duolog.loadtest.svg import nice_ticks, number, seconds

pytestmark = pytest.mark.pure

ABOUT = {
    "name": "talk",
    "url": "ws://here",
    "at": "2026-01-01 00:00 UTC",
    "machine": {"cpu": "a <fast> one", "cores": 2},
}
VOID = {"meta"}
SERVER = ServerFigures(
    speculations={"used": 12, "wasted": 3},
    cached_tokens=300,
    computed_tokens=100,
    drops={"silence transcript": 2},
    refused={},
    loop_lag_p99_ms=4.5,
    worst_guard_level=1,
    worst_queue=7,
    memory_mib=(200, 210),
    tasks=(25, 25),
)


def mixed() -> list[CallRecord]:
    turns = [answered(number, 400.0 + 10 * number, end_s=10.0 + number) for number in range(40)]
    barge = answered(40, 900.0, end_s=70.0, kind=TurnKind.BARGE_IN)
    return [
        call(0, *turns, barge, missed(41, end_s=80.0), quiet(42, TurnEnding.QUIET)),
        refused(1, "session_limit_reached"),
    ]


def report_of(calls: Sequence[CallRecord], search: Search | None = None, **profile: str) -> LoadReport:
    windows = (Window("ramp <up>", 0.0, 4.0, counts=False), Window("soak", 4.0, 100.0))
    samples = [ServerSample(float(at), 2, 200 + at, 30, at % 3, 0) for at in range(0, 100, 2)]
    result = LoadResult(windows, list(calls), samples, ran_s=104.0)
    written = LoadProfile(mode=Mode(profile.get("mode", "voice")))
    return LoadReport(written, result, result.figures(), search, SERVER, 30.0, ("A note.",))


def searched(holds: int | None, *, bounded: bool = True) -> LoadReport:
    good, bad = figures_of([call(0, *(answered(n, 500.0) for n in range(20)))]), figures_of([call(0, missed(0))])
    window = Window("4 calls", 4.0, 100.0)
    held, broke = SearchStep(4, True, good, window), SearchStep(8, False, bad, window)
    steps = (broke, held) if holds else (broke,)
    return report_of(mixed(), Search(Goal("p99", 1_000), steps, holds, bounded))


class Page(HTMLParser):
    """Collects what the page is made of and checks that everything opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = report_html(report_of(mixed()), ABOUT)
    page = Page(text)
    assert page.open == []
    assert page.links == []
    assert "script" not in page.tags
    assert "@import" not in text
    assert "url(" not in text
    assert page.tags.count("svg") >= 9
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_page_says_what_was_found() -> None:
    words = Page(report_html(report_of(mixed()), ABOUT)).words
    for shown in (
        "soak",
        "ramp <up>",
        "missed: no answer came",
        "calls refused: session_limit_reached",
        "barge in: p50",
    ):
        assert any(shown in word for word in words), shown
    for shown in ("75%", "200 → 210 MiB", "speculations wasted", "A note."):
        assert any(shown in word for word in words), shown
    assert any("a <fast> one" in word for word in words)


def test_every_turn_is_a_mark_with_its_figure() -> None:
    text = report_html(report_of(mixed()), ABOUT)
    assert text.count('<circle class="wait"') == 2 * 41 + 1  # wide, narrow, legend
    assert "call 0, barge in: 900 ms" in text
    assert "call 0, talk: no answer came" in text


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (searched(4), "4 calls at once with p99 ≤ 1,000 ms"),
        (searched(4, bounded=False), "4 or more calls at once with p99 ≤ 1,000 ms"),
        (searched(None), "p99 ≤ 1,000 ms holds at no level"),
        (
            report_of([call(0, *(answered(n, 500.0) for n in range(200)))]),
            "99 of 100 turns waited no longer than 500 ms",
        ),
        (report_of([call(0, answered(0, 650.0))]), "The slowest of 1 turns waited 650 ms"),
        (report_of(mixed()), "More than one turn in a hundred was missed"),
        (report_of([call(0, missed(0))]), "No turn was answered"),
    ],
)
def test_the_headline(report: LoadReport, line: str) -> None:
    assert headline(report) == line
    assert Page(report_html(report, ABOUT)).open == []


def test_the_table() -> None:
    lines = report_table(report_of(mixed())).splitlines()
    assert lines[0].split() == ["turns", "answered", "missed", "turns/s", "p50", "p95", "p99", "p99.9", "worst"]
    assert lines[1].split() == ["(ramp", "<up>)", "0", "0", "0", "0.00", "–", "–", "–", "–", "–"]
    assert lines[2].split() == ["soak", "42", "41", "1", "0.43", "600", "790", "miss", "miss", "900"]
    text = "\n".join(lines)
    assert "error rate 2.4% of 42 turns; 2 calls" in text
    assert "server: 75% of the prompt tokens came from the cache" in text
    assert "silence and noise: 1 not answered, 0 answered" in text


def test_the_table_of_a_search() -> None:
    text = report_table(searched(4))
    assert "8 calls ✗" in text
    assert "most calls at once with p99 ≤ 1,000 ms: 4" in text
    assert "the limit may be higher" in report_table(searched(4, bounded=False))
    assert "p99 ≤ 1,000 ms held at no level" in report_table(searched(None))


def test_the_json_can_be_read_again() -> None:
    fields = json.loads(json.dumps(report_fields(report_of(mixed()), ABOUT)))
    assert fields["figures"]["latency_ms"]["p99"] is None
    assert fields["figures"]["error_rate"] == pytest.approx(1 / 42, abs=1e-4)
    assert [window["name"] for window in fields["windows"]] == ["ramp <up>", "soak"]
    assert fields["server"]["cached_share"] == 0.75
    assert len(fields["turns"]) == 43
    assert fields["calls"][1] == {
        "index": 1,
        "arrived_s": 6.0,
        "ended_s": 6.1,
        "ending": "refused",
        "reason": "session_limit_reached",
        "told_ms": 12.0,
        "worst_frame_ms": 0.0,
    }
    read = HdrHistogram.decode(fields["histogram"]["latency"])
    assert read.get_total_count() == 41
    assert json.loads(json.dumps(report_fields(searched(4), ABOUT)))["search"]["holds_calls"] == 4


def test_a_report_of_typed_messages_says_so() -> None:
    assert "the first words of the written answer" in report_html(report_of(mixed(), mode="text"), ABOUT)


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [(0, [0, 1]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (7, [0, 2, 4, 6, 8]), (1_234, [0, 250, 500, 750, 1_000, 1_250])],
)
def test_round_numbers_on_the_axis(highest: float, ticks: list[float]) -> None:
    assert nice_ticks(highest) == ticks


def test_numbers_and_times() -> None:
    assert [number(value) for value in (0, 0.25, 12, 1_234.5)] == ["0", "0.2", "12", "1,234"]
    assert [seconds(value) for value in (0, 61.9, 3_600)] == ["0:00", "1:01", "60:00"]
