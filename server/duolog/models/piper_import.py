"""Turns a Piper voice into a Coqui VITS model folder: `config.json`, `model.pth`, `model.onnx`.

The folder is a true Coqui model: Coqui's `Synthesizer` and `Vits.load_checkpoint` read it. The parts that only training
uses (posterior encoder, one unused flow) are Coqui's initial values: fine-tuning would have to learn them anew.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from TTS.tts.models.vits import Vits

from duolog.adapters.espeak_phonemizer import register_with_coqui
from duolog.models.piper_config import coqui_config, read_piper_config, vocabulary_of, write_coqui_config
from duolog.models.piper_export import export_with_durations
from duolog.models.piper_weights import load_into, read_weights

CONFIG, CHECKPOINT, GRAPH = "config.json", "model.pth", "model.onnx"


def import_piper(onnx_path: Path, config_path: Path, out_dir: Path) -> None:
    """Convert one voice into `out_dir`, which is complete once it holds `config.json`.

    Takes 10 to 30 s on one core and blocks: call it from a start-up step or a child process, never from an event loop.
    Raises ModelMissing where a file is absent or damaged, ConfigurationError for a voice of another kind.
    """
    piper = read_piper_config(config_path)
    vocabulary = vocabulary_of(piper)
    weights = read_weights(onnx_path, vocabulary.piper_rows)
    register_with_coqui()
    torch.manual_seed(0)  # The training-only parts are random: the same each time.
    config = coqui_config(piper, vocabulary)
    model = Vits(config)
    load_into(model, weights, onnx_path.name)
    model.eval()
    _write_folder(model, out_dir)


def _write_folder(model: Vits, out_dir: Path) -> None:
    partial = out_dir.with_name(out_dir.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    torch.save({"model": model.state_dict(), "step": 0}, partial / CHECKPOINT)
    export_with_durations(model, partial / GRAPH)
    write_coqui_config(model.config, partial / CONFIG)
    out_dir.mkdir(exist_ok=True)
    (out_dir / CONFIG).unlink(missing_ok=True)
    for name in (CHECKPOINT, GRAPH, CONFIG):  # The configuration last: it marks a complete folder.
        os.replace(partial / name, out_dir / name)
    partial.rmdir()
