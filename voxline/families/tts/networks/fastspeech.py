"""FastSpeech: a voice that makes all frames at once, each symbol for as long as a predictor says.

After Ren et al. 2021, "FastSpeech 2: Fast and High-Quality End-to-End Text to Speech" (arXiv 2006.04558): an encoder
of symbols, predictors of each symbol's duration, energy and pitch, a length regulator that repeats each symbol for its
frames, and a decoder of frames. No symbol can be skipped or said twice, and no frame waits for the one before. Pitch is
a number for each symbol, as in FastPitch (Łańcucki 2021, arXiv 2006.06873).

Durations are learned inside, without a teacher (Badlani et al. 2021, arXiv 2108.10447): distances between convolutions
over text and over recorded mels make a soft alignment, which `monotonic_alignment` trains and reads. In place of
Transformer blocks there are ConvNeXt blocks, as in Vocos. Where this differs otherwise: docs/decisions/0075.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import layers, ops

from voxline.audio.feature_settings import PROSODY
from voxline.families.tts.networks.monotonic_alignment import best_path_alignment
from voxline.families.tts.networks.settings import FastSpeechSettings
from voxline.families.tts.networks.tts_network import TtsNetwork, TtsOutput
from voxline.training.layers import Composite, ConvNeXtBlock, Tensor, dropout, length_mask, mask_padding

TEMPERATURE = 0.0005
"""Factor of squared distances between text and mels, as the authors have it."""
ENCODER_NOISE = 0
DECODER_NOISE = 100
DURATION_NOISE = 200
ENERGY_NOISE = 300
PITCH_NOISE = 400
"""Streams of random numbers for dropout."""
SMALLEST_PITCH_DEVIATION = 0.01
"""Least deviation of log F0, a sixth of a semitone: a voice that varies less speaks in monotone."""


class AlignedOutput(NamedTuple):
    """Output of `FastSpeech` for a text and its recording.

    Attributes:
      output: mels, of the recording's durations.
      log_alignment: float32 [batch, frames, symbols], log probability of each symbol in each frame.
      log_durations: predicted, float32 [batch, symbols]: natural logarithms of frames.
      durations: float32 [batch, symbols], in frames, of the recording by the most probable alignment.
      predicted_energy, energy: float32 [batch, symbols]; None without the predictor.
      predicted_pitch, pitch: log F0 in standard deviations of voiced frames, the same.
    """

    output: TtsOutput
    log_alignment: Tensor
    log_durations: Tensor
    durations: Tensor
    predicted_energy: Tensor | None
    energy: Tensor | None
    predicted_pitch: Tensor | None
    pitch: Tensor | None


class FastSpeech(TtsNetwork):
    """Predicts mels from symbols, all frames at once.

    >>> import numpy as np
    >>> settings = FastSpeechSettings(channels=8, hidden=8, encoder_layers=1, decoder_layers=1)
    >>> model = FastSpeech(settings, symbols=5, bins=3, mels=3, mean=[0.0] * 3, deviation=[1.0] * 3)
    >>> output = model(np.array([[1, 2]]), np.array([2]), np.zeros((1, 7, 3), "float32"), np.array([7]))
    >>> output.mels.shape, output.alignment.numpy().sum(axis=2).tolist()
    (TensorShape([1, 7, 3]), [[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    """

    settings: FastSpeechSettings

    def _build_layers(self, seeds: list[int], precision: str, portable: bool) -> None:
        settings = self.settings
        source = iter(seeds)
        glorot = keras.initializers.GlorotUniform

        def blocks(count: int) -> list[ConvNeXtBlock]:
            return [
                ConvNeXtBlock(
                    settings.channels,
                    settings.hidden,
                    settings.kernel,
                    scale=1 / count,
                    seeds=[next(source) for _ in range(3)],
                    dtype=precision,
                )
                for _ in range(count)
            ]

        # Text side: encoder of symbols, aligner, and predictors of each symbol's duration and energy.
        self.embedding = layers.Embedding(self.symbols, settings.channels, glorot(next(source)), dtype=precision)
        self.encoder = blocks(settings.encoder_layers)
        self.aligner = Aligner(settings.channels, self.mels, settings.prior, [next(source) for _ in range(5)])
        self.duration = Predictor(settings, DURATION_NOISE, [next(source) for _ in range(3)], dtype=precision)
        self.energy: Predictor | None = None
        self.louder: Any = None
        if settings.energy:
            self.energy = Predictor(settings, ENERGY_NOISE, [next(source) for _ in range(3)], dtype=precision)
            self.louder = layers.Dense(settings.channels, kernel_initializer=glorot(next(source)), dtype=precision)

        # Frame side: the decoder of repeated symbols.
        self.place = layers.Dense(settings.channels, kernel_initializer=glorot(next(source)), dtype=precision)
        self.decoder = blocks(settings.decoder_layers)
        self.last_norm = layers.LayerNormalization(dtype=precision)
        self.spectrum = layers.Dense(self.mels, kernel_initializer=glorot(next(source)), dtype="float32")

        # Pitch draws its seeds last: the other weights are the same with it and without it.
        self.pitch: Predictor | None = None
        self.higher: Any = None
        if settings.pitch:
            if self.bins != self.mels + len(PROSODY):
                raise ValueError(
                    f"frames of {self.bins} bins, {self.mels} of them mels: {len(PROSODY)} more, {', '.join(PROSODY)}, "
                    "are needed to predict pitch; extract features of kind mel_and_prosody"
                )
            self.pitch = Predictor(settings, PITCH_NOISE, [next(source) for _ in range(3)], dtype=precision)
            self.higher = layers.Dense(settings.channels, kernel_initializer=glorot(next(source)), dtype=precision)

        # The speaker table draws its seeds last of all, for the same reason.
        self.speakers: Any = None
        self.speaker: Any = None
        if settings.speakers:
            shape = (settings.speakers, settings.speaker_units)
            self.speakers = self.add_weight(shape=shape, initializer=glorot(next(source)), name="speakers")
            self.speaker = layers.Dense(settings.channels, kernel_initializer=glorot(next(source)), dtype=precision)

    def call(
        self,
        labels: Tensor,
        counts: Tensor,
        features: Tensor,
        frames: Tensor,
        training: bool = False,
        noise: Tensor | None = None,
        reduction: int | None = None,
        speakers: Tensor | None = None,
    ) -> TtsOutput:
        """Predicts mels of a recording's durations, energy and pitch.

        Args:
          labels: int [batch, symbols]; counts: int [batch], real symbols.
          features: float32 [batch, frames, bins], normalized; frames: int [batch], real frames.
          training: drop activations; noise: int [2], the seed of it.
          reduction: of no effect: all frames are made in one step.
          speakers: int32 [batch], rows of the speaker table; None: the settings' speaker.
        """
        return self.align(labels, counts, features, frames, training, noise, speakers).output

    def align(
        self,
        labels: Tensor,
        counts: Tensor,
        features: Tensor,
        frames: Tensor,
        training: bool = False,
        noise: Tensor | None = None,
        speakers: Tensor | None = None,
    ) -> AlignedOutput:
        """Predicts mels as a call does, and returns them with all that the loss compares."""
        labels, counts, frames = (ops.cast(array, "int32") for array in (labels, counts, frames))

        # [batch, frames, mels] and [batch, symbols, channels], zero on padding.
        mels = mask_padding(ops.cast(features, "float32")[..., : self.mels], frames)
        embedded = mask_padding(self.embedding(labels), counts)

        # Durations of the recording: the hard alignment [batch, frames, symbols], summed over frames.
        log_alignment = self.aligner(embedded, counts, mels, frames)
        path = best_path_alignment(log_alignment, frames, counts)
        durations = ops.sum(path, axis=1)
        noise = noise if training else None

        # Predictions from the text and who speaks.
        encoded = self._add_speaker(self._encode(embedded, counts, noise), speakers)
        log_durations = self.duration(encoded, counts, noise=noise)
        predicted_energy, predicted_pitch = self._predict_prosody(encoded, counts, noise)
        energy = pitch = None
        if self.energy is not None:
            # Mean loudness over a symbol's frames, [batch, symbols]. Teacher forcing: the decoder gets it, not the
            # prediction.
            loudness = ops.expand_dims(ops.mean(mels, axis=-1), 1)
            energy = ops.matmul(loudness, path)[:, 0] / ops.maximum(durations, 1.0)

        if self.pitch is not None:
            pitch = self.symbol_pitch(ops.cast(features, "float32"), path)

        encoded = self._add_prosody(encoded, energy, pitch)
        output = self._decode(encoded, path, frames, ops.zeros(ops.shape(frames), "bool"), noise)

        return AlignedOutput(
            output, log_alignment, log_durations, durations, predicted_energy, energy, predicted_pitch, pitch
        )

    def symbol_pitch(self, features: Tensor, path: Tensor) -> Tensor:
        """The pitch of each symbol, float32 [batch, symbols]: the mean of log F0 over the voiced frames of the symbol,
        in standard deviations of the training split's; of a symbol without any, on a line between its neighbors'.

        Args:
          features: float32 [batch, frames, bins], normalized.
          path: float32 [batch, frames, symbols], zero on padding.
        """

        # Back to raw log F0: the statistics of all features count unvoiced frames as 0.
        mean, deviation = self._pitch_statistics()
        prosody_column = self.mels
        log_f0, voicing = (
            features[..., column] * self._deviation[column] + self._mean[column]
            for column in (prosody_column + PROSODY.index("log_f0"), prosody_column + PROSODY.index("voicing"))
        )

        # [batch, 2, frames] · [batch, frames, symbols]: voiced frames of each symbol, and the sum of their pitch.
        voiced = ops.cast(voicing > 0.5, "float32")
        sums = ops.matmul(ops.stack([voiced, voiced * (log_f0 - mean) / deviation], axis=1), path)

        return interpolate_unvoiced(sums[:, 1] / ops.maximum(sums[:, 0], 1.0), sums[:, 0] > 0)

    def _pitch_statistics(self) -> tuple[float, float]:
        """Mean and deviation of log F0 over voiced frames. Those of all frames, of which unvoiced ones have 0, give
        them: a share of frames is voiced, which is the mean of voicing.
        """
        log_f0, voicing = (self.mels + PROSODY.index(name) for name in ("log_f0", "voicing"))
        mean = float(self._mean[log_f0])
        deviation = float(self._deviation[log_f0])
        share = float(self._mean[voicing])
        if share <= 0:
            return 0.0, 1.0

        # With voiced share p: E[x] = p μ and E[x²] = p (σ² + μ²).
        voiced_mean = mean / share
        variance = (deviation**2 + mean**2) / share - voiced_mean**2
        return voiced_mean, max(math.sqrt(max(variance, 0.0)), SMALLEST_PITCH_DEVIATION)

    def synthesize(
        self,
        labels: Tensor,
        counts: Tensor,
        *,
        max_steps: int,
        noise: Tensor | None = None,
        reduction: int | None = None,
        speakers: Tensor | None = None,
    ) -> TtsOutput:
        """Predicts mels of predicted durations, energy and pitch.

        Args:
          labels, counts: as in a call.
          max_steps: frames after which a row is cut.
          noise, reduction: of no effect: nothing is drawn, and all frames are made in one step.
          speakers: as in a call.
        """
        labels = ops.cast(labels, "int32")
        counts = ops.cast(counts, "int32")

        # [batch, symbols, channels]
        encoded = self._encode(mask_padding(self.embedding(labels), counts), counts, None)
        encoded = self._add_speaker(encoded, speakers)
        log_durations = self.duration(encoded, counts)
        encoded = self._add_prosody(encoded, *self._predict_prosody(encoded, counts, None))

        # Whole frames, at least one a symbol. The logarithm is bounded first: its exponential would overflow.
        durations = ops.clip(ops.round(ops.exp(ops.minimum(log_durations, math.log(max_steps)))), 1.0, max_steps)
        ends = ops.cumsum(ops.where(length_mask(counts, ops.shape(labels)[1]), durations, 0.0), axis=1)
        total = ends[:, -1]
        frames = ops.cast(ops.minimum(total, float(max_steps)), "int32")

        # The path [batch, frames, symbols]: symbol n has the frames from starts[n] to ends[n].
        frame = ops.reshape(ops.arange(ops.max(frames), dtype="float32"), (1, -1, 1))
        starts = ops.pad(ends[:, :-1], [[0, 0], [1, 0]])
        path = ops.logical_and(frame >= ops.expand_dims(starts, 1), frame < ops.expand_dims(ends, 1))
        path = mask_padding(ops.cast(path, "float32"), frames)

        return self._decode(encoded, path, frames, total > max_steps, None)

    def _encode(self, embedded: Tensor, counts: Tensor, noise: Tensor | None) -> Tensor:
        return self._run(self.encoder, embedded, counts, noise, ENCODER_NOISE)

    def _run(
        self, blocks: Sequence[ConvNeXtBlock], x: Tensor, counts: Tensor, noise: Tensor | None, stream: int
    ) -> Tensor:
        for index, block in enumerate(blocks):
            x = dropout(block(mask_padding(x, counts)), self.settings.dropout, noise is not None, noise, stream + index)
        return mask_padding(x, counts)

    def _add_speaker(self, encoded: Tensor, speakers: Tensor | None) -> Tensor:
        """Encoded symbols of a speaker, [batch, symbols, channels]: durations, prosody and frames follow from them.

        Args:
          speakers: as in a call.
        """
        if self.speakers is None:
            return encoded

        # [batch or 1, 1, units], the same for each symbol.
        if speakers is None:
            rows = ops.reshape(self.speakers[self.settings.speaker], (1, 1, self.settings.speaker_units))
        else:
            rows = ops.expand_dims(ops.take(self.speakers, speakers, axis=0), 1)
        return encoded + self.speaker(ops.cast(rows, self.compute_dtype))

    def _predict_prosody(
        self, encoded: Tensor, counts: Tensor, noise: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Energy and pitch of each symbol, float32 [batch, symbols]; None without the predictor."""
        predictors = (self.energy, self.pitch)
        energy, pitch = (predictor and predictor(encoded, counts, noise=noise) for predictor in predictors)
        return energy, pitch

    def _add_prosody(self, encoded: Tensor, energy: Tensor | None, pitch: Tensor | None) -> Tensor:
        for value, layer in ((energy, self.louder), (pitch, self.higher)):
            if value is not None:
                encoded = encoded + layer(ops.cast(ops.expand_dims(value, -1), self.compute_dtype))
        return encoded

    def _decode(
        self, encoded: Tensor, path: Tensor, frames: Tensor, hit_limit: Tensor, noise: Tensor | None
    ) -> TtsOutput:
        """Mels of encoded symbols, each repeated for the frames that `path` [batch, frames, symbols] gives it.

        A frame also knows how far its symbol is gone: its share, and the logarithms of the frames before and after it.
        """

        # Length regulator: [batch, frames, symbols] · [batch, symbols, channels].
        repeated = ops.matmul(ops.cast(path, self.compute_dtype), encoded)

        # [batch, frames] each: frames of the symbol before this one, and frames of the symbol.
        before = ops.sum((ops.cumsum(path, axis=1) - 1) * path, axis=-1)
        symbol_frames = ops.matmul(path, ops.expand_dims(ops.sum(path, axis=1), -1))[..., 0]
        share = (before + 0.5) / ops.maximum(symbol_frames, 1.0)
        place = ops.stack([share, ops.log1p(before), ops.log1p(ops.relu(symbol_frames - before - 1))], axis=-1)

        # [batch, frames, channels] → [batch, frames, mels]
        x = repeated + self.place(ops.cast(place, self.compute_dtype))
        x = self.last_norm(self._run(self.decoder, x, frames, noise, DECODER_NOISE))
        mels = mask_padding(ops.cast(self.spectrum(x), "float32"), frames)

        return TtsOutput(mels, mels, None, None, path, frames, hit_limit)


class Aligner(Composite, layers.Layer):  # type: ignore[misc]
    """Scores each pair of symbol and frame: distances between convolutions over text and over mels (equation 1).

    Args:
      channels: of embedded symbols.
      mels: bands, and dimensions in which the distance is taken.
      prior: standard deviation of a Gaussian around the diagonal, as a share of the text; 0: none. In place of the
        authors' beta-binomial distribution.
    """

    def __init__(self, channels: int, mels: int, prior: float, seeds: list[int], **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.prior = prior

        def convolution(units: int, kernel: int, activation: str | None, seed: int) -> layers.Layer:
            uniform = keras.initializers.GlorotUniform(seed)
            return layers.Conv1D(units, kernel, padding="same", activation=activation, kernel_initializer=uniform)

        first, second, third, fourth, fifth = seeds
        self.text = [convolution(2 * channels, 3, "relu", first), convolution(mels, 1, None, second)]
        self.speech = [
            convolution(2 * mels, 3, "relu", third),
            convolution(mels, 1, "relu", fourth),
            convolution(mels, 1, None, fifth),
        ]

    def call(self, embedded: Tensor, counts: Tensor, mels: Tensor, frames: Tensor) -> Tensor:
        """Log probabilities over the symbols of each frame, float32 [batch, frames, symbols]; padding is undefined.

        Args:
          embedded: [batch, symbols, channels] and mels: [batch, frames, mels], zero on padding.
        """

        # Keys [batch, symbols, mels] and queries [batch, frames, mels].
        keys = ops.cast(embedded, "float32")
        queries = mels
        for layer in self.text:
            keys = layer(keys)

        for layer in self.speech:
            queries = layer(queries)

        # |q - k|² = |q|² + |k|² - 2 q · k, [batch, frames, symbols].
        square = ops.expand_dims(ops.sum(ops.square(queries), -1), 2) + ops.expand_dims(
            ops.sum(ops.square(keys), -1), 1
        )
        scores = -TEMPERATURE * (square - 2 * ops.matmul(queries, ops.transpose(keys, (0, 2, 1))))

        # Padded symbols have no share of the softmax.
        scores = ops.where(ops.expand_dims(length_mask(counts, ops.shape(keys)[1]), 1), scores, -1e9)
        scores = ops.log_softmax(scores, axis=-1)
        if self.prior:
            # The prior: log of a Gaussian around the diagonal, up to a constant.
            frame_places, symbol_places = (
                _places(*lengths) for lengths in ((ops.shape(mels)[1], frames), (ops.shape(keys)[1], counts))
            )
            distances = ops.expand_dims(frame_places, 2) - ops.expand_dims(symbol_places, 1)
            scores = scores - ops.square(distances) / (2 * self.prior**2)

        return scores


def _places(longest: Tensor, counts: Tensor) -> Tensor:
    """Middle of each frame or symbol as a share of all, float32 [batch, longest]."""
    return (ops.arange(longest, dtype="float32") + 0.5) / ops.expand_dims(ops.cast(counts, "float32"), 1)


def interpolate_unvoiced(values: Tensor, voiced: Tensor) -> Tensor:
    """Gives what is not voiced the value on a line between the voiced ones before and after it, or that of the nearest
    one at either end; zero where none is voiced.

    Args:
      values: float32 [batch, symbols]; voiced: bool [batch, symbols].

    >>> values = ops.array([[0.0, 1.0, 0.0, 0.0, 4.0, 0.0]])
    >>> interpolate_unvoiced(values, values > 0).numpy().tolist()
    [[1.0, 1.0, 2.0, 3.0, 4.0, 4.0]]
    """
    values = ops.where(voiced, values, 0.0)
    longest = ops.shape(values)[1]
    index = ops.arange(longest)

    # Pairs [symbol, other]; index of the nearest voiced one on each side, -1 or `longest` where none is.
    symbol = ops.expand_dims(index, 1)
    other = ops.expand_dims(index, 0)
    is_voiced = ops.expand_dims(voiced, 1)  # of each pair of a symbol and another one, whether the other is voiced
    before = ops.max(ops.where(ops.logical_and(is_voiced, other <= symbol), other, -1), axis=2)
    after = ops.min(ops.where(ops.logical_and(is_voiced, other >= symbol), other, longest), axis=2)

    # Values on both sides. At the ends both are those of the one nearest voiced symbol.
    left = ops.take_along_axis(values, ops.where(before < 0, ops.minimum(after, longest - 1), before), axis=1)
    right = ops.take_along_axis(values, ops.where(after < longest, after, ops.maximum(before, 0)), axis=1)
    between = ops.cast(ops.maximum(after - before, 1), "float32")

    return left + (right - left) * ops.cast(index - before, "float32") / between


class Predictor(Composite, layers.Layer):  # type: ignore[misc]
    """A number for each symbol: two convolutions, each with ReLU, normalization and dropout, and a dense layer.

    Args:
      stream: of random numbers for its dropout.
    """

    def __init__(self, settings: FastSpeechSettings, stream: int, seeds: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = settings.dropout
        self.stream = stream
        *initializers, last_initializer = map(keras.initializers.GlorotUniform, seeds)
        self.convolutions = [
            layers.Conv1D(
                settings.channels,
                3,
                padding="same",
                activation="relu",
                kernel_initializer=uniform,
                dtype=self.dtype_policy,
            )
            for uniform in initializers
        ]
        self.norms = [layers.LayerNormalization(dtype=self.dtype_policy) for _ in initializers]
        self.last = layers.Dense(1, kernel_initializer=last_initializer, dtype="float32")

    def call(self, x: Tensor, counts: Tensor, noise: Tensor | None = None) -> Tensor:
        """Takes [batch, symbols, channels]; returns float32 [batch, symbols].

        Args:
          noise: int [2], the seed of dropout; None: no dropout.
        """
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = norm(convolution(mask_padding(x, counts)))
            x = dropout(x, self.rate, noise is not None, noise, self.stream + index)
        return ops.cast(self.last(x), "float32")[..., 0]
