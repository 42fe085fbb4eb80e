"""The benchmarks' own arithmetic: what is written, in which order systems are measured, and the peer's wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
import trio.testing
from benchmarks.call import HISTORY_TOKENS, long_history, write_results
from benchmarks.peer import PEER, peer_command, plan
from benchmarks.peer_ratio import ratio_fields, ratio_table, ratios
from benchmarks.peer_wire import PeerAudio, PeerInterruption, decode, encode_audio
from benchmarks.schedule import Budget, Part, measure
from benchmarks.stack import PERSONAS
from benchmarks.utterances import UTTERANCES, load_utterances

from duolog.loadtest.campaign import STAGGER_S, Utterance, conversations
from duolog.loadtest.measured_turn import MeasuredTurn
from duolog.loadtest.results import Run, machine_facts, markdown_table, run_summary
from duolog.loadtest.timeline import TurnTimeline, last_voiced_sample
from duolog.personas import load_persona

pytestmark = pytest.mark.session

SCHEMA = json.loads((Path(__file__).parents[2] / "benchmarks" / "call_latency.schema.json").read_text())
SAID = [Utterance(f"u{number}", np.zeros(320, dtype=np.int16)) for number in range(4)]


def turn(heard_ms: float, **other: object) -> MeasuredTurn:
    timeline = TurnTimeline(endpoint_ms=600.0, heard_ms=heard_ms, silence_wait_ms=500.0)
    fields: dict[str, object] = {"answer": "I am very well", "timeline": timeline, **other}
    return MeasuredTurn("u0", **fields)  # type: ignore[arg-type]


def run(system: str, *heard_ms: float, calls: int = 1) -> Run:
    return Run(system, calls, "tiny", (tuple(turn(value) for value in heard_ms),))


def test_results_fit_their_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_out = (turn(1.0, failure="no answer"), turn(1.0, answer="Well, yes"))
    runs = [Run("duolog", 2, "tiny", ((turn(700.0), turn(900.0)), left_out)), Run("duolog", 4, "tiny", ())]
    target = tmp_path / "results" / "call_latency.json"
    assert write_results(runs, target)
    written = json.loads(target.read_text())
    jsonschema.validate(written, SCHEMA)
    two, four = written["runs"]
    assert two["turns_left_out"] == {"failed": 1, "first phrase too short": 1}
    assert two["stages"]["heard_ms"]["p50"] == 800.0
    assert two["heard_without_silence_wait_ms"]["p50"] == 300.0
    assert two["heard_after_endpoint_ms"]["p50"] == 200.0
    assert two["released_early"] == {"turns": 0, "heard_ms": None}
    assert two["failures"] == ["no answer"]
    assert four["stages"]["heard_ms"] is None
    assert "| duolog | 2 | 2/4 |" in target.with_suffix(".md").read_text()
    assert "800" in capsys.readouterr().out


def test_turns_that_were_over_early_have_figures_of_their_own() -> None:
    early = [turn(value, timeline=TurnTimeline(heard_ms=value, silence_wait_ms=300.0)) for value in (500.0, 600.0)]
    summary = run_summary(Run("duolog", 1, "tiny", ((*early, turn(900.0)),)))
    assert summary["released_early"]["turns"] == 2  # type: ignore[index]
    assert "| 550 / 590 / 599 (2 turns) |" in markdown_table([summary], machine_facts())


def test_the_long_history_is_as_long_as_it_says() -> None:
    history = long_history()
    template_tokens = 6
    tokens = sum(len(said.text) / 4 + template_tokens for said in history)
    assert tokens == pytest.approx(HISTORY_TOKENS, rel=0.1)
    assert len(set(history)) == len(history)


def test_nothing_counted_is_said(tmp_path: Path) -> None:
    assert not write_results([Run("duolog", 1, "tiny", ())], tmp_path / "x.json")


def test_the_ratio_is_taken_over_the_peers_best() -> None:
    runs = [run("duolog-bench", 500.0), run("pipecat-C", 1_500.0), run("pipecat-D", 1_250.0), run("pipecat-A", 2_000.0)]
    runs += [run("duolog-bench", 900.0, calls=4), run("pipecat-C", 3_000.0, calls=4), run("pipecat-D", calls=4)]
    alone, together = ratios(runs, peer_prefix=PEER)
    assert (alone.peer, alone.p50_ratio) == ("pipecat-D", 0.4)
    assert (together.calls, together.peer, together.p50_ratio) == (4, "pipecat-C", 0.3)
    assert "| 4 | duolog-bench: 900 / 900 | pipecat-C: 3,000 / 3,000 | 0.30 | 0.30 |" in ratio_table([alone, together])
    summaries = [run_summary(one) for one in runs]
    fields = {"machine": machine_facts(), "peer": "x", "ratios": ratio_fields([alone, together]), "runs": summaries}
    jsonschema.validate(fields, SCHEMA)
    assert markdown_table(summaries, machine_facts()).count("\n") == len(runs) + 4


def test_no_ratio_without_both() -> None:
    assert ratios([run("duolog-bench", 500.0)], peer_prefix=PEER) == []


def test_the_default_configuration_is_measured_alone_and_once() -> None:
    parts = plan([1, 4], ["bench"], ["A", "C", "D"])
    names = [(part.system, part.calls, part.rounds) for part in parts]
    assert names == [
        ("duolog-bench", 1, None),
        ("pipecat-A", 1, 1),
        ("pipecat-C", 1, None),
        ("pipecat-D", 1, None),
        ("duolog-bench", 4, None),
        ("pipecat-C", 4, None),
        ("pipecat-D", 4, None),
    ]


def test_callers_say_the_same_in_another_order() -> None:
    calls = conversations(SAID, shift=1, turns_per_call=3)
    assert [[one.name for one in said] for said in calls] == [["u1", "u2", "u3"], ["u0"]]


@dataclass
class FakeCaller:
    """Takes a second for each utterance."""

    begun: list[tuple[float, str]] = field(default_factory=list)

    async def converse(self, utterances: Sequence[Utterance]) -> list[MeasuredTurn]:
        self.begun.append((anyio.current_time(), utterances[0].name))
        await anyio.sleep(len(utterances))
        return [turn(700.0) for _ in utterances]


def measured_in_virtual_time(parts: Sequence[Part], caller: FakeCaller, budget: Budget) -> list[Run]:
    async def work() -> list[Run]:
        return await measure(parts, {"a": caller, "b": caller}, SAID, budget=budget, say=lambda line: None)

    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def test_parts_take_turns_and_rounds_go_on_with_the_next_utterances() -> None:
    parts = [Part("a", 1, "tiny", 3), Part("b", 2, "tiny", 2, rounds=1)]
    caller = FakeCaller()
    a, b = measured_in_virtual_time(parts, caller, Budget(rounds=2, limit_s=60))
    assert [name for _, name in caller.begun] == ["u0", "u0", "u1", "u3"]
    assert caller.begun[2][0] - caller.begun[1][0] == pytest.approx(STAGGER_S)
    assert (len(a.rounds), len(a.turns), len(b.rounds), len(b.turns)) == (2, 6, 1, 4)


def test_nothing_begins_that_would_pass_the_limit() -> None:
    parts = [Part("a", 1, "tiny", 3)]
    [done] = measured_in_virtual_time(parts, FakeCaller(), Budget(rounds=5, limit_s=7))
    assert len(done.rounds) == 2


def test_the_peers_wire() -> None:
    pcm = np.array([1, -2], dtype="<i2")
    audio = decode(encode_audio(pcm.tobytes(), 22_050))
    assert isinstance(audio, PeerAudio)
    assert (audio.samples.tolist(), audio.rate_hz) == ([1, -2], 22_050)
    assert decode(b"\x2a\x02\x08\x05") == PeerInterruption()
    assert decode(b"\x22\x04\x0a\x02{}") is None


def test_the_peer_gets_our_prompt_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "joe-piper").mkdir()
    (tmp_path / "joe-piper" / "voice.onnx").touch()
    monkeypatch.setattr("benchmarks.peer.ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.peer.Settings", lambda: type("Store", (), {"models_dir": Path()}))
    command = peer_command(Path("python"), 9, "http://llm/v1")
    bench = load_persona(PERSONAS / "bench.yaml")
    assert command[command.index("--prompt") + 1] == bench.instructions
    assert command[command.index("--max-tokens") + 1] == str(bench.sampling.max_tokens)
    assert bench.sampling.temperature == 0


def test_both_benchmark_personas_differ_in_patience_only() -> None:
    slow, quick = load_persona(PERSONAS / "bench.yaml"), load_persona(PERSONAS / "bench200.yaml")
    assert (slow.turn_taking.silence_ms, quick.turn_taking.silence_ms) == (500, 200)
    assert (slow.instructions, slow.sampling, slow.voice) == (quick.instructions, quick.sampling, quick.voice)


@pytest.mark.corpus
def test_every_utterance_is_there_and_ends_before_its_file(corpus: Path) -> None:
    utterances = load_utterances(corpus=corpus)
    assert len(utterances) == len(UTTERANCES)
    assert all(1.0 < last_voiced_sample(one.samples) / 16_000 < 12 for one in utterances)
