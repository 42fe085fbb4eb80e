"""What the callers say: files of the recorded-speech corpus, by name; they are read where they lie, never copied.

Chosen for a clear end: English, clean, 2 to 12 s, a quiet background, and no pause inside that a voice detector with
200 ms of patience would take for the end of the turn. Every system hears the same ones.
"""

from __future__ import annotations

import os
from pathlib import Path

from duolog.loadtest.audio_files import read_speech
from duolog.loadtest.campaign import Utterance
from duolog.loadtest.failures import AudioUnreadable

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("DUOLOG_CORPUS", ROOT.parent / "shared" / "corpus"))

UTTERANCES = (
    "en/ms_whatstheweatherlike.wav",
    "en/sb_spk1_snt3.wav",
    "turn/sm_09.wav",
    "en/ls_1221-135766-0002.wav",
    "en/sb_spk1_snt6.wav",
    "en/librivox_0920.wav",
    "en/sb_spk1_snt4.wav",
    "en/ls_1089-134686-0001.wav",
    "en/sb_example2.flac",
)


def load_utterances(count: int = len(UTTERANCES), corpus: Path = CORPUS) -> list[Utterance]:
    """The first `count` utterances. Raises AudioUnreadable, saying where the corpus was looked for."""
    if not (corpus / "corpus.jsonl").is_file():
        raise AudioUnreadable(
            f"The recorded-speech corpus is not at {corpus}; set DUOLOG_CORPUS to the folder that holds corpus.jsonl."
        )
    return [Utterance(name, read_speech(corpus / name)) for name in UTTERANCES[:count]]
