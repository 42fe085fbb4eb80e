"""Each language by its own recogniser, results in the order of the requests."""

from __future__ import annotations

import numpy as np
import pytest

from duolog.adapters.asr_by_language import RecognizerByLanguage
from duolog.adapters.scripted_asr import ScriptedRecognizer
from duolog.ports.asr import TranscriptionRequest

pytestmark = pytest.mark.session


def heard(language: str | None) -> TranscriptionRequest:
    return TranscriptionRequest(np.zeros(16_000, np.float32), language)


async def test_each_language_is_heard_by_its_own_recogniser() -> None:
    default = ScriptedRecognizer(lambda _: "default")
    chinese = ScriptedRecognizer(lambda _: "chinese")
    router = RecognizerByLanguage(default, {"zh": chinese})
    transcripts = await router.transcribe([heard("zh"), heard("en"), heard(None), heard("zh")])
    assert [transcript.text for transcript in transcripts] == ["chinese", "default", "default", "chinese"]
    assert await router.transcribe([]) == []


async def test_it_warms_and_closes_them_all() -> None:
    router = RecognizerByLanguage(ScriptedRecognizer(), {"zh": ScriptedRecognizer()})
    await router.warm_up()
    await router.aclose()
