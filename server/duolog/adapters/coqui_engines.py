"""Two ways to run a Coqui VITS model: its exported graph in ONNX Runtime, and the checkpoint in torch.

ONNX Runtime takes about half the time of torch on one CPU thread. Its graph is cut before the waveform decoder, which
is convolutional: decoded piece by piece, with as many frames around each piece as its kernels reach, the sound is that
of the whole, and the first piece is there long before the last.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
import onnxruntime
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # Ships no types.
from numpy.typing import NDArray
from onnx.utils import Extractor
from TTS.tts.configs.vits_config import VitsArgs, VitsConfig
from TTS.tts.models.vits import Vits

from duolog.ports.errors import ModelMissing

DURATIONS = "durations"
DECODER_INPUT_NODE = "/waveform_decoder/conv_pre/Conv"
FIRST_PIECE_FRAMES = 24
"""0.28 s at 22,050 Hz with a hop of 256: sounds longer than the second piece takes to decode."""
PIECE_GROWTH = 4
MAX_PIECE_FRAMES = 192
"""2.2 s: bounds how long a stopped phrase still holds the thread."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The sound of one sentence."""

    frames: NDArray[np.int64]
    """Length of each symbol, in frames of `hop_samples`, shape (symbols,)."""
    pieces: Iterator[NDArray[np.float32]]
    """The sound in order, computed as it is asked for."""


class VitsEngine(Protocol):
    def render(self, ids: Sequence[int], length_scale: float) -> Rendering:
        """Speak one sentence; `length_scale` above 1 is slower."""
        ...


class OnnxEngine:
    """The exported graph on the CPU."""

    def __init__(self, path: Path, config: VitsConfig, threads: int) -> None:
        """Raises ModelMissing where the file is damaged."""
        args = config.model_args
        self._noise = (float(args.inference_noise_scale), float(args.inference_noise_scale_dp))
        self._length_scale = float(args.length_scale)
        self._hop_samples = math.prod(args.upsample_rates_decoder)
        self._reach_frames = decoder_reach_frames(args)
        encoder, decoder = _cut_graph(path)
        self._latent = decoder.graph.input[0].name
        self._encoder = _session(encoder, threads)
        self._decoder = _session(decoder, threads)

    def render(self, ids: Sequence[int], length_scale: float) -> Rendering:
        noise, duration_noise = self._noise
        feeds = {
            "input": np.array([ids], dtype=np.int64),
            "input_lengths": np.array([len(ids)], dtype=np.int64),
            "scales": np.array([noise, length_scale * self._length_scale, duration_noise], dtype=np.float32),
        }
        latent, durations = self._encoder.run([self._latent, DURATIONS], feeds)
        return Rendering(durations.reshape(-1).astype(np.int64), self._decode(latent))

    def _decode(self, latent: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        total = latent.shape[2]
        for start, end in pieces(total, self._reach_frames):
            before = min(start, self._reach_frames)
            window = latent[:, :, start - before : min(total, end + self._reach_frames)]
            sound = self._decoder.run(None, {self._latent: window})[0].reshape(-1)
            yield sound[before * self._hop_samples : (before + end - start) * self._hop_samples]


class TorchEngine:
    """The checkpoint in torch: on the GPU where there is one, else on the CPU."""

    def __init__(self, path: Path, config: VitsConfig, threads: int) -> None:
        """Raises ModelMissing where the file is damaged or does not fit the configuration."""
        torch.set_num_threads(threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        config.model_args.init_discriminator = False
        model = Vits(config)
        try:
            model.load_checkpoint(config, str(path), eval=True, strict=False)
        except (RuntimeError, KeyError, EOFError, pickle.UnpicklingError, OSError) as error:
            raise ModelMissing(
                f"The checkpoint {path.name} in {path.parent.name} does not load ({error}); fetch the voice again."
            ) from error
        self._model = model.to(self._device)
        self._length_scale = float(config.model_args.length_scale)

    def render(self, ids: Sequence[int], length_scale: float) -> Rendering:
        self._model.length_scale = length_scale * self._length_scale
        outputs = self._model.inference(torch.tensor([list(ids)], device=self._device))
        frames = outputs["durations"].reshape(-1).cpu().numpy().astype(np.int64)
        return Rendering(frames, iter([outputs["model_outputs"].reshape(-1).float().cpu().numpy()]))


def has_durations(path: Path) -> bool:
    """Whether the exported graph also gives the phoneme durations. Raises ModelMissing where the file is damaged."""
    return any(output.name == DURATIONS for output in _load_graph(path).graph.output)


def pieces(total_frames: int, reach_frames: int) -> Iterator[tuple[int, int]]:
    """(start, end) frames: a short first piece, later ones longer; a rest too short to pay is joined."""
    start, length = 0, FIRST_PIECE_FRAMES
    while start < total_frames:
        end = start + length
        if total_frames - end < 2 * reach_frames:
            end = total_frames
        yield start, end
        start, length = end, min(PIECE_GROWTH * length, MAX_PIECE_FRAMES)


def decoder_reach_frames(args: VitsArgs) -> int:
    """How many frames to each side a sample of the decoder's output depends on, from its kernels."""
    reach, rate = 3.0, 1  # conv_pre has kernel 7.
    for upsample_rate, upsample_kernel in zip(
        args.upsample_rates_decoder, args.upsample_kernel_sizes_decoder, strict=True
    ):
        reach += upsample_kernel / upsample_rate / 2 / rate
        rate *= upsample_rate
        reach += max(_block_reach(args, kernel, dilations) for kernel, dilations in _blocks(args)) / rate
    return math.ceil(reach + 3 / rate)  # conv_post has kernel 7, too.


def _blocks(args: VitsArgs) -> Iterator[tuple[int, Sequence[int]]]:
    return zip(args.resblock_kernel_sizes_decoder, args.resblock_dilation_sizes_decoder, strict=True)


def _block_reach(args: VitsArgs, kernel: int, dilations: Sequence[int]) -> int:
    """Type 1 has an undilated convolution after each dilated one."""
    undilated = len(dilations) if args.resblock_type_decoder == "1" else 0
    return (kernel - 1) // 2 * (sum(dilations) + undilated)


def _load_graph(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(str(path))
    except (DecodeError, OSError) as error:
        raise ModelMissing(
            f"The exported graph {path.name} in {path.parent.name} is damaged; prepare the voice again."
        ) from error


def _cut_graph(path: Path) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    model = _load_graph(path)
    node = next((node for node in model.graph.node if node.name == DECODER_INPUT_NODE), None)
    if node is None:
        raise ModelMissing(f"{path.name} in {path.parent.name} is no export of Coqui's VITS; prepare the voice again.")
    latent = node.input[0]
    model.graph.value_info.append(
        onnx.helper.make_tensor_value_info(latent, onnx.TensorProto.FLOAT, ["batch_size", "channels", "frames"])
    )
    extractor = Extractor(model)
    inputs = [value.name for value in model.graph.input]
    return extractor.extract_model(inputs, [latent, DURATIONS]), extractor.extract_model([latent], ["output"])


def _session(model: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
