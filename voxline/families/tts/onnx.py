"""A voice as one ONNX graph: symbols in, raw mels out, for `voxline.inference.synthesizer` without TensorFlow.

Input    symbols int32 [batch, n]; lengths int32 [batch]; of several speakers, speakers int32 [batch] too
Output   mels float32 [batch, t, mels], raw, zero beyond a row's frames; frames int32 [batch]; alignments float32
         [batch, steps, n]; hit_limit bool [batch]: as the signature `speak` of the SavedModel
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from voxline.errors import SettingsError
from voxline.families.tts.onnx_sharpener import add_sharpener
from voxline.families.tts.onnx_tacotron2 import Decoding, Precision, add_tacotron2
from voxline.inference.synthesizer import SPEAKERS
from voxline.training.onnx_graph import Graph, Name, to_numpy

_NETWORKS = ("fastspeech", "tacotron2")
"""`train.model.kind` of the networks that have a graph."""


class VoiceOutput(NamedTuple):
    """Normalized mels, frames int64 [batch], alignments and hit_limit."""

    mels: Name
    frames: Name
    alignments: Name
    hit_limit: Name


def export_onnx_voice(
    model: Any,
    *,
    max_steps: int,
    reduction: int,
    noise: Sequence[int] = (0, 0),
    precision: Precision = "float32",
    sharpener: Any = None,
    several_speakers: bool = False,
) -> bytes:
    """Builds the graph of a network.

    Args:
      model: the network, with its trained weights.
      max_steps: decoder steps, or frames of a network without a decoder, after which a row is cut.
      reduction: frames of a decoder step.
      noise: [2], the seed of the pre-net's dropout.
      precision: int8: the weights of the decoder's LSTMs and of convolutions are integers of 8 bits, and what they are
        multiplied by is rounded too.
      sharpener: a `Sharpener` of the mels; None: none.
      several_speakers: whether who speaks is an input; else it is the settings' speaker.

    Raises:
      SettingsError: the network is not known here, or has no 8-bit form.
    """

    # Symbols to normalized mels, sharpened if the voice has a sharpener, then raw.
    kind = str(model.settings.kind)
    check_onnx_voice(kind, precision)
    graph = Graph()
    counts = graph("Cast", "lengths", to=TensorProto.INT64)
    how = Decoding(max_steps, reduction, noise, precision)
    if kind == "fastspeech":
        output = _fastspeech(graph, model, counts, how, several_speakers)
    else:
        output = VoiceOutput(*add_tacotron2(graph, model, counts, how))
    mels = output.mels if sharpener is None else add_sharpener(graph, sharpener, output.mels, output.frames)
    mels = graph("Add", graph("Mul", mels, model._deviation[: model.mels]), model._mean[: model.mels])

    return graph.finish(
        "voice",
        [
            ("symbols", TensorProto.INT32, ["batch", "symbols"]),
            ("lengths", TensorProto.INT32, ["batch"]),
            *([(SPEAKERS, TensorProto.INT32, ["batch"])] if several_speakers else []),
        ],
        [
            ("mels", graph.mask(mels, output.frames, 1, 3), TensorProto.FLOAT, ["batch", "frames", model.mels]),
            ("frames", graph("Cast", output.frames, to=TensorProto.INT32), TensorProto.INT32, ["batch"]),
            ("alignments", output.alignments, TensorProto.FLOAT, ["batch", "steps", "symbols"]),
            ("hit_limit", output.hit_limit, TensorProto.BOOL, ["batch"]),
        ],
    )


def check_onnx_voice(kind: str, precision: str) -> None:
    """Refuses a network that this module cannot write, before it is trained.

    Raises:
      SettingsError: naming the setting, and what is accepted.
    """
    if kind not in _NETWORKS:
        raise SettingsError(
            f"train.export.onnx: no ONNX graph is known for train.model.kind {kind!r}; accepted: "
            f"{', '.join(_NETWORKS)}. Set train.export.onnx to none"
        )

    if precision != "float32" and kind != "tacotron2":
        raise SettingsError(
            f"train.export.onnx: {precision} is for the steps of a decoder, and {kind} makes all frames at once; set "
            "it to float32"
        )


def _fastspeech(graph: Graph, model: Any, counts: Name, how: Decoding, several_speakers: bool) -> VoiceOutput:
    """`FastSpeech.synthesize`."""

    # [batch, symbols, channels]
    embedded = graph("Gather", to_numpy(model.embedding.embeddings), "symbols")
    encoded = _blocks(graph, model.encoder, embedded, counts)
    if model.speakers is not None:
        # What is added for who speaks, [batch or 1, 1, channels].
        who = SPEAKERS if several_speakers else np.array([model.settings.speaker])
        row = graph("Gather", to_numpy(model.speakers), who)
        encoded = graph("Add", encoded, graph("Unsqueeze", graph.dense(row, model.speaker), np.array([1])))

    log_durations = graph("Squeeze", _column(graph, model.duration, encoded, counts), np.array([2]))

    # Predicted prosody is added to the encoded symbols.
    predictors = [
        (predictor, layer)
        for predictor, layer in ((model.energy, model.louder), (model.pitch, model.higher))
        if predictor
    ]
    prosody = [graph.dense(_column(graph, predictor, encoded, counts), layer) for predictor, layer in predictors]
    for values in prosody:
        encoded = graph("Add", encoded, values)

    # Whole frames, at least one a symbol; the logarithm is bounded before its exponential.
    log_durations = graph("Round", graph("Exp", graph("Min", log_durations, np.float32(math.log(how.max_steps)))))
    durations = graph.mask(graph("Clip", log_durations, np.float32(1), np.float32(how.max_steps)), counts, 1, 2)
    ends = graph("CumSum", durations, np.int64(1))
    total = graph("Gather", ends, np.int64(-1), axis=1)
    frames = graph("Cast", graph("Min", total, np.float32(how.max_steps)), to=TensorProto.INT64)
    # Symbol n has the frames from the end of the one before to its own.
    starts, ends = (graph("Unsqueeze", edges, np.array([1])) for edges in (graph("Sub", ends, durations), ends))

    # The path [batch, frames, symbols]: 1 where a frame belongs to a symbol.
    longest = graph("ReduceMax", frames, keepdims=0)
    frame = graph("Cast", graph("Range", np.int64(0), longest, np.int64(1)), to=TensorProto.FLOAT)
    frame = graph("Reshape", frame, np.array([1, -1, 1]))
    path = graph("And", graph("GreaterOrEqual", frame, starts), graph("Less", frame, ends))
    path = graph.mask(graph("Cast", path, to=TensorProto.FLOAT), frames, 1, 3)
    mels = _frames_of_symbols(graph, model, encoded, path, frame, starts, frames)

    return VoiceOutput(mels, frames, path, graph("Greater", total, np.float32(how.max_steps)))


def _frames_of_symbols(
    graph: Graph, model: Any, encoded: Name, path: Name, frame: Name, starts: Name, frames: Name
) -> Name:
    """Normalized mels of encoded symbols; see `FastSpeech._decode`."""

    # Length regulator: each symbol's encoding, repeated for its frames.
    last = np.array([2])
    repeated = graph("MatMul", path, encoded)
    start = graph("MatMul", path, graph("Transpose", starts, perm=[0, 2, 1]))
    before = graph("Sub", frame, start)  # [batch, frames, 1]
    counted = graph("ReduceSum", path, np.array([1]), keepdims=1)
    symbol_frames = graph("MatMul", path, graph("Transpose", counted, perm=[0, 2, 1]))

    # Where in its symbol a frame is: the share, and logarithms of the frames before and after.
    share = graph("Div", graph("Add", before, np.float32(0.5)), graph("Max", symbol_frames, np.float32(1)))
    after = graph("Relu", graph("Sub", graph("Sub", symbol_frames, before), np.float32(1)))
    logarithms = (graph("Log", graph("Add", graph("Relu", count), np.float32(1))) for count in (before, after))
    place = graph("Concat", share, *logarithms, axis=int(last[0]))
    values = graph("Add", repeated, graph.dense(place, model.place))
    values = graph.layer_norm(_blocks(graph, model.decoder, values, frames), model.last_norm)

    return graph.dense(values, model.spectrum)


def _blocks(graph: Graph, blocks: Any, value: Name, counts: Name) -> Name:
    for block in blocks:
        value = graph.convnext(graph.mask(value, counts, 1, 3), block)
    return graph.mask(value, counts, 1, 3)


def _column(graph: Graph, predictor: Any, value: Name, counts: Name) -> Name:
    """Output of a predictor for each symbol, float32 [batch, symbols, 1]."""
    for layer, norm in zip(predictor.convolutions, predictor.norms, strict=True):
        value = graph.convolution(graph.mask(value, counts, 1, 3), to_numpy(layer.kernel), to_numpy(layer.bias))
        value = graph.layer_norm(graph("Relu", value), norm)
    return graph.dense(value, predictor.last)
