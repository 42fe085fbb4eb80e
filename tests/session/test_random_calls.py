"""Random callers against one call each: whatever they do and whenever, nothing leaks, nothing stale, nothing hangs.

Each seed is one script of steps; a failure names the seed and the steps so far. DUOLOG_RANDOM_TURNS=2000 asks for that
many interruptions in all; without it there are a few, for every run of the tests.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio
import numpy as np
import pytest
from tests.session.harness import RATE_HZ, World, persona, world
from tests.session.witness import Witness
from trio._core import _run
from trio.lowlevel import current_statistics

from duolog.adapters.scripted_llm import Fault, Line
from duolog.personas import TurnTaking
from duolog.ports.errors import EngineTimeout, EngineUnavailable, RequestRefused
from duolog.session.config import Eagerness, Modality, ResponseOptions, SemanticVad, ServerVad
from duolog.session.control import PlayoutReport
from duolog.session.switchboard import CallRequest
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

pytestmark = pytest.mark.session

TURNS = int(os.environ.get("DUOLOG_RANDOM_TURNS", "60"))
BARGE_INS_A_CALL = 6
STEPS = 16
SETTLE_S = 150.0
"""Longer than the longest answer and every time limit of the engines together."""
STEP_LIMIT_S = 120.0

LONG = "Well, let me tell you all about it, from the beginning to the end. " * 4
LINES = {
    "one": Line("Yes?"),
    "one two": Line(LONG),
    "one two three": Line(LONG, Fault.DIE_MIDWAY),
    "one two three four": Line("Four is my favourite. It costs $4.50 in *Bern*! 🎉 Really."),
    "one two three four five": Line("x", Fault.REFUSE),
    "one two three four five six": Line(LONG, Fault.STALL_MIDWAY),
    "hello": Line("Hello yourself."),
    "tell me": Line(LONG),
    "nothing": Line(""),
    "only signs": Line("*** --- 🎉"),
    "stall": Line("", Fault.STALL),
    "time out": Line("", Fault.TIME_OUT),
    "refuse": Line("", Fault.REFUSE),
    "die": Line(LONG, Fault.DIE_MIDWAY),
}
TYPED = ("hello", "tell me", "nothing", "only signs", "stall", "time out", "refuse", "die")


@dataclass
class Chaos:
    """One random caller."""

    witness: Witness
    world: World
    dice: random.Random
    steps: list[str] = field(default_factory=list)
    _typed: int = 0

    async def act(self) -> None:
        """Do one random thing, which the call may refuse but must survive."""
        steps = self._choices()
        step = self.dice.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        self.steps.append(f"{anyio.current_time():.2f} {step.__name__}")
        try:
            await step()
        except RequestRefused as refused:
            self.steps[-1] += f" (refused: {refused.code})"
        if self.dice.random() < 0.5:
            await self.witness.pause(self.dice.choice([0.02, 0.1, 0.3, 0.8]))

    def _choices(self) -> list[tuple[Callable[[], Awaitable[None]], int]]:
        return [
            (self.barge_in, 36),
            (self.speak, 8),
            (self.speak_in_pieces, 4),
            (self.cough, 4),
            (self.listen, 4),
            (self.type, 6),
            (self.ask, 4),
            (self.cancel, 4),
            (self.truncate, 3),
            (self.delete, 3),
            (self.retrieve, 1),
            (self.configure, 3),
            (self.mute, 2),
            (self.commit, 3),
            (self.clear, 1),
            (self.greet, 1),
            (self.fail_an_engine, 3),
            (self.stall_an_engine, 1),
            (self.lose_the_network, 2),
            (self.send_much_at_once, 2),
            (self.read_nothing, 1),
            (self.report_nonsense, 1),
        ]

    async def barge_in(self) -> None:
        """Speak over an answer, wherever it is."""
        if not self.witness.sounds:
            with suppress(RequestRefused):  # something is being answered already
                self._create("tell me")
                self.witness.call.create_response(ResponseOptions())
        await self.witness.until(lambda: bool(self.witness.sounds), 3.0)
        await self.witness.pause(self.dice.uniform(0.0, 2.0))
        await self.witness.say(self.dice.uniform(0.1, 1.2))

    async def speak(self) -> None:
        await self.witness.say(self.dice.uniform(0.06, 3.0))
        await self.witness.pause(self.dice.uniform(0.02, 1.5))

    async def speak_in_pieces(self) -> None:
        for _ in range(self.dice.randint(2, 5)):
            await self.witness.say(self.dice.uniform(0.1, 0.6))
            await self.witness.pause(self.dice.uniform(0.02, 0.6))

    async def cough(self) -> None:
        await self.witness.say(self.dice.uniform(0.02, 0.14))
        await self.witness.pause(self.dice.uniform(0.1, 0.9))

    async def listen(self) -> None:
        await self.witness.pause(self.dice.uniform(1.0, 6.0))

    async def type(self) -> None:
        self._create(self.dice.choice(TYPED))
        if self.dice.random() < 0.8:
            await self.ask()

    async def ask(self) -> None:
        options = ResponseOptions()
        if self.dice.random() < 0.3:
            options = replace(options, output_modality=self.dice.choice(list(Modality)))
        if self.dice.random() < 0.2:
            options = replace(options, out_of_band=True)
        if self.dice.random() < 0.2:
            options = replace(options, max_output_tokens=self.dice.choice([1, 5]))
        if self.dice.random() < 0.1:
            options = replace(options, input_items=tuple(self._items(2)))
        self.witness.call.create_response(options)

    async def cancel(self) -> None:
        known = list(self.witness.answers)
        self.witness.call.cancel_response(self.dice.choice([None, None, *known[-1:], "resp_unknown"]))

    async def truncate(self) -> None:
        for item_id in self._items(1):
            self.witness.call.truncate_item(item_id, 0, self.dice.choice([0, 50, 700, 3_000, 99_000]))

    async def delete(self) -> None:
        for item_id in self._items(1):
            self.witness.call.delete_item(item_id)

    async def retrieve(self) -> None:
        for item_id in self._items(1):
            self.witness.call.retrieve_item(item_id)

    async def configure(self) -> None:
        detection = self.dice.choice(
            [
                None,
                ServerVad(),
                ServerVad(silence_duration_ms=200),
                ServerVad(create_response=False),
                ServerVad(interrupt_response=False),
                SemanticVad(Eagerness.HIGH),
            ]
        )
        changed = replace(
            self.witness.call.config,
            turn_detection=detection,
            output_modality=self.dice.choice([Modality.AUDIO, Modality.AUDIO, Modality.TEXT]),
            transcribe=self.dice.random() < 0.9,
        )
        self.witness.transcribing = self.witness.transcribing and changed.transcribe
        self.witness.call.update(changed)

    async def mute(self) -> None:
        self.witness.call.set_muted(self.dice.random() < 0.3)

    async def commit(self) -> None:
        self.witness.call.commit_audio()

    async def clear(self) -> None:
        self.witness.call.clear_audio()

    async def greet(self) -> None:
        self.witness.call.greet()

    async def fail_an_engine(self) -> None:
        if self.dice.random() < 0.5:
            self.world.asr.fail_next(EngineUnavailable("no recogniser", engine="asr"))
        else:
            self.world.tts.fail_next(EngineTimeout("no voice", engine="tts"))

    async def stall_an_engine(self) -> None:
        self.dice.choice([self.world.asr.stall_next, self.world.tts.stall_next])()

    async def lose_the_network(self) -> None:
        await anyio.sleep(self.dice.uniform(0.2, 2.5))

    async def send_much_at_once(self) -> None:
        loud = self.dice.choice([0, 3_000])
        samples = np.random.default_rng(2).standard_normal(int(RATE_HZ * self.dice.uniform(0.1, 3.0))) * loud
        await self.witness.call.append_audio(samples.astype(np.int16))

    async def read_nothing(self) -> None:
        self.witness.readable = anyio.Event()
        await self.witness.pause(self.dice.uniform(0.1, 3.0))
        self.witness.readable.set()

    async def report_nonsense(self) -> None:
        generation = self.dice.randint(-1, 99)
        self.witness.call.report_playout(PlayoutReport(generation, self.dice.choice([0, 10**9]), ended=True))

    def _items(self, count: int) -> list[str]:
        """Of the newest items, deleted ones among them, and one that never was."""
        return self.dice.choices(["item_unknown", *list(self.witness.items)[-6:]], k=count)

    def _create(self, text: str) -> None:
        self._typed += 1
        item = Item(f"item_typed_{self._typed}", ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, text),))
        after = self.dice.choice([None, None, None, "root", *list(self.witness.items)[-2:]])
        self.witness.call.create_item(item, after)


async def play(seed: int) -> None:
    """One call after one seed."""
    dice = random.Random(seed)
    _run._r.seed(seed)  # the order of trio's tasks is random, too; there is no public way to make it repeatable
    one = persona(turn_taking=TurnTaking(silence_ms=500, interruptible=dice.random() < 0.85))
    asr_delay_s, tts_delay_s = dice.choice([0.0, 0.1, 0.6]), dice.choice([0.0, 0.06, 1.5])
    reports = dice.random() < 0.7
    async with world(lines=LINES, one=one, asr_delay_s=asr_delay_s, tts_delay_s=tts_delay_s) as w:
        await anyio.wait_all_tasks_blocked()
        tasks_before = current_statistics().tasks_living
        request = CallRequest(greet=dice.random() < 0.3, reports_playout=reports, input_rate_hz=RATE_HZ)
        async with w.switchboard.open_call(request) as call, anyio.create_task_group() as tasks:
            witness = Witness(call, w, reports)
            tasks.start_soon(witness.listen)
            if reports:
                tasks.start_soon(witness.report)
            chaos = Chaos(witness, w, dice)
            try:
                for _ in range(STEPS):
                    with anyio.fail_after(STEP_LIMIT_S):
                        await chaos.act()
                if dice.random() < 0.75:
                    await anyio.sleep(SETTLE_S)
                    witness.at_rest()
            except BaseException as error:
                error.add_note(f"seed {seed}: " + "; ".join(chaos.steps))
                raise
            tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        running = (w.llm.running, w.tts.running, w.asr.running)
        assert running == (0, 0, 0), f"seed {seed}: engines outlive the call (llm, tts, asr): {running}"
        assert w.switchboard.active == 0
        assert current_statistics().tasks_living == tasks_before, f"seed {seed}: tasks outlive the call"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(max(4, TURNS // BARGE_INS_A_CALL)))
async def test_whatever_a_caller_does_the_call_keeps_its_promises(seed: int) -> None:
    await play(seed)
