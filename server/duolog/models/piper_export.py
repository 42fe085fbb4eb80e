"""Coqui's own ONNX export of a VITS model, with the phoneme durations as one more output."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
from TTS.tts.models.vits import Vits

from duolog.ports.errors import ConfigurationError

DURATIONS = "durations"
"""Name of the added output: frames per symbol, shape (batch, 1, symbols), float."""


def export_with_durations(model: Vits, path: Path) -> None:
    """Write the graph `Vits.load_onnx` reads, plus `durations`. Raises ConfigurationError where none are found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The tracer warns of the same constants at each export; the result is tested.
        model.export_onnx(str(path), verbose=False)
    exported = onnx.load(str(path))
    rounding = [node for node in exported.graph.node if node.op_type == "Ceil"]
    if len(rounding) != 1:
        raise ConfigurationError(
            f"The exported graph rounds up in {len(rounding)} places, not one: the phoneme durations cannot be told."
        )
    original = rounding[0].output[0]
    exported.graph.node.append(onnx.helper.make_node("Identity", [original], [DURATIONS]))
    exported.graph.output.append(
        onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, ["batch_size", 1, "phonemes"])
    )
    onnx.save(exported, str(path))
