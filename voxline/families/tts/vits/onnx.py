"""VITS as one ONNX graph of one text, for `voxline.inference.synthesizer` without TensorFlow, and for Piper.

Ours     symbols int32 [1, n]; rates float32 [1, n], 2 is twice as fast; scales float32 [3] → waveforms float32
         [1, samples]; samples, frames int32 [1]; durations float32 [1, n], frames of each symbol; hit_limit bool [1];
         of several speakers, it takes speakers int32 [1] too. With window int64 [2], which may be left out, waveforms
         are those of so many frames from the first one on; all else is of the whole text
Piper's  input int64 [1, n], with blanks and ends; input_lengths int64 [1]; scales float32 [3] → output float32
         [1, 1, 1, samples]. Noise is drawn at each call. Of several speakers, it takes sid int64 [1] too.

`scales` are the deviation of the frames' noise, the factor of durations, and the deviation of the durations' noise.
A graph of one text needs no masks, which would cost a tenth of the time. For a window, flow and decoder compute
the frames that its samples depend on: put together, the windows of a text are what it is as a whole.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from voxline.families.tts.vits.durations import LAST_EDGE, MIN_BIN
from voxline.families.tts.vits.network import LARGEST_LOG_DURATION, MARKS, NOISE_STEPS, Vits, noise_table
from voxline.inference.synthesizer import WINDOW
from voxline.training.onnx_graph import Graph, Name, to_numpy
from voxline.training.onnx_upsampling import convolve_frames, upsample

ALL_FRAMES = np.array([0, 2**31])
"""The window of a whole text."""
ONE = np.int64(1)
ZERO = np.int64(0)
LAST = np.int64(-1)


def export_onnx_vits(model: Vits, max_frames: int, *, several_speakers: bool = False) -> bytes:
    """The graph in our form.

    Args:
      max_frames: after which speech is cut off.
      several_speakers: whether who speaks is an input; else it is the settings' speaker.
    """
    graph = Graph()
    speaker = _Speaker.of(graph, model, "speakers" if several_speakers else "")
    settings = model.settings
    symbols = graph("Cast", "symbols", to=TensorProto.INT64)
    count = graph.size(symbols, 1)
    ids = _with_marks(graph, model, symbols)
    owners = _owners(graph, model, ids, count)
    rates = graph("Gather", "rates", owners, axis=1)
    log_durations, mean, log_deviation = _text(graph, model, ids, speaker, _table_noise)
    durations = graph("Ceil", graph("Div", _frames(graph, log_durations), rates))

    # Cut off after the limit.
    total = graph("ReduceSum", durations, np.array([1]), keepdims=0)
    frames = graph("Cast", graph("Clip", total, np.float32(1), np.float32(max_frames)), to=TensorProto.INT64)
    window = _Window.of(graph, model, frames, graph.optional_input(WINDOW, ALL_FRAMES))
    waveforms = _sound(graph, model, mean, log_deviation, durations, window, speaker, _table_noise)
    # Durations of the text's own symbols: those of its blanks and ends are added to them.
    of_text = graph("OneHot", owners, count, np.array([0, 1], np.float32))
    samples = graph("Mul", frames, np.int64(settings.hop))

    return graph.finish(
        "vits",
        [
            ("symbols", TensorProto.INT32, [1, "symbols"]),
            ("rates", TensorProto.FLOAT, [1, "symbols"]),
            ("scales", TensorProto.FLOAT, [3]),
            *([("speakers", TensorProto.INT32, [1])] if several_speakers else []),
        ],
        [
            ("waveforms", graph("Squeeze", waveforms, np.array([1])), TensorProto.FLOAT, [1, "samples"]),
            ("samples", graph("Cast", samples, to=TensorProto.INT32), TensorProto.INT32, [1]),
            ("frames", graph("Cast", frames, to=TensorProto.INT32), TensorProto.INT32, [1]),
            ("durations", graph("MatMul", durations, of_text), TensorProto.FLOAT, [1, "symbols"]),
            ("hit_limit", graph("Greater", total, np.float32(max_frames)), TensorProto.BOOL, [1]),
        ],
    )


def export_onnx_piper(model: Vits, metadata: dict[str, str], *, several_speakers: bool = False) -> bytes:
    """The graph in Piper's form.

    Args:
      metadata: of the file, which sherpa-onnx reads.
      several_speakers: as for `export_onnx_vits`.
    """
    graph = Graph()
    speaker = _Speaker.of(graph, model, "sid" if several_speakers else "")
    log_durations, mean, log_deviation = _text(graph, model, "input", speaker, _drawn_noise)
    durations = graph("Ceil", _frames(graph, log_durations))
    total = graph("ReduceSum", durations, np.array([1]), keepdims=0)
    frames = graph("Cast", graph("Max", total, np.float32(1)), to=TensorProto.INT64)
    window = _Window.of(graph, model, frames)
    waveforms = _sound(graph, model, mean, log_deviation, durations, window, speaker, _drawn_noise)

    return graph.finish(
        "vits",
        [
            ("input", TensorProto.INT64, [1, "phonemes"]),
            ("input_lengths", TensorProto.INT64, [1]),
            ("scales", TensorProto.FLOAT, [3]),
            *([("sid", TensorProto.INT64, [1])] if several_speakers else []),
        ],
        [("output", graph("Unsqueeze", waveforms, np.array([1])), TensorProto.FLOAT, [1, 1, 1, "samples"])],
        metadata,
    )


def _with_marks(graph: Graph, model: Vits, symbols: Name) -> Name:
    """Symbols with blanks and ends, int64 [1, symbols']: `Vits._with_marks`."""
    blank, begin, end = (np.array([[model.symbols + n]]) for n in range(MARKS))
    before = [begin] if model.settings.ends else []
    if model.settings.between:
        before.append(blank)
        # Pairs of a symbol and a blank, one after another.
        pairs = graph("Unsqueeze", symbols, np.array([2]))
        pairs = graph("Pad", pairs, np.array([0, 0, 0, 0, 0, 1]), np.int64(model.symbols))
        symbols = graph("Reshape", pairs, np.array([1, -1]))
    return str(graph("Concat", *before, symbols, *([end] if model.settings.ends else []), axis=1))


def _owners(graph: Graph, model: Vits, ids: Name, count: Name) -> Name:
    """int64 [symbols']: the symbol of the text that each symbol, blank or end belongs to."""
    settings = model.settings
    place = graph("Range", ZERO, graph.size(ids, 1), ONE)
    place = graph("Max", graph("Sub", place, np.int64(settings.ends + settings.between)), ZERO)
    place = graph("Div", place, np.int64(2 if settings.between else 1))
    return str(graph("Min", place, graph("Sub", count, ONE)))


def _table_noise(graph: Graph, values: int, steps: Name) -> Name:
    """`repeated_noise` [1, steps, values] of steps, int64 [steps]."""
    place = graph("Mod", steps, np.int64(NOISE_STEPS))
    return str(graph("Unsqueeze", graph("Gather", noise_table(values), place), np.array([0])))


def _drawn_noise(graph: Graph, values: int, steps: Name) -> Name:
    """[1, steps, values] of steps, int64 [steps], another one at each call."""
    shape = graph("Concat", np.array([1]), graph("Shape", steps), np.array([values]), axis=0)
    return str(graph("RandomNormalLike", graph("ConstantOfShape", shape), dtype=TensorProto.FLOAT))


def _scale(graph: Graph, place: int) -> Name:
    """float32 [1], one of the scales."""
    return str(graph("Slice", "scales", np.array([place]), np.array([place + 1]), np.array([0])))


def _frames(graph: Graph, log_durations: Name) -> Name:
    """Frames before rounding, [1, symbols']."""
    return str(
        graph("Mul", graph("Exp", graph("Min", log_durations, np.float32(LARGEST_LOG_DURATION))), _scale(graph, 1))
    )


def _text(graph: Graph, model: Vits, ids: Name, speaker: "_Speaker", noise: Any) -> tuple[Name, Name, Name]:
    """Log durations [1, symbols'], and mean and log deviation of each symbol's frames, [1, symbols', latent]."""
    settings = model.settings
    encoder = model.encoder
    # [1, symbols', units]
    value = graph("Gather", to_numpy(encoder.embedding) * np.float32(encoder.scale), ids)
    length = graph.size(ids, 1)
    for block in encoder.blocks:
        attended = _attention(graph, block.attention, value, length)
        value = graph.layer_norm(graph("Add", value, attended), block.attention_norm)
        wide = graph("Relu", graph.convolution(value, to_numpy(block.wide.kernel), to_numpy(block.wide.bias)))
        narrow = graph.convolution(wide, to_numpy(block.narrow.kernel), to_numpy(block.narrow.bias))
        value = graph.layer_norm(graph("Add", value, narrow), block.norm)

    statistics = graph.dense(value, encoder.statistics)
    mean, log_deviation = graph("Split", statistics, np.full(2, settings.latent), axis=2, outputs=2)
    if settings.durations == "stochastic":
        drawn = graph("Mul", noise(graph, 2, graph("Range", ZERO, length, ONE)), _scale(graph, 2))
        return _stochastic_durations(graph, model, value, speaker, drawn), mean, log_deviation
    return _fixed_durations(graph, model, value, speaker), mean, log_deviation


def _attention(graph: Graph, layer: Any, value: Name, length: Name) -> Name:
    """`WindowedAttention`."""
    heads = layer.heads
    size = layer.size
    window = layer.window

    def of_heads(projection: Any, perm: Sequence[int]) -> Name:
        split = graph("Reshape", graph.dense(value, projection), np.array([1, -1, heads, size]))
        return str(graph("Transpose", split, perm=list(perm)))

    # [1, heads, symbols, size], and the keys [1, heads, size, symbols].
    query = graph("Mul", of_heads(layer.query, (0, 2, 1, 3)), np.float32(size**-0.5))
    key = of_heads(layer.key, (0, 2, 3, 1))
    values = of_heads(layer.value, (0, 2, 1, 3))

    # Rows of a width of one more, read as rows of the width: `WindowedAttention._spread`.
    count = graph("Unsqueeze", length, np.array([0]))
    width = graph("Add", count, np.int64(2 * window))
    end = graph("Concat", np.zeros(7, np.int64), count, axis=0)
    by_distance = graph("Pad", graph("MatMul", query, to_numpy(layer.distance_keys).T), end)
    flat = graph("Reshape", by_distance, np.array([1, heads, -1]))
    flat = graph("Slice", flat, np.array([0]), graph("Mul", count, width), np.array([2]))
    rows = graph("Reshape", flat, graph("Concat", np.array([1, heads]), count, width, axis=0))
    until = graph("Add", count, np.int64(window))
    scores = graph("Add", graph("MatMul", query, key), graph("Slice", rows, np.array([window]), until, np.array([3])))
    shares = graph("Softmax", scores, axis=-1)

    # And back: `WindowedAttention._gather`.
    padded = graph("Pad", shares, np.array([0, 0, 0, window, 0, 0, 0, window]))
    flat = graph(
        "Pad", graph("Reshape", padded, np.array([1, heads, -1])), graph("Concat", np.zeros(5, np.int64), count, axis=0)
    )
    rows = graph("Reshape", flat, graph("Concat", np.array([1, heads]), count, graph("Add", width, ONE), axis=0))
    near = graph("Slice", rows, np.array([0]), np.array([2 * window + 1]), np.array([3]))
    attended = graph("Add", graph("MatMul", shares, values), graph("MatMul", near, to_numpy(layer.distance_values)))
    attended = graph("Reshape", graph("Transpose", attended, perm=[0, 2, 1, 3]), np.array([1, -1, heads * size]))
    return graph.dense(attended, layer.output_projection)


class _Frames(NamedTuple):
    """Frames of a text, from the first to before the end, int64 [1] each."""

    first: Name
    end: Name

    def within(self, graph: Graph, values: Name, around: "_Frames", steps: int = 1) -> Name:
        """These frames of [1, channels, steps of the frames around them]."""
        # A whole text is not copied.
        if self == around:
            return values
        edges = (graph("Mul", graph("Sub", edge, around.first), np.int64(steps)) for edge in self)
        return str(graph("Slice", values, *edges, np.array([2])))


class _Window(NamedTuple):
    """The frames that are wanted, and those that the decoder and the flow compute for them.

    Each is wider than the one before by what it reads beside a frame, and ends where the text ends.
    """

    sound: _Frames
    decoder: _Frames
    flow: _Frames

    @classmethod
    def of(cls, graph: Graph, model: Vits, frames: Name, asked_by: Name = "") -> "_Window":
        """The window that an input asks for; without one, all frames.

        Args:
          frames: of the whole text, int64 [1].
        """
        if not asked_by:
            whole = _Frames(graph.constant(np.array([0])), frames)
            return cls(whole, whole, whole)

        # At least one frame, so that no op gets none.
        first, count = graph("Split", asked_by, np.ones(2, np.int64), axis=0, outputs=2)
        first = graph("Min", graph("Max", first, ZERO), graph("Sub", frames, ONE))
        end = graph("Add", first, graph("Max", count, ONE))
        decoder = model.settings.frames_around(to_numpy(model.decoder.last.kernel).shape[0] // 2)
        flow = sum(to_numpy(gated.kernel).shape[0] // 2 for coupling in model.flows for gated in coupling.wavenet.gated)

        def widened(by: int) -> _Frames:
            before = graph("Max", graph("Sub", first, np.int64(by)), ZERO)
            return _Frames(before, graph("Min", graph("Add", end, np.int64(by)), frames))

        return cls(widened(0), widened(decoder), widened(decoder + flow))


class _Speaker(NamedTuple):
    """Who speaks.

    Attributes:
      row: of the table: the numbers float32 [1, values], or their name where the speaker is an input; None: no table.
    """

    graph: Graph
    row: Any

    @classmethod
    def of(cls, graph: Graph, model: Vits, asked_by: str) -> "_Speaker":
        """The speaker whom an input of the graph asks for, by its row; without one, the settings' speaker."""
        if model.speakers is None:
            return cls(graph, None)
        table = to_numpy(model.speakers)
        return cls(graph, graph("Gather", table, asked_by) if asked_by else table[[model.settings.speaker]])

    def added(self, layer: Any) -> Any:
        """What a layer adds for the speaker, [1, channels]; 0 without a table."""
        if self.row is None or layer is None:
            return np.float32(0)
        kernel = to_numpy(layer.kernel)
        kernel = kernel.reshape(kernel.shape[-2:])
        if isinstance(self.row, np.ndarray):
            return self.row @ kernel + to_numpy(layer.bias)
        return self.graph("Add", self.graph("MatMul", self.row, kernel), to_numpy(layer.bias))

    def convolve(self, value: Name, layer: Any, added: Any) -> Name:
        """A convolution along the last axis of [1, channels, frames], and what the speaker adds to each frame."""
        # Numbers that are known go into the bias.
        if not isinstance(added, str):
            return convolve_frames(self.graph, value, layer, added=np.reshape(added, -1))
        added = self.graph("Unsqueeze", added, np.array([2]))
        return str(self.graph("Add", convolve_frames(self.graph, value, layer), added))


def _stochastic_durations(graph: Graph, model: Vits, text: Name, speaker: _Speaker, noise: Name) -> Name:
    """`StochasticDurations.call`."""
    layer: Any = model.durations
    value = graph("Add", graph.dense(text, layer.before), speaker.added(layer.speaker))
    condition = graph.dense(_dilated(graph, layer.convolutions, value), layer.after)
    last = np.array([2])
    first, second = (
        graph("Squeeze", part, last) for part in graph("Split", noise, np.ones(2, np.int64), axis=2, outputs=2)
    )
    for flow in reversed(layer.flows):
        before = graph("Add", graph.dense(graph("Unsqueeze", second, last), flow.before), condition)
        knots = graph.dense(_dilated(graph, flow.convolutions, before), flow.knots)
        changed = _inverse_spline(graph, flow, first, knots)
        first = second
        second = changed

    factor = np.exp(-to_numpy(layer.log_scale)[0])
    return str(graph("Mul", graph("Sub", second, to_numpy(layer.shift)[0]), factor))


def _fixed_durations(graph: Graph, model: Vits, text: Name, speaker: _Speaker) -> Name:
    """`FixedDurations.call`."""
    layer: Any = model.durations
    value = graph("Add", text, speaker.added(layer.speaker))
    for convolution, norm in zip(layer.convolutions, layer.norms, strict=True):
        value = graph("Relu", graph.convolution(value, to_numpy(convolution.kernel), to_numpy(convolution.bias)))
        value = graph.layer_norm(value, norm)
    return str(graph("Squeeze", graph.dense(value, layer.last), np.array([2])))


def _dilated(graph: Graph, layers: Any, value: Name) -> Name:
    """`DilatedConvolutions.call`."""
    for n, depthwise in enumerate(layers.depthwise):
        kernel = to_numpy(depthwise.kernel).T[:, None]  # [channels, 1, taps]
        reach = kernel.shape[2] // 2 * depthwise.dilation
        hidden = graph(
            "Conv",
            graph.transpose(value),
            kernel,
            to_numpy(depthwise.bias),
            group=len(kernel),
            pads=[reach, reach],
            dilations=[depthwise.dilation],
        )
        hidden = graph.gelu(graph.layer_norm(graph.transpose(hidden), layers.first_norms[n]))
        hidden = graph.gelu(graph.layer_norm(graph.dense(hidden, layers.pointwise[n]), layers.second_norms[n]))
        value = graph("Add", value, hidden)
    return value


def _inverse_spline(graph: Graph, flow: Any, y: Name, knots: Name) -> Name:
    """`inverse_spline`."""
    bins = flow.bins
    bound = np.float32(flow.bound)
    last = np.array([2])
    parts = graph("Split", knots, np.array([bins, bins, bins - 1]), axis=2, outputs=3)
    lower_x, upper_x = _edges(graph, graph("Mul", parts[0], np.float32(flow.scale)), bins, bound)
    lower_y, upper_y = _edges(graph, graph("Mul", parts[1], np.float32(flow.scale)), bins, bound)
    outer = np.float32(math.log(math.exp(1 - MIN_BIN) - 1))
    slopes = graph("Pad", parts[2], np.array([0, 0, 1, 0, 0, 1]), outer)
    slopes = graph("Add", graph("Softplus", slopes), np.float32(MIN_BIN))

    # The piece in which y lies.
    bounded = graph("Unsqueeze", graph("Clip", y, -bound, bound), last)
    edge = np.array([0.0] * (bins - 1) + [LAST_EDGE], np.float32)
    piece = graph("And", graph("GreaterOrEqual", bounded, lower_y), graph("Less", bounded, graph("Add", upper_y, edge)))
    piece = graph("Cast", piece, to=TensorProto.FLOAT)

    def of_piece(values: Name) -> Name:
        return str(graph("ReduceSum", graph("Mul", values, piece), last, keepdims=0))

    def part(first: int) -> Name:
        return str(graph("Slice", slopes, np.array([first]), np.array([first + bins]), last))

    width = of_piece(graph("Sub", upper_x, lower_x))
    height = of_piece(graph("Sub", upper_y, lower_y))
    left = of_piece(part(0))
    right = of_piece(part(1))
    slope = graph("Div", height, width)
    above = graph("Sub", graph("Squeeze", bounded, last), of_piece(lower_y))

    # a ξ² + b ξ + c = 0, with ξ the place within the piece.
    bend = graph("Mul", above, graph("Sub", graph("Add", left, right), graph("Mul", slope, np.float32(2))))
    a = graph("Add", graph("Mul", height, graph("Sub", slope, left)), bend)
    b = graph("Sub", graph("Mul", height, left), bend)
    c = graph("Neg", graph("Mul", slope, above))
    square = graph("Sub", graph("Mul", b, b), graph("Mul", graph("Mul", a, c), np.float32(4)))
    root = graph("Sqrt", graph("Max", square, np.float32(0)))
    root = graph("Div", graph("Mul", c, np.float32(2)), graph("Sub", graph("Neg", b), root))
    x = graph("Add", graph("Mul", root, width), of_piece(lower_x))

    inside = graph("LessOrEqual", graph("Abs", y), bound)
    return str(graph("Where", inside, x, y))


def _edges(graph: Graph, sizes: Name, bins: int, bound: np.float32) -> tuple[Name, Name]:
    """`durations._edges`."""
    shares = graph("Softmax", sizes, axis=-1)
    shares = graph("Add", graph("Mul", shares, np.float32(1 - MIN_BIN * bins)), np.float32(MIN_BIN))
    upper = graph("Sub", graph("Mul", graph("CumSum", shares, np.int64(2)), 2 * bound), bound)
    inner = graph("Slice", upper, np.array([0]), np.array([bins - 1]), np.array([2]))
    lower = graph("Pad", inner, np.array([0, 0, 1, 0, 0, 0]), -bound)
    return lower, graph("Pad", inner, np.array([0, 0, 0, 0, 0, 1]), bound)


def _sound(
    graph: Graph,
    model: Vits,
    mean: Name,
    log_deviation: Name,
    durations: Name,
    window: "_Window",
    speaker: _Speaker,
    noise: Any,
) -> Name:
    """Waveforms [1, 1, samples]."""

    # The symbol of each frame, by the symbols that end before or at it.
    frames = graph("Range", graph("Squeeze", window.flow.first), graph("Squeeze", window.flow.end), ONE)
    frame = graph("Cast", frames, to=TensorProto.FLOAT)
    ends = graph("CumSum", durations, ONE)  # [1, symbols']
    ended = graph("GreaterOrEqual", graph("Unsqueeze", frame, np.array([1])), ends)
    symbol = graph("ReduceSum", graph("Cast", ended, to=TensorProto.INT64), np.array([1]), keepdims=0)
    symbol = graph("Min", symbol, graph("Sub", graph.size(durations, 1), ONE))
    mean, log_deviation = (graph("Gather", values, symbol, axis=1) for values in (mean, log_deviation))

    # [1, frames, latent] → [1, latent, frames], and channels first from here on.
    drawn = graph("Mul", noise(graph, model.settings.latent, frames), graph("Exp", log_deviation))
    latent = graph.transpose(graph("Add", mean, graph("Mul", drawn, _scale(graph, 0))))
    backwards = np.arange(model.settings.latent)[::-1]
    for flow in reversed(model.flows):
        latent = _coupling(graph, flow, speaker, graph("Gather", latent, backwards, axis=1))
    latent = window.decoder.within(graph, latent, window.flow)
    return window.sound.within(graph, _decoder(graph, model, speaker, latent), window.decoder, model.settings.hop)


def _coupling(graph: Graph, layer: Any, speaker: _Speaker, latent: Name) -> Name:
    """`Coupling.reverse` of [1, latent, frames]."""
    first, second = graph("Split", latent, np.full(2, layer.half), axis=1, outputs=2)
    value = convolve_frames(graph, first, layer.before)
    wavenet = layer.wavenet
    layers = len(wavenet.gated)
    added = speaker.added(wavenet.speaker)
    # [1, 2 · units] for each layer
    conditions: Any
    if isinstance(added, str):
        split = graph("Split", added, np.full(layers, 2 * wavenet.units), axis=1, outputs=layers)
        conditions = [split] if layers == 1 else split
    else:
        conditions = np.broadcast_to(added, (1, 2 * wavenet.units * layers)).reshape(layers, -1)
    outputs: Name = ""
    for gated, mixed, condition in zip(wavenet.gated, wavenet.mixed, conditions, strict=True):
        gates = speaker.convolve(value, gated, condition)
        filtered, gate = graph("Split", gates, np.full(2, wavenet.units), axis=1, outputs=2)
        mixture = convolve_frames(graph, graph("Mul", graph("Tanh", filtered), graph("Sigmoid", gate)), mixed)
        skip = mixture
        if mixed is not wavenet.mixed[-1]:
            residual, skip = graph("Split", mixture, np.full(2, wavenet.units), axis=1, outputs=2)
            value = graph("Add", value, residual)
        outputs = graph("Add", outputs, skip) if outputs else skip

    shift = convolve_frames(graph, outputs, layer.shift)
    return str(graph("Concat", first, graph("Sub", second, shift), axis=1))


def _decoder(graph: Graph, model: Vits, speaker: _Speaker, latent: Name) -> Name:
    """`WaveformDecoder.call` of [1, latent, frames]."""
    decoder = model.decoder
    value = speaker.convolve(latent, decoder.first, speaker.added(decoder.speaker))
    value = upsample(graph, decoder, model.settings.upsample_rates, value)
    return str(graph("Tanh", convolve_frames(graph, value, decoder.last)))
