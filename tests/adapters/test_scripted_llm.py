"""The scripted language model keeps to its script and its pace."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from duolog.adapters.scripted_llm import Fault, Line, ScriptedLanguageModel, ScriptedOptions, tokens
from duolog.ports.errors import EngineError, EngineRejected, EngineTimeout, EngineUnavailable
from duolog.ports.llm import ChatMessage, GenerationRequest, Role, Sampling, TextDelta

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def ask(model: ScriptedLanguageModel, said: str) -> str:
    request = GenerationRequest("r", (ChatMessage(Role.USER, said),), Sampling())
    text = ""
    async with aclosing(model.generate(request)) as stream:
        async for value in stream:
            text += value.text if isinstance(value, TextDelta) else ""
    return text


@given(st.text(max_size=60))
def test_tokens_together_are_the_text(text: str) -> None:
    assert "".join(tokens(text)) == text


async def test_the_script_answers_what_was_said() -> None:
    model = ScriptedLanguageModel(ScriptedOptions({"What time is it?": Line("Noon."), "*": Line("Pardon?")}))
    assert await ask(model, "what TIME is it") == "Noon."
    assert await ask(model, "something else") == "Pardon?"


async def test_without_a_line_it_says_what_it_heard() -> None:
    assert (
        await ask(ScriptedLanguageModel(), "Good morning.") == "You said: Good morning. And I heard every word of it."
    )


async def test_tokens_come_at_their_pace() -> None:
    model = ScriptedLanguageModel(ScriptedOptions({"*": Line("one two three")}, first_token_s=1.0, token_s=0.5))
    started = anyio.current_time()
    await ask(model, "go")
    assert anyio.current_time() - started == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.REFUSE, EngineRejected),
        (Fault.UNREACHABLE, EngineUnavailable),
        (Fault.DIE_MIDWAY, EngineUnavailable),
        (Fault.TIME_OUT, EngineTimeout),
    ],
)
async def test_faults_raise(fault: Fault, error: type[EngineError]) -> None:
    model = ScriptedLanguageModel(ScriptedOptions({"*": Line("one two three four", fault)}))
    with pytest.raises(error):
        await ask(model, "go")
    assert model.running == 0


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.STALL_MIDWAY])
async def test_a_stall_lasts_until_cancelled(fault: Fault) -> None:
    model = ScriptedLanguageModel(ScriptedOptions({"*": Line("one two three four", fault)}))
    with anyio.move_on_after(3600) as waiting:
        await ask(model, "go")
    assert waiting.cancelled_caught
    assert model.running == 0
