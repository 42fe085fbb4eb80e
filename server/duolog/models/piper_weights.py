"""Moves the weights of a Piper ONNX graph into a Coqui VITS model.

Both descend from the same VITS code, so the tensors are the same under other names:

| Piper | Coqui |
|---|---|
| `enc_p.*`, `dec.*`, `dp.*` | `text_encoder.*`, `waveform_decoder.*`, `duration_predictor.*` |
| `flow.flows.{0,2,4,6}` | `flow.flows.{0,1,2,3}` (Coqui flips channels without a module of its own) |
| `dp.flows.{3,5,7}` | `duration_predictor.flows.{2,3,4}` |
| `dp.flows.0.m`, `.logs` | `duration_predictor.flows.0.translation`, `.log_scale` |

The exporter has folded `exp(-logs)` into a constant, has lost the names of some weights (they are found by the Conv
node that uses them), and has merged weight normalisation (it is split again with the weight's own norm).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # Ships no types.
from numpy.typing import NDArray
from onnx import numpy_helper
from TTS.tts.models.vits import Vits

from duolog.ports.errors import ConfigurationError, ModelMissing

EMBEDDING = "text_encoder.emb.weight"
_FOLDED_LOG_SCALE = "/dp/flows.0/Exp_output_0"
_EMBEDDING_NODE = "/enc_p/emb/Gather"
_SCOPES = {"enc_p": "text_encoder", "dec": "waveform_decoder", "dp": "duration_predictor", "flow": "flow"}
_TRAINING_ONLY = ("posterior_encoder.", "duration_predictor.flows.1.", "duration_predictor.post_")
"""Parts of a Coqui model that inference never runs, and that no ONNX file has."""

Weights = dict[str, NDArray[np.float32]]


def read_weights(onnx_path: Path, piper_rows: tuple[int, ...]) -> Weights:
    """Weights under Coqui's names, the embedding in Coqui's order of symbols. Raises ModelMissing."""
    try:
        graph = onnx.load(str(onnx_path)).graph
    except FileNotFoundError as error:
        raise ModelMissing(f"The Piper voice {onnx_path.name} is not there; download it first.") from error
    except DecodeError as error:
        raise ModelMissing(f"The Piper voice {onnx_path.name} is damaged; download it again.") from error
    _refuse_other_inputs(graph, onnx_path)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    names = _weight_names(graph)
    weights = {_coqui_name(name): tensors[tensor] for tensor, name in names.items() if tensor in tensors}
    weights[EMBEDDING] = weights[EMBEDDING][list(piper_rows)]
    weights["duration_predictor.flows.0.log_scale"] = -np.log(tensors[_FOLDED_LOG_SCALE])
    return weights


def load_into(model: Vits, weights: Weights, source: str) -> None:
    """Fill `model`; every inference weight must be there with its shape, and none may be left over."""
    state = model.state_dict()
    used: set[str] = set()
    for key in state:
        name, part = _split_weight_norm(key)
        if name in weights:
            state[key] = torch.tensor(_normed_part(weights[name], part))
            used.add(name)
        elif not key.startswith(_TRAINING_ONLY):
            raise ConfigurationError(f"{source} has no weight for {key}: it is not a Piper voice of medium quality.")
    if left := weights.keys() - used:
        raise ConfigurationError(f"{source} has weights that Coqui's VITS lacks, such as {min(left)}; refused.")
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise ConfigurationError(f"{source} has weights of other shapes than a medium voice: {error}") from error


def _refuse_other_inputs(graph: onnx.GraphProto, onnx_path: Path) -> None:
    inputs = [value.name for value in graph.input]
    if inputs != ["input", "input_lengths", "scales"]:
        raise ConfigurationError(
            f"{onnx_path.name} takes {inputs}: only single-speaker Piper voices (input, input_lengths, scales) convert."
        )


def _weight_names(graph: onnx.GraphProto) -> dict[str, str]:
    """Initializer name to the name its module gives it in Piper's code."""
    names = {
        tensor.name: tensor.name
        for tensor in graph.initializer
        if tensor.name.startswith(("enc_p.", "dec.", "dp.", "flow."))
    }
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1].startswith("onnx::Conv"):
            names[node.input[1]] = node.name.strip("/").removesuffix("/Conv").replace("/", ".") + ".weight"
        elif node.name == _EMBEDDING_NODE:
            names[node.input[0]] = "enc_p.emb.weight"
    return names


def _coqui_name(name: str) -> str:
    scope, _, rest = name.partition(".")
    if flow := re.fullmatch(r"flows\.(\d+)\.(.+)", rest):
        number = int(flow[1])
        if scope == "flow":
            rest = f"flows.{number // 2}.{flow[2]}"
        elif number > 0:
            rest = f"flows.{(number + 1) // 2}.{flow[2]}"
        else:
            rest = rest.replace("flows.0.m", "flows.0.translation")
    return f"{_SCOPES[scope]}.{rest}"


def _split_weight_norm(key: str) -> tuple[str, str]:
    name, found, part = key.partition(".parametrizations.weight.")
    return (f"{name}.weight", part) if found else (key, "")


def _normed_part(weight: NDArray[np.float32], part: str) -> NDArray[np.float32]:
    """`original0` is the norm over all but the first axis, `original1` the direction."""
    if part != "original0":
        return weight
    axes = tuple(range(1, weight.ndim))
    norm: NDArray[np.float32] = np.sqrt((weight.astype(np.float64) ** 2).sum(axis=axes, keepdims=True)).astype(
        np.float32
    )
    return norm
