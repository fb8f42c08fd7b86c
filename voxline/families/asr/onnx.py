"""The recognizer as one ONNX graph: waveforms in, log-probabilities out, with features and normalization inside.

Input    waveforms float32 [batch, samples] in [-1, 1]; lengths int32 [batch], samples
Output   log_probabilities float32 [batch, frames, symbols + 1], natural logarithms, the blank last;
         frames int32 [batch], the real ones
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from voxline.audio import features as audio_features
from voxline.audio.feature_settings import NORMALIZED, WHISPER_FRAMES, FeatureSettings
from voxline.families.asr.export_checks import check_onnx_export
from voxline.families.asr.networks.settings import LEAST, SILENCE, SLOWEST_POSITION
from voxline.training.onnx_graph import (
    Graph,
    Name,
    directions,
    normalize_features,
    recurrent,
    scale_and_shift,
    to_numpy,
)

Array = npt.NDArray[Any]


def export_onnx(
    model: Any,
    features: FeatureSettings,
    mean: Sequence[float],
    deviation: Sequence[float],
    precision: Literal["float32", "int8"] = "float32",
) -> bytes:
    """Builds the graph of a network.

    Args:
      model: the network, with its trained weights.
      features: what it was trained on; `export_checks.check_features` has accepted them.
      mean, deviation: of the features, as the network was built with them.
      precision: int8: weights of LSTM and dense layers are 8-bit integers, and their inputs are quantized in each call,
        by the largest value in it. Convolutions, features and the output layer stay float32.

    Raises:
      SettingsError: the network is not known here, or has no 8-bit form.
    """

    # Waveforms to normalized features, to the network's log probabilities.
    kind = str(model.settings.kind)
    check_onnx_export(model.settings, precision)
    graph = Graph(int8=precision == "int8")
    values, frames = waveform_features(graph, features)
    if features.kind not in (*NORMALIZED, "waveform"):
        values = normalize_features(graph, values, mean, deviation)
    if features.kind != "whisper":  # its network pads them itself
        values, frames = _pad(graph, graph.mask(values, frames, axis=1, rank=3), frames, model.settings.padding)
    log_probabilities, frames = _NETWORKS[kind](graph, model, values, frames)
    taken = [("waveforms", TensorProto.FLOAT, ["batch", "samples"]), ("lengths", TensorProto.INT32, ["batch"])]

    return graph.finish(
        "recognizer",
        taken,
        [
            ("log_probabilities", log_probabilities, TensorProto.FLOAT, ["batch", "frames", "classes"]),
            ("frames", graph("Cast", frames, to=TensorProto.INT32), TensorProto.INT32, ["batch"]),
        ],
    )


def waveform_features(graph: Graph, settings: FeatureSettings) -> tuple[Name, Name]:
    """The features of a batch, as `frontend.graph_features` computes them: float32 [batch, frames, bins].

    Frames beyond a row's end are undefined.
    """

    # Frames of each row and of the whole batch.
    lengths = graph("Cast", "lengths", to=TensorProto.INT64)
    if settings.kind == "waveform":
        return _normalize_samples(graph, lengths, settings), lengths
    hop = np.int64(settings.hop_length)
    frames = _count_frames(graph, lengths, settings)
    waveforms = graph.mask("waveforms", lengths, axis=1, rank=2)
    if settings.preemphasis_factor:
        waveforms = graph.mask(_preemphasize(graph, waveforms, settings.preemphasis_factor), lengths, axis=1, rank=2)
    samples = graph.size("waveforms", 1)
    count = _count_frames(graph, samples, settings)

    # Zeros at both ends, so that all windows are whole.
    needed = graph("Add", graph("Mul", graph("Sub", count, np.int64(1)), hop), np.int64(settings.win_length))
    missing = graph("Sub", graph("Sub", needed, np.int64(settings.padding)), samples)
    behind = graph("Unsqueeze", graph("Max", missing, np.int64(0)), np.array([0]))
    padded = graph("Pad", waveforms, graph("Concat", np.array([0, settings.padding, 0]), behind, axis=0))
    if settings.kind == "whisper":
        padded = _reflect(graph, waveforms, padded, settings.padding)
    values = log_spectra(graph, padded, count, settings)
    if settings.kind == "mfcc" and settings.context:
        values = _stack(graph, graph.mask(values, frames, axis=1, rank=3), count, settings.context)

    if settings.kind == "whisper":
        values = _normalize_whisper(graph, values, frames)
    if settings.kind == "nemo_mel":
        values = _normalize_nemo(graph, values, frames)

    return values, frames


def _count_frames(graph: Graph, samples: Name, settings: FeatureSettings) -> Name:
    """`FeatureSettings.count_frames` of an int64 value of the graph."""
    hop = np.int64(settings.hop_length)
    whole = graph("Div", samples, hop)
    if settings.kind == "nemo_mel":
        return str(graph("Max", whole, np.int64(1)))
    if settings.kind != "whisper":
        return str(graph("Add", whole, np.int64(1)))

    reached = graph("Add", graph("Div", graph("Add", samples, np.int64(settings.padding - 1)), hop), np.int64(1))
    return str(graph("Min", reached, graph("Max", whole, np.int64(WHISPER_FRAMES))))


def _preemphasize(graph: Graph, waveforms: Name, share: float) -> Name:
    """Subtracts a share of the preceding sample from each."""
    shifted = graph("Pad", waveforms, np.array([0, 1, 0, 0]))
    before = graph("Slice", shifted, np.array([0]), np.array([-1]), np.array([1]))
    return str(graph("Sub", waveforms, graph("Mul", before, np.float32(share))))


def _normalize_samples(graph: Graph, lengths: Name, settings: FeatureSettings) -> Name:
    """`audio_features.normalize_waveform` of each row: [batch, samples, 1], zero beyond its end."""
    samples = graph.mask("waveforms", lengths, axis=1, rank=2)
    if settings.unit_variance:
        real = graph.below(lengths, graph.size("waveforms", 1))
        samples = _standardize(graph, samples, real, lengths, 1, audio_features.VARIANCE_FLOOR)
    return str(graph("Unsqueeze", samples, np.array([2])))


def _standardize(graph: Graph, values: Name, real: Name, counts: Name, axis: int, floor: np.float32) -> Name:
    """Zero mean and unit variance along an axis, the last one, of what is real; zero elsewhere."""
    count = graph("Cast", graph("Max", counts, np.int64(1)), to=TensorProto.FLOAT)
    count = graph("Unsqueeze", count, np.arange(1, axis + 1))

    # [batch, 1], or [batch, channels, 1]
    summed = graph("ReduceSum", graph("Where", real, values, np.float32(0)), np.array([axis]), keepdims=1)
    centered = graph("Where", real, graph("Sub", values, graph("Div", summed, count)), np.float32(0))
    variance = graph("Div", graph("ReduceSumSquare", centered, axes=[axis], keepdims=1), count)
    return str(graph("Div", centered, graph("Sqrt", graph("Add", variance, floor))))


def _normalize_nemo(graph: Graph, values: Name, frames: Name) -> Name:
    """NeMo's features of natural logarithms, zero beyond each row's frames."""
    real = graph("Unsqueeze", graph.below(frames, graph.size(values, 1)), np.array([2]))
    count = graph("Unsqueeze", graph("Cast", frames, to=TensorProto.FLOAT), np.array([1, 2]))

    # Mean and unbiased deviation of each bin over the row's own frames, [batch, 1, bins].
    summed = graph("ReduceSum", graph("Where", real, values, np.float32(0)), np.array([1]), keepdims=1)
    centered = graph("Where", real, graph("Sub", values, graph("Div", summed, count)), np.float32(0))
    squares = graph("ReduceSumSquare", centered, axes=[1], keepdims=1)
    variance = graph("Div", squares, graph("Max", graph("Sub", count, np.float32(1)), np.float32(1)))
    deviation = graph("Add", graph("Sqrt", variance), np.float32(audio_features.NEMO_EPSILON))
    return str(graph("Div", centered, deviation))


def _reflect(graph: Graph, waveforms: Name, padded: Name, padding: int) -> Name:
    """The waveforms reflected at their first sample, in place of the zeros before it."""
    longer = graph("Pad", waveforms, np.array([0, 0, 0, padding + 1]))
    head = graph("Slice", longer, np.array([padding]), np.array([0]), np.array([1]), np.array([-1]))
    rest = graph("Slice", padded, np.array([padding]), np.array([np.iinfo(np.int64).max]), np.array([1]))
    return str(graph("Concat", head, rest, axis=1))


def _normalize_whisper(graph: Graph, values: Name, frames: Name) -> Name:
    """Whisper's features of natural logarithms of mel power, zero beyond each row's frames."""
    decades = graph("Mul", values, np.float32(1 / math.log(10)))

    # The loudest value of each row's own frames, [batch, 1, 1].
    real = graph("Unsqueeze", graph.below(frames, graph.size(decades, 1)), np.array([2]))
    loudest = graph("ReduceMax", graph("Where", real, decades, np.float32(-100)), axes=[1, 2], keepdims=1)
    clipped = graph("Max", decades, graph("Sub", loudest, np.float32(audio_features.WHISPER_RANGE)))
    scaled = graph("Mul", graph("Add", clipped, np.float32(4)), np.float32(0.25))
    return str(graph("Where", real, scaled, np.float32(0)))


def log_spectra(graph: Graph, waveforms: Name, count: Name, settings: FeatureSettings) -> Name:
    """The features of the first windows of waveforms, without context: float32 [batch, count, bins]."""

    # A bank of the power spectrum joins the transform; one of magnitudes has to wait for the root.
    weights = np.eye(settings.fft_bins, dtype=np.float32)
    if settings.kind != "linear" and not settings.uses_magnitude:
        weights = audio_features.mel_filterbank(settings)

    block = _block(settings)
    power = (_power_by_blocks if block else _power_by_dft)(graph, waveforms, count, settings, weights)
    if settings.uses_magnitude:
        power = str(graph("MatMul", graph("Sqrt", power), audio_features.mel_filterbank(settings)))

    floor = audio_features.WHISPER_FLOOR if settings.kind == "whisper" else settings.log_floor
    if settings.kind == "nemo_mel":
        # log(1 + mel / guard), as `features` has it.
        relative = graph("Div", power, np.float32(audio_features.NEMO_GUARD))
        values = graph("Log", graph("Add", relative, np.float32(1)))
    else:
        values = graph("Log", graph("Max", power, np.float32(floor)))
    if settings.kind == "mfcc":
        values = graph("MatMul", values, audio_features.cepstral_basis(settings))

    # [batch · count, bins] → [batch, count, bins]
    bins = settings.coefficients if settings.kind == "mfcc" else settings.bins
    batch = graph("Shape", waveforms, start=0, end=1)
    shape = graph("Concat", batch, graph("Unsqueeze", count, np.array([0])), np.array([bins]), axis=0)

    return str(graph("Reshape", values, shape))


def _power_by_dft(graph: Graph, waveforms: Name, count: Name, settings: FeatureSettings, weights: Array) -> Name:
    """The power spectra of all windows times weights, float32 [batch · count, …]."""

    # [batch, count, window]
    starts = graph("Mul", graph("Range", np.int64(0), count, np.int64(1)), np.int64(settings.hop_length))
    indices = graph("Add", graph("Unsqueeze", starts, np.array([1])), np.arange(settings.win_length)[None])
    windows = graph("Mul", graph("Gather", waveforms, indices, axis=1), audio_features.hann_window(settings))
    flat = graph("Reshape", windows, np.array([-1, settings.win_length, 1]))
    spectrum = graph("DFT", flat, np.int64(settings.n_fft), axis=1, onesided=1)  # [batch · frames, bins, 2]
    power = graph("ReduceSumSquare", spectrum, axes=[2], keepdims=0)
    return str(graph("MatMul", power, weights))


def _block(settings: FeatureSettings) -> int:
    """The largest power of two up to 32 that divides hop and FFT: the columns of `_power_by_blocks`; 0: below 8."""
    size = math.gcd(32, settings.hop_length, settings.n_fft)
    return size if size >= 8 else 0


def _power_by_blocks(graph: Graph, waveforms: Name, count: Name, settings: FeatureSettings, weights: Array) -> Name:
    """Computes `_power_by_dft` in half the time or less: ONNX Runtime's `DFT` is slow.

    The FFT of N = R · C samples is two products of matrices (Cooley and Tukey 1965), with sample n = C a + b and bin
    k = p + R q: X[k] = Σ_b w(N, b p) w(C, b q) Σ_a x[C a + b] w(R, a p), where w(M, j) = exp(-2πi j / M). Sums are as
    short as those of an FFT, so that quiet bins next to loud ones keep their precision. Of real samples the bins with
    p up to R / 2 are enough: the others have the power of their mirror image N - k.
    """
    columns = _block(settings)
    size = settings.n_fft
    rows = size // columns
    used_rows = -(-settings.win_length // columns)
    used_frequencies = rows // 2 + 1
    # The windows as rows of blocks, which are copied whole.
    hop = settings.hop_length // columns
    last = graph("Mul", graph("Sub", count, np.int64(1)), np.int64(hop))
    needed = graph("Unsqueeze", graph("Mul", graph("Add", last, np.int64(used_rows)), np.int64(columns)), np.array([0]))
    missing = graph("Max", graph("Sub", needed, graph("Shape", waveforms, start=1, end=2)), np.int64(0))
    padded = graph("Pad", waveforms, graph("Concat", np.array([0, 0, 0]), missing, axis=0))
    padded = graph("Slice", padded, np.array([0]), needed, np.array([1]))
    blocks = graph("Reshape", padded, np.array([0, -1, columns]))
    starts = graph("Mul", graph("Range", np.int64(0), count, np.int64(1)), np.int64(hop))
    indices = graph("Add", graph("Unsqueeze", starts, np.array([1])), np.arange(used_rows)[None])
    hann = np.zeros(used_rows * columns, np.float32)
    hann[: settings.win_length] = audio_features.hann_window(settings)
    windows = graph("Mul", graph("Gather", blocks, indices, axis=1), hann.reshape(used_rows, columns))
    windows = graph("Reshape", windows, np.array([-1, used_rows, columns]))
    # Over the rows: [batch · count, (p, real or imaginary), b]
    angle = 2 * np.pi / rows * np.outer(np.arange(used_frequencies), np.arange(used_rows))
    first = (
        np.stack([np.cos(angle), -np.sin(angle)], axis=1).reshape(2 * used_frequencies, used_rows).astype(np.float32)
    )
    inner = graph("Reshape", graph("MatMul", first, windows), np.array([-1, used_frequencies, 2 * columns]))
    # Over the columns, with a matrix for each p: [p, batch · count, (real or imaginary, q)]
    p, b, q = np.meshgrid(np.arange(used_frequencies), np.arange(columns), np.arange(columns), indexing="ij")
    angle = 2 * np.pi * (b * p / size + b * q / columns)
    cos = np.cos(angle)
    sin = np.sin(angle)
    second = np.block([[cos, -sin], [sin, cos]]).astype(np.float32)  # [p, (real or imaginary, b), …]
    spectrum = graph("MatMul", graph("Transpose", inner, perm=[1, 0, 2]), second)
    squares = graph("Transpose", graph("Mul", spectrum, spectrum), perm=[1, 0, 2])
    squares = graph("Reshape", squares, np.array([-1, used_frequencies * 2 * columns]))
    # The weights of a bin are those of its real and of its imaginary part.
    bins = np.arange(settings.fft_bins)
    mirrored = np.where(bins % rows < used_frequencies, bins, size - bins)
    spread = np.zeros((used_frequencies, 2, columns, weights.shape[1]), np.float32)
    spread[mirrored % rows, :, mirrored // rows] = weights[:, None]

    return str(graph("MatMul", squares, spread.reshape(used_frequencies * 2 * columns, -1)))


def _stack(graph: Graph, values: Name, count: Name, context: int) -> Name:
    """Each frame with its neighbors, oldest first; zeros beyond the ends."""
    padded = graph("Pad", values, np.array([0, context, 0, 0, context, 0]))
    steps = graph("Range", np.int64(0), count, np.int64(1))
    shifted = [
        graph("Gather", padded, graph("Add", steps, np.int64(shift)), axis=1) for shift in range(2 * context + 1)
    ]
    return str(graph("Concat", *shifted, axis=2))


def _pad(graph: Graph, values: Name, frames: Name, padding: int) -> tuple[Name, Name]:
    """Adds empty frames before and after each utterance."""
    padded = graph("Pad", values, np.array([0, padding, 0, 0, padding, 0]))
    return padded, graph("Add", frames, np.int64(2 * padding))


def _deep_speech_2(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings

    # Convolutions with their normalization in the weights.
    values = graph("Unsqueeze", values, np.array([1]))  # [batch, channels, frames, bins]
    for number, block in enumerate(model.convolutions, start=1):
        values, frames = _convolution_block(graph, block, values, frames)
        if number < len(model.convolutions):  # recurrent layers read no further than the lengths
            values = graph.mask(values, frames, axis=2, rank=4)

    values = graph("Transpose", values, perm=[2, 0, 3, 1])  # [frames, batch, bins, channels]
    values = graph(
        "Reshape", values, np.array([0, 0, to_numpy(directions(model.recurrent[0])[0].cell.kernel).shape[0]])
    )

    # Recurrent layers: [frames, batch, units].
    lengths = graph("Cast", frames, to=TensorProto.INT32)
    for norm, layer in zip(model.norms, model.recurrent, strict=True):
        if norm is not None:
            values = affine(graph, norm, values)
        values = recurrent(graph, layer, values, lengths)

    if model.row_convolution is not None:
        # A row convolution is a depthwise one over time.
        kernel = to_numpy(model.row_convolution.kernel)  # [taps, channels, 1]
        values = graph(
            "Conv", graph("Transpose", values, perm=[1, 2, 0]), kernel.transpose(1, 2, 0),
            group=kernel.shape[1], pads=[0, settings.lookahead],
        )  # fmt: skip
        values = graph("Transpose", values, perm=[2, 0, 1])

    if model.output_norm is not None:
        values = affine(graph, model.output_norm, values)

    return classify(graph, model.classifier, values), frames


def _deep_speech(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings

    # The first layer is a convolution over 2 · context + 1 frames.
    window, *dense = model.before
    kernel = to_numpy(window.kernel)  # [taps, bins, units]
    values = graph(
        "Conv", graph("Transpose", values, perm=[0, 2, 1]), kernel.transpose(2, 1, 0), to_numpy(window.bias),
        pads=[settings.context, settings.context],
    )  # fmt: skip
    values = graph.clip(graph("Transpose", values, perm=[2, 0, 1]), settings.relu_clip)
    for layer in dense:
        values = graph.clip(graph.dense(values, layer), settings.relu_clip)

    values = recurrent(graph, model.recurrent, values, graph("Cast", frames, to=TensorProto.INT32))
    values = graph.clip(graph.dense(values, model.after), settings.relu_clip)

    return classify(graph, model.classifier, values), frames


def _whisper(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    values, frames = _silence_around(graph, values, frames, model.settings.padding)
    values = whisper_convolutions(graph, model.encoder, values, frames)
    frames = _halve(graph, frames)
    hidden_keys = graph("Where", graph.below(frames, graph.size(values, 1)), np.float32(0), np.float32(-1e9))
    scores = graph("Unsqueeze", hidden_keys, np.array([1, 2]))  # [batch, 1, 1, frames]
    for block in model.encoder.blocks:
        attended = _self_attention(graph, block.attention, graph.layer_norm(values, block.attention_norm), scores)
        values = whisper_feed_forward(graph, block, graph("Add", values, attended))
    values = graph.layer_norm(values, model.encoder.norm)

    logits = graph("Add", graph("MatMul", values, to_numpy(model.classifier.kernel)), to_numpy(model.classifier.bias))
    return str(graph("LogSoftmax", logits, axis=-1)), frames


def whisper_convolutions(graph: Graph, encoder: Any, values: Name, frames: Name | None) -> Name:
    """Features [batch, frames, bins] to the input of a `WhisperEncoder`'s blocks, [batch, ⌈frames / 2⌉, units].

    Args:
      frames: int64 [batch], the real ones of each row; None: all are.
    """
    for convolution in encoder.convolutions:
        kernel = to_numpy(convolution.kernel).transpose(2, 1, 0)
        strides = list(convolution.strides)
        convolved = graph(
            "Conv", graph.transpose(values), kernel, to_numpy(convolution.bias), pads=[1, 1], strides=strides
        )
        values = graph.transpose(graph.gelu(convolved))
        if frames is not None:
            frames = _halve(graph, frames) if strides[0] == 2 else frames
            values = graph.mask(values, frames, axis=1, rank=3)

    length = graph("Shape", values, start=1, end=2)
    positions = graph("Slice", to_numpy(encoder.positions), np.array([0]), length, np.array([0]))
    return str(graph("Add", values, positions))


def _halve(graph: Graph, frames: Name) -> Name:
    """⌈frames / 2⌉."""
    return str(graph("Div", graph("Add", frames, np.int64(1)), np.int64(2)))


def whisper_feed_forward(graph: Graph, block: Any, values: Name) -> Name:
    """The feed-forward module of a `WhisperBlock`, with what it adds to."""
    hidden = graph.gelu(graph.dense(graph.layer_norm(values, block.feed_forward_norm), block.wide))
    return str(graph("Add", values, graph.dense(hidden, block.narrow)))


def _silence_around(graph: Graph, values: Name, frames: Name, padding: int) -> tuple[Name, Name]:
    """`networks.whisper.pad_with_silence`: frames of each row's own silence before and after it."""
    if not padding:
        return values, frames
    real = graph("Unsqueeze", graph.below(frames, graph.size(values, 1)), np.array([2]))
    loudest = graph("ReduceMax", graph("Where", real, values, np.float32(LEAST)), axes=[1, 2], keepdims=1)
    silence = graph("Max", graph("Add", loudest, np.float32(SILENCE)), np.float32(LEAST))

    # The rows between silence on both sides, then zero beyond the frames after them.
    padded, total = _pad(graph, graph("Sub", graph("Where", real, values, silence), silence), frames, padding)
    return graph.mask(graph("Add", padded, silence), total, axis=1, rank=3), total


def _self_attention(graph: Graph, layer: Any, values: Name, bias: Name) -> Name:
    """Multi-head attention of [batch, frames, units]; `bias` [batch, 1, 1, frames] is far below 0 for hidden keys."""
    heads = layer.heads
    size = len(to_numpy(layer.query.bias)) // heads

    # [batch, frames, 3, heads, size] → three of [batch, heads, frames, size]
    parts = graph("Reshape", graph.product(values, *joined_weights(layer)), np.array([0, 0, 3, heads, size]))
    query, key, value = graph("Split", parts, np.array([1, 1, 1]), axis=2, outputs=3)
    query = graph("Transpose", graph("Squeeze", query, np.array([2])), perm=[0, 2, 1, 3])
    key = graph("Transpose", graph("Squeeze", key, np.array([2])), perm=[0, 2, 3, 1])
    value = graph("Transpose", graph("Squeeze", value, np.array([2])), perm=[0, 2, 1, 3])

    shares = graph("Softmax", graph("Add", graph("MatMul", query, key), bias), axis=-1)
    attended = graph("Transpose", graph("MatMul", shares, value), perm=[0, 2, 1, 3])
    attended = graph("Reshape", attended, np.array([0, 0, heads * size]))
    return graph.dense(attended, layer.output_projection)


def joined_weights(layer: Any) -> tuple[Array, Array]:
    """Kernel [inputs, 3 · units] and bias of one product for queries, keys and values.

    1 / √size is in the queries. Keys have no bias: it would add the same to all scores of a query.
    """
    query_bias = to_numpy(layer.query.bias)
    scale = np.float32((len(query_bias) // layer.heads) ** -0.5)
    kernels = [to_numpy(layer.query.kernel) * scale, to_numpy(layer.key.kernel), to_numpy(layer.value.kernel)]
    biases = [query_bias * scale, np.zeros_like(query_bias), to_numpy(layer.value.bias)]
    return np.concatenate(kernels, axis=1), np.concatenate(biases)


def _fast_conformer(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings
    units = settings.units

    # Convolutions over [batch, channels, frames, bins], each halving frames and bins.
    values = graph("Unsqueeze", values, np.array([1]))
    strided: dict[str, Any] = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    kernel = to_numpy(model.convolution.kernel).transpose(3, 2, 0, 1)
    values = graph("Conv", values, kernel, to_numpy(model.convolution.bias), **strided)
    values, frames = _rectify_half(graph, values, frames)
    for depthwise, pointwise in zip(model.depthwise, model.pointwise, strict=True):
        kernel = to_numpy(depthwise.kernel).transpose(2, 3, 0, 1)
        values = graph("Conv", values, kernel, to_numpy(depthwise.bias), group=len(kernel), **strided)
        kernel = to_numpy(pointwise.kernel).transpose(3, 2, 0, 1)
        values = graph("Conv", values, kernel, to_numpy(pointwise.bias))
        values, frames = _rectify_half(graph, values, frames)

    # [batch, frames, channels · bins] → [batch, frames, units]
    scale = np.float32(units**0.5 if settings.scale_input else 1.0)
    kernel = to_numpy(model.projection.kernel)
    values = graph("Reshape", graph("Transpose", values, perm=[0, 2, 1, 3]), np.array([0, 0, len(kernel)]))
    values = graph.product(values, kernel * scale, to_numpy(model.projection.bias) * scale)

    length = graph.size(values, 1)
    positions = _relative_positions(graph, length, units)
    hidden_keys = graph("Where", graph.below(frames, length), np.float32(0), np.float32(-1e9))
    bias = graph("Unsqueeze", hidden_keys, np.array([1, 2]))  # [batch, 1, 1, frames]
    for block in model.blocks:
        values = graph("Add", values, _half_feed_forward(graph, block.first, values))
        values = graph("Add", values, _relative_attention(graph, block.attention, values, positions, bias))
        values = graph("Add", values, _convolution_module(graph, block.convolution, values, frames))
        values = graph("Add", values, _half_feed_forward(graph, block.second, values))
        values = graph.layer_norm(values, block.norm)

    logits = graph("Add", graph("MatMul", values, to_numpy(model.classifier.kernel)), to_numpy(model.classifier.bias))
    return str(graph("LogSoftmax", logits, axis=-1)), frames


def _rectify_half(graph: Graph, values: Name, frames: Name) -> tuple[Name, Name]:
    """ReLU of [batch, channels, frames, bins] after a stride of 2, zero beyond each row's frames."""
    frames = _halve(graph, frames)
    return graph.mask(graph("Relu", values), frames, axis=2, rank=4), frames


def _relative_positions(graph: Graph, length: Name, units: int) -> Name:
    """`networks.fastconformer.relative_positions`, float32 [2 · length - 1, units]."""
    unit = np.int64(1)
    distances = graph("Range", graph("Sub", length, unit), graph("Neg", length), np.int64(-1))
    speeds = SLOWEST_POSITION ** -(np.arange(0, units, 2, dtype=np.float32) / np.float32(units))
    angles = graph("Mul", graph("Unsqueeze", graph("Cast", distances, to=TensorProto.FLOAT), np.array([1])), speeds)

    # Sine and cosine of a pair are neighbors.
    pairs = [graph("Unsqueeze", graph(op, angles), np.array([2])) for op in ("Sin", "Cos")]
    return str(graph("Reshape", graph("Concat", *pairs, axis=2), np.array([-1, units])))


def _relative_attention(graph: Graph, layer: Any, values: Name, positions: Name, bias: Name) -> Name:
    """`RelativeAttention` of [batch, frames, units]; `bias` [batch, 1, 1, frames] is far below 0 for hidden keys."""
    heads = layer.heads
    size = layer.size
    normed = graph.layer_norm(values, layer.norm)

    # One product for queries, keys and values, with 1 / √size in the queries and in u and v.
    scale = np.float32(size**-0.5)
    of_query, of_key, of_value = map(_dense_weights, (layer.query, layer.key, layer.value))
    kernels = [of_query[0] * scale, of_key[0], of_value[0]]
    biases = [of_query[1] * scale, of_key[1], of_value[1]]
    joined = graph.product(normed, np.concatenate(kernels, axis=1), np.concatenate(biases))
    parts = graph("Reshape", joined, np.array([0, 0, 3, heads, size]))
    query, key, value = (
        graph("Squeeze", part, np.array([2])) for part in graph("Split", parts, np.array([1, 1, 1]), axis=2, outputs=3)
    )
    of_content = graph("Add", query, to_numpy(layer.content_bias) * scale)
    of_position = graph("Add", query, to_numpy(layer.position_bias) * scale)

    # [heads, size, 2 · frames - 1]
    relative = graph("MatMul", positions, to_numpy(layer.position.kernel))
    relative = graph("Transpose", graph("Reshape", relative, np.array([-1, heads, size])), perm=[1, 2, 0])

    # Scores by distance, then by key: `shift_to_distances`.
    length = graph("Shape", values, start=1, end=2)
    scores = graph("MatMul", graph("Transpose", of_position, perm=[0, 2, 1, 3]), relative)
    scores = graph("Pad", scores, np.array([0, 0, 0, 1, 0, 0, 0, 0]))
    scores = graph("Reshape", scores, graph("Concat", np.array([0, 0, -1]), length, axis=0))
    scores = graph("Slice", scores, np.array([1]), np.array([np.iinfo(np.int64).max]), np.array([2]))
    scores = graph("Reshape", scores, graph("Concat", np.array([0, 0]), length, np.array([-1]), axis=0))
    scores = graph("Slice", scores, np.array([0]), length, np.array([3]))

    content = graph("Transpose", of_content, perm=[0, 2, 1, 3])
    scores = graph("Add", scores, graph("MatMul", content, graph("Transpose", key, perm=[0, 2, 3, 1])))
    shares = graph("Softmax", graph("Add", scores, bias), axis=-1)
    attended = graph("MatMul", shares, graph("Transpose", value, perm=[0, 2, 1, 3]))
    attended = graph("Reshape", graph("Transpose", attended, perm=[0, 2, 1, 3]), np.array([0, 0, heads * size]))
    return graph.product(attended, *_dense_weights(layer.output_projection))


def _half_feed_forward(graph: Graph, module: Any, values: Name) -> Name:
    """Half of a `FeedForwardModule`."""
    hidden = _swish(graph, graph.product(graph.layer_norm(values, module.norm), *_dense_weights(module.widen)))
    kernel, bias = _dense_weights(module.narrow)
    return graph.product(hidden, kernel / 2, bias / 2)


def _convolution_module(graph: Graph, module: Any, values: Name, frames: Name) -> Name:
    """A `ConvolutionModule`, with its batch normalization in the depthwise convolution."""
    gated = graph.product(graph.layer_norm(values, module.norm), *_dense_weights(module.gated))
    units = to_numpy(module.gated.kernel).shape[1] // 2
    value, gate = graph("Split", gated, np.array([units, units]), axis=2, outputs=2)
    values = graph.mask(graph("Mul", value, graph("Sigmoid", gate)), frames, axis=1, rank=3)

    scale, shift = scale_and_shift(module.batch_norm)
    kernel = to_numpy(module.depthwise.kernel).transpose(0, 2, 1) * scale  # [taps, 1, units]
    bias = shift if module.depthwise.bias is None else to_numpy(module.depthwise.bias) * scale + shift
    values = _swish(graph, graph.convolution(values, kernel, bias, groups=units))
    return graph.product(values, *_dense_weights(module.pointwise))


def _wav2vec2(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings

    # At least one window, [batch, samples, 1] → [batch, 1, samples].
    window = np.int64(settings.window_frames)
    frames = graph("Max", frames, window)
    missing = graph("Max", graph("Sub", window, graph.size(values, 1)), np.int64(0))
    behind = graph("Concat", np.zeros(4, np.int64), graph("Unsqueeze", missing, np.array([0])), np.array([0]), axis=0)
    values = graph.transpose(graph("Pad", values, behind))

    # Convolutions over [batch, channels, frames].
    for layer in model.convolutions:
        convolution = layer.convolution
        kernel = to_numpy(convolution.kernel).transpose(2, 1, 0)
        bias = None if convolution.bias is None else to_numpy(convolution.bias)
        stride = convolution.strides[0]
        values = graph("Conv", values, kernel, bias, strides=[stride])
        frames = graph("Div", graph("Sub", frames, np.int64(kernel.shape[2] - stride)), np.int64(stride))
        if layer.norm is not None and layer.over_time:
            real = graph("Unsqueeze", graph.below(frames, graph.size(values, 2)), np.array([1]))
            values = _standardize(graph, values, real, frames, 2, np.float32(layer.norm.epsilon))
            values = graph("Mul", values, to_numpy(layer.norm.gamma)[:, None])
            values = graph("Add", values, to_numpy(layer.norm.beta)[:, None])
        elif layer.norm is not None:
            values = graph.transpose(graph.layer_norm(graph.transpose(values), layer.norm))
        values = graph.gelu(values)

    # [batch, frames, units] from here on; positions see zeros beyond the end.
    values = graph.transpose(values)
    if model.projection_norm is not None:
        values = graph.layer_norm(values, model.projection_norm)
    values = graph.mask(graph.dense(values, model.projection), frames, axis=1, rank=3)
    positions = model.positions
    kernel = to_numpy(positions.kernel).transpose(2, 1, 0)
    pads = [positions.taps // 2, positions.taps - 1 - positions.taps // 2]
    convolved = graph(
        "Conv", graph.transpose(values), kernel, to_numpy(positions.bias), group=positions.groups, pads=pads
    )
    values = graph("Add", values, graph.transpose(graph.gelu(convolved)))
    if not settings.norm_first:
        values = graph.layer_norm(values, model.norm)

    hidden_keys = graph("Where", graph.below(frames, graph.size(values, 1)), np.float32(0), np.float32(-1e9))
    scores = graph("Unsqueeze", hidden_keys, np.array([1, 2]))  # [batch, 1, 1, frames]
    for block in model.blocks:
        values = _wav2vec2_block(graph, block, values, scores, norm_first=settings.norm_first)
    if settings.norm_first:
        values = graph.layer_norm(values, model.norm)

    logits = graph("Add", graph("MatMul", values, to_numpy(model.classifier.kernel)), to_numpy(model.classifier.bias))
    return str(graph("LogSoftmax", logits, axis=-1)), frames


def _wav2vec2_block(graph: Graph, block: Any, values: Name, scores: Name, *, norm_first: bool) -> Name:
    def feed_forward(hidden: Name) -> Name:
        return graph.dense(graph.gelu(graph.dense(hidden, block.wide)), block.narrow)

    # A bias of keys adds the same to all scores of a query, so it is left out.
    if norm_first:
        normalized = graph.layer_norm(values, block.attention_norm)
        values = graph("Add", values, _self_attention(graph, block.attention, normalized, scores))
        values = graph("Add", values, feed_forward(graph.layer_norm(values, block.feed_forward_norm)))
    else:
        values = graph("Add", values, _self_attention(graph, block.attention, values, scores))
        values = graph.layer_norm(values, block.attention_norm)
        values = graph.layer_norm(graph("Add", values, feed_forward(values)), block.feed_forward_norm)

    if block.adapter is not None:
        adapter = block.adapter
        narrow = graph("Relu", graph.dense(graph.layer_norm(values, adapter.norm), adapter.narrow))
        values = graph("Add", values, graph.dense(narrow, adapter.wide))

    return values


def _swish(graph: Graph, values: Name) -> Name:
    return str(graph("Mul", values, graph("Sigmoid", values)))


def _dense_weights(layer: Any) -> tuple[Array, Array]:
    """Kernel and bias of a dense layer, which may have none."""
    kernel = to_numpy(layer.kernel)
    return kernel, np.zeros(kernel.shape[1], np.float32) if layer.bias is None else to_numpy(layer.bias)


_NETWORKS: dict[str, Callable[..., tuple[Name, Name]]] = {
    "deepspeech": _deep_speech,
    "deepspeech2": _deep_speech_2,
    "whisper": _whisper,
    "fastconformer": _fast_conformer,
    "wav2vec2": _wav2vec2,
}
"""`train.model.kind` → network."""


def _convolution_block(graph: Graph, block: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    """Convolution with the batch normalization in its weights, and clipped ReLU."""

    # Padding as `deepspeech2._same_padding` has it.
    taps, width = block.settings.kernel
    stride = block.settings.stride
    kernel, shift = convolution_weights(block)
    pads = [(taps - 1) // 2, (width - 1) // 2, taps // 2, width // 2]
    values = graph("Conv", values, kernel, shift, strides=list(stride), pads=pads)
    if stride[0] > 1:
        frames = graph("Div", graph("Add", frames, np.int64(stride[0] - 1)), np.int64(stride[0]))
    return graph.clip(values, block.ceiling), frames


def convolution_weights(block: Any) -> tuple[Array, Array]:
    """The kernel [channels, inputs, frames, bins] and the bias of a block, its batch normalization included."""
    scale, shift = scale_and_shift(block.norm)
    return to_numpy(block.convolution.kernel).transpose(3, 2, 0, 1) * scale[:, None, None, None], shift


def affine(graph: Graph, norm: Any, values: Name) -> Name:
    scale, shift = scale_and_shift(norm)
    return str(graph("Add", graph("Mul", values, scale), shift))


def classify(graph: Graph, classifier: Any, values: Name) -> Name:
    logits = graph("Add", graph("MatMul", values, to_numpy(classifier.kernel)), to_numpy(classifier.bias))
    logits = graph("Transpose", logits, perm=[1, 0, 2])
    return str(graph("LogSoftmax", logits, axis=-1))
