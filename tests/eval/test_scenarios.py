"""Scenario files and the verdict over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.eval.report import markdown, scenarios_summary
from benchmarks.eval.scenario import Act, Edge, Engines, Expectation, Scenario, read_scenario, read_scenarios
from benchmarks.eval.verdict import LostWords, Performance, Seen, Verdict, judge, lost_words

from duolog.ports.errors import ConfigurationError

pytestmark = pytest.mark.pure

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"


def scenario(*expect: Expectation) -> Scenario:
    return Scenario("Somebody says something.", (), expect, name="one")


def performance(*events: tuple[float, str], **fields: object) -> Performance:
    marks = {("question", Edge.BEGIN): 1.0, ("question", Edge.END): 2.0}
    return Performance(0.0, marks, [Seen(at, {"type": kind, **fields}) for at, kind in events])


def problems(expectation: Expectation, seen: Performance) -> tuple[str, ...]:
    return judge(scenario(expectation), seen, Engines.REAL).problems


def test_every_scenario_of_the_folder_can_be_read() -> None:
    scenarios = read_scenarios(SCENARIOS)
    assert len(scenarios) >= 15
    assert any(one.engines is Engines.ANY for one in scenarios)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("description: x\nscript: []\nexpect: []\nwho: me\n", "unknown key `who`"),
        ("description: x\nscript:\n  - {name: a, sound: b}\nexpect: []\n", "sound"),
        ("description: x\nscript:\n  - {name: a}\nexpect: []\n", "the act `a` needs one of speech"),
        ("description: x\nscript: []\nexpect:\n  - {text: b}\n", "expectation 1 needs one of event and absent"),
        (
            "description: x\nscript: []\nexpect:\n  - {event: e, since: a.begin}\n",
            "`since: a.begin` names no act of the script",
        ),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read_scenario(file)
    assert "wrong.yaml" in str(caught.value)


def test_events_are_expected_in_order() -> None:
    expected = scenario(Expectation(event="b"), Expectation(event="a"))
    assert judge(expected, performance((1, "b"), (2, "a")), Engines.REAL).passed
    assert judge(expected, performance((1, "a"), (2, "b")), Engines.REAL).problems == ("a: did not come; came: b",)


def test_an_event_must_come_in_time() -> None:
    expected = Expectation(event="a", since="question.end", within_ms=500, measure="wait")
    assert not problems(expected, performance((2.4, "a")))
    assert problems(expected, performance((2.6, "a"))) == ("a: came after 600 ms, not 500",)
    assert judge(scenario(expected), performance((2.4, "a")), Engines.REAL).measured_ms == {"wait": 400.0}


def test_an_event_before_its_act_does_not_count() -> None:
    assert problems(Expectation(event="a", since="question.end"), performance((1.5, "a")))


def test_an_absent_event_must_not_come_in_its_time() -> None:
    expected = Expectation(absent="a", since="question.begin", for_ms=500)
    assert not problems(expected, performance((0.9, "a"), (1.6, "a")))
    assert problems(expected, performance((1.4, "a"))) == ("no a: came after 400 ms",)


def test_texts_and_fields_are_looked_at() -> None:
    seen = performance((1, "a"), response={"status": "completed", "output": [{"text": "The Capital is Paris."}]})
    assert not problems(Expectation(event="a", text="rome | capital"), seen)
    assert problems(Expectation(event="a", text="rome"), seen)
    assert not problems(Expectation(event="a", where={"response.status": "completed"}), seen)
    assert problems(Expectation(event="a", where={"response.status": "cancelled"}), seen)


def test_what_holds_with_other_engines_only_is_left_out() -> None:
    assert not problems(Expectation(event="a", engines=Engines.SCRIPTED), performance())


def test_a_failed_call_is_a_problem() -> None:
    seen = performance()
    seen.problem = "The connection broke off."
    assert judge(scenario(), seen, Engines.REAL).problems == ("The connection broke off.",)


def test_the_table_tells_what_failed_and_how_long_things_took() -> None:
    expected = scenario(Expectation(event="a", since="question.end", measure="wait"))
    verdicts = [judge(expected, performance((at, "a")), Engines.REAL) for at in (2.1, 2.3, 1.0)]
    summary = scenarios_summary(verdicts)
    assert (summary["played"], summary["passed"]) == (3, 2)
    assert summary["measured_ms"] == {"wait": {"count": 2, "p50": 200, "p95": 290}}
    table = markdown({"scenarios": summary})
    assert "| scenarios | by scenario · one | 2 of 3 | all | no |" in table
    assert "| scenarios | measured ms · wait | p50 200, p95 290 (2) |  |  |" in table


@pytest.mark.parametrize(
    ("part", "figures", "row"),
    [
        ("noise", {"phantom_turns": 0}, "| noise | phantom turns | 0 | ≤ 0 | yes |"),
        ("noise", {"phantom_turns": 2}, "| noise | phantom turns | 2 | ≤ 0 | no |"),
        (
            "conversation",
            {"cached_share_from_turn_2": None},
            "| conversation | cached share from turn 2 | None | ≥ 0.9 | not measured |",
        ),
        (
            "scenarios",
            {"measured_ms": {"one_word_to_stop": {"count": 2, "p50": 700, "p95": 950}}},
            "| scenarios | measured ms · one word to stop | p50 700, p95 950 (2) | ≤ 900 | no |",
        ),
    ],
)
def test_a_figure_stands_beside_its_goal(part: str, figures: dict[str, object], row: str) -> None:
    assert row in markdown({part: figures})


def test_words_of_an_interruption_that_no_transcript_has_are_lost() -> None:
    flushes = Expectation(event="duolog.flush")
    over = Act("stop", speech="No, tell me about rivers.", after="duolog.speech.started")
    asked = Scenario("Somebody interrupts.", (Act("question", speech="Anything?"), over), (flushes,))
    heard = performance(
        (3, "conversation.item.input_audio_transcription.completed"),
    )
    heard.events[0] = Seen(3, {**heard.events[0].message, "transcript": "Tell me about livers"})
    assert lost_words(asked, heard) == LostWords(5, ("no", "rivers"))
    assert lost_words(scenario(), heard) == LostWords(0, ())
    heard.marks["stop", Edge.BEGIN] = 4.0
    assert lost_words(asked, heard).lost == ("no", "tell", "me", "about", "rivers"), "what came before is no evidence"


def test_only_a_cut_answer_is_a_false_interruption() -> None:
    cut = Verdict("cough", ("no duolog.flush: came after 400 ms",), {})
    broken = Verdict("cough", ("response.done: did not come; came: nothing",), {})
    summary = scenarios_summary([cut, broken, Verdict("stop", cut.problems, {})])
    assert summary["false_interruptions"] == 1


def test_a_text_is_looked_for_as_whole_words() -> None:
    seen = performance((1, "a"))
    for said, found in (("No, thanks.", True), ("I know.", False), ("我们去广州吧", True)):
        seen.events[0] = Seen(1, {"type": "a", "transcript": said})
        assert bool(problems(Expectation(event="a", text="no|广州"), seen)) is not found
