"""VITS (Kim, Kong and Son 2021, arXiv 2106.06103) as it speaks: symbols in, samples out.

A text encoder gives each symbol the mean and the deviation of its frames; durations say how many frames; flows turn
frames drawn from that distribution into those of the voice; HiFi-GAN's upsampling makes samples of them. The posterior
encoder, which only training needs (`posterior`), is not part of an exported voice, neither of Piper's nor of ours.

Noise is a table that comes again after `NOISE_STEPS`: the same text sounds the same on every engine, and a text in a
batch as it does alone.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from keras import layers, ops

from voxline.families.tts.vits.durations import (
    EPSILON,
    FixedDurations,
    StochasticDurations,
    convolution_layer,
    dense_layer,
)
from voxline.families.tts.vits.settings import VitsSettings
from voxline.training.layers import Composite, Tensor, dropout, length_mask, mask_padding
from voxline.training.upsampling import LAST_SLOPE, Draws, Upsampling

MARKS = 3
"""Rows of the embedding behind those of the alphabet: the blank, where a text begins, and where it ends."""
NOISE_STEPS = 1_024
"""Frames or symbols after which the noise comes again: 12 seconds of speech."""
NOISE_SEED = 7
DROPOUT = 0.1
"""Dropout rate of the text encoder in training, behind attention and behind convolutions."""
HIDDEN = -1e4
"""Score of hidden keys, as in the authors' code."""
LARGEST_LOG_DURATION = 12.0
"""An exponential without a bound breaks the sum of durations."""


class VitsOutput(NamedTuple):
    """Speech of a batch of texts.

    Attributes:
      waveforms: float32 [batch, frames' · hop], in [-1, 1]; zero beyond a row's samples.
      frames: int32 [batch].
      durations: float32 [batch, symbols], frames of each symbol of the text, with the blanks around it.
      log_durations: float32 [batch, symbols'], of each symbol with the blanks and ends as symbols of their own.
      hit_limit: bool [batch], cut off after `max_frames`.
    """

    waveforms: Tensor
    frames: Tensor
    durations: Tensor
    log_durations: Tensor
    hit_limit: Tensor


class ImaginedSpeech(NamedTuple):
    """A batch of texts before the decoder makes sound of them; symbols' are those of a text with blanks and ends.

    Attributes:
      latent: float32 [batch, frames, latent], zero beyond a row's frames.
      frames: int32 [batch].
      text: float32 [batch, symbols', units], as the text encoder has it.
      rows: int32 [batch], the symbols' of each text.
      durations, log_durations: float32 [batch, symbols'].
      owners: int32 [batch, symbols'], the symbol of the text that each belongs to.
      hit_limit: bool [batch].
    """

    latent: Tensor
    frames: Tensor
    text: Tensor
    rows: Tensor
    durations: Tensor
    log_durations: Tensor
    owners: Tensor
    hit_limit: Tensor


class Vits(Composite, keras.Model):  # type: ignore[misc]
    """Makes waveforms from symbols.

    Args:
      symbols: size of the alphabet; every id is a real symbol.
      seed: of the initial weights.
      precision: of the decoder, which has nearly all of the work; the others hold logarithms, and stay in float32.

    >>> settings = VitsSettings(units=4, feed_forward=4, layers=1, latent=2, flows=1, flow_layers=1, channels=16)
    >>> output = Vits(settings, symbols=5).speak(np.array([[1, 2]]), np.array([2]), max_frames=4)
    >>> output.waveforms.shape[0], output.durations.shape
    (1, TensorShape([1, 2]))
    """

    def __init__(self, settings: VitsSettings, *, symbols: int, seed: int = 1, precision: str = "float32") -> None:
        super().__init__(name="vits")
        self.normalizations: list[Any] = []
        self.settings = settings
        self.symbols = symbols
        # Layers take as many seeds as they have.
        seeds = (int(s) for n in itertools.count() for s in np.random.SeedSequence([seed, 5, n]).generate_state(64))

        uniform = keras.initializers.GlorotUniform(next(seeds))
        self.speakers = None
        if settings.speakers:
            shape = (settings.speakers, settings.speaker_units)
            self.speakers = self.add_weight(shape=shape, initializer=uniform, name="speakers")
        self.encoder = SymbolEncoder(settings, symbols + MARKS, seeds)
        durations = StochasticDurations if settings.durations == "stochastic" else FixedDurations
        self.durations = durations(settings, seeds)
        self.flows = [Coupling(settings, seeds) for _ in range(settings.flows)]
        self.decoder = WaveformDecoder(settings, seed, precision)

        # A call on one symbol makes the weights of all layers.
        self.speak(np.zeros((1, 1), "int32"), np.array([1], "int32"), max_frames=2)

    def speak(
        self,
        symbols: Tensor,
        counts: Tensor,
        *,
        max_frames: Tensor | int,
        rates: Tensor | None = None,
        scales: Tensor | None = None,
        speakers: Tensor | None = None,
    ) -> VitsOutput:
        """Speaks texts.

        Args:
          symbols: int32 [batch, symbols]; counts: int32 [batch].
          max_frames: after which a row is cut off.
          rates: float32 [batch, symbols]; 2 is twice as fast; None: as the settings have it.
          scales: float32 [3]: deviation of the frames' noise, factor of durations, deviation of the durations' noise;
            None: those of the settings.
          speakers: int32 [batch], rows of the speaker table; None: the settings' speaker.
        """
        imagined = self.imagine(symbols, counts, max_frames=max_frames, rates=rates, scales=scales, speakers=speakers)
        frames = imagined.frames
        waveforms = self.decoder(imagined.latent, frames, self.speaker_values(speakers))

        # Durations of the text's own symbols: those of its blanks and ends are added to them.
        of_text = ops.cast(ops.expand_dims(imagined.owners, -1) == ops.arange(ops.shape(symbols)[1]), "float32")
        of_symbols = ops.einsum("bp,bps->bs", imagined.durations, of_text)
        return VitsOutput(waveforms, frames, of_symbols, imagined.log_durations, imagined.hit_limit)

    def imagine(
        self,
        symbols: Tensor,
        counts: Tensor,
        *,
        max_frames: Tensor | int,
        rates: Tensor | None = None,
        scales: Tensor | None = None,
        speakers: Tensor | None = None,
        draw: Callable[[Tensor, int], Tensor] | None = None,
        pad: Callable[[Tensor], Tensor] | None = None,
    ) -> ImaginedSpeech:
        """What the decoder reads of texts; arguments as for `speak`.

        Args:
          draw: gives normal values [batch or 1, steps, values] of numbers of steps and values; None: `repeated_noise`.
          pad: gives the frames of the arrays from those of the longest row; None: the same.
        """
        settings = self.settings
        draw = draw or repeated_noise
        if scales is None:
            scales = np.array([settings.noise, settings.length, settings.duration_noise], "float32")
        speaker = self.speaker_values(speakers)

        # [batch, symbols] → [batch, symbols', ...], with blanks and ends.
        ids, rows = self.with_marks(symbols, counts)
        text, mean, log_deviation = self.encoder(ids, rows)

        # Whole frames of each symbol, [batch, symbols'].
        longest = ops.shape(ids)[1]
        log_durations = self.durations(text, rows, draw(longest, 2) * scales[2], speaker)
        exact = ops.exp(ops.minimum(log_durations, LARGEST_LOG_DURATION)) * scales[1]
        owners = self._owners(rows, counts, longest)
        if rates is not None:
            exact = exact / ops.take_along_axis(rates, owners, axis=1)
        durations = ops.where(length_mask(rows, longest), ops.ceil(exact), 0.0)

        # Each symbol's distribution, repeated for its frames: [batch, frames, latent].
        ends = ops.cumsum(durations, axis=1)
        total = ends[:, -1]
        most_frames = ops.cast(max_frames, "float32")
        frames = ops.cast(ops.clip(total, 1.0, most_frames), "int32")
        columns = ops.max(frames) if pad is None else pad(ops.max(frames))
        path = frame_path(ends, durations, columns)
        mean = ops.matmul(path, mean)
        deviation = ops.exp(ops.matmul(path, log_deviation))
        drawn = mean + draw(columns, settings.latent) * deviation * scales[0]

        latent = self.to_voice(mask_padding(drawn, frames), frames, speaker)
        hit_limit = total > most_frames
        return ImaginedSpeech(latent, frames, text, rows, durations, log_durations, owners, hit_limit)

    def speaker_values(self, speakers: Tensor | None = None) -> Tensor | None:
        """What the layers know of who speaks, [batch or 1, 1, values]; None without a table.

        Args:
          speakers: int32 [batch], rows of the table; None: the settings' speaker for each row of a batch.
        """
        if self.speakers is None:
            return None
        if speakers is not None:
            return ops.expand_dims(ops.take(self.speakers, speakers, axis=0), 1)
        return ops.reshape(self.speakers[self.settings.speaker], (1, 1, self.settings.speaker_units))

    def to_voice(self, latent: Tensor, frames: Tensor, speaker: Tensor | None) -> Tensor:
        """The flows, backwards, as in speech: the text's frames to the voice's, [batch, frames, latent] both."""
        # Each flow sees the values in the other order.
        for flow in reversed(self.flows):
            latent = flow.reverse(latent[..., ::-1], frames, speaker)
        return latent

    def to_text(self, latent: Tensor, frames: Tensor, speaker: Tensor | None) -> Tensor:
        """The flows, forwards, as in training: the inverse of `to_voice`. They change no volume."""
        for flow in self.flows:
            latent = flow.forward(latent, frames, speaker)[..., ::-1]
        return latent

    def call(self, symbols: Tensor, counts: Tensor, max_frames: int) -> VitsOutput:
        return self.speak(symbols, counts, max_frames=max_frames)

    def with_marks(self, symbols: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Symbols with blanks and ends, int32 [batch, symbols'], and their counts."""
        settings = self.settings
        symbols = ops.cast(symbols, "int32")
        counts = ops.cast(counts, "int32")
        blank, begin, end = range(self.symbols, self.symbols + MARKS)
        column = ops.zeros_like(symbols[:, :1])

        # [begin, blank], then a symbol and a blank by turns, and room for the end, which is where the row ends.
        before = [column + begin] if settings.ends else []
        if settings.between:
            before.append(column + blank)
            pairs = ops.stack([symbols, ops.full_like(symbols, blank)], axis=2)
            symbols = ops.reshape(pairs, (-1, 2 * ops.shape(symbols)[1]))
        after = [column + blank] if settings.ends else []
        ids = ops.concatenate([*before, symbols, *after], axis=1)
        counts = counts * (2 if settings.between else 1) + settings.between + 2 * settings.ends

        if settings.ends:
            is_last = ops.arange(ops.shape(ids)[1]) == ops.expand_dims(counts - 1, 1)
            ids = ops.where(is_last, end, ids)
        return ids, counts

    def _owners(self, rows: Tensor, counts: Tensor, longest: Tensor) -> Tensor:
        """int32 [batch, symbols']: the symbol of the text that each symbol, blank or end belongs to."""
        settings = self.settings
        place = ops.maximum(ops.arange(longest) - settings.ends - settings.between, 0)
        place = place // (2 if settings.between else 1)
        return ops.minimum(ops.expand_dims(place, 0), ops.expand_dims(ops.cast(counts, "int32") - 1, 1))


def noise_table(values: int) -> npt.NDArray[np.float32]:
    """Normal values, float32 [NOISE_STEPS, values]; the same in every process."""
    return np.random.default_rng([NOISE_SEED, values]).standard_normal((NOISE_STEPS, values)).astype(np.float32)


def repeated_noise(steps: Tensor, values: int) -> Tensor:
    """[1, steps, values], of `noise_table`."""
    return ops.expand_dims(ops.take(noise_table(values), ops.arange(steps) % NOISE_STEPS, axis=0), 0)


def frame_path(ends: Tensor, durations: Tensor, frames: Tensor) -> Tensor:
    """float32 [batch, frames, symbols]: 1 where a frame belongs to a symbol."""
    frame = ops.reshape(ops.arange(frames, dtype="float32"), (1, -1, 1))
    start = ops.expand_dims(ends - durations, 1)
    return ops.cast(ops.logical_and(frame >= start, frame < ops.expand_dims(ends, 1)), "float32")


class SymbolEncoder(Composite, layers.Layer):  # type: ignore[misc]
    """Transformer blocks that know how far apart near symbols are (Shaw et al. 2018, arXiv 1803.02155)."""

    def __init__(self, settings: VitsSettings, symbols: int, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        normal = keras.initializers.RandomNormal(stddev=settings.units**-0.5, seed=next(seeds))
        self.embedding = self.add_weight(shape=(symbols, settings.units), initializer=normal, name="embedding")
        self.scale = math.sqrt(settings.units)
        self.latent = settings.latent
        self.blocks = [TextBlock(settings, seeds) for _ in range(settings.layers)]
        self.statistics = dense_layer(2 * settings.latent, seeds)

    def call(self, ids: Tensor, counts: Tensor, seed: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Takes int32 [batch, symbols]; returns the encoded text [batch, symbols, units], and the mean and the log
        deviation of each symbol's frames, [batch, symbols, latent]; all zero beyond a row's count.

        Args:
          seed: int [2], of dropout; None: no dropout.
        """
        x = mask_padding(ops.take(self.embedding, ids, axis=0) * self.scale, counts)
        for number, block in enumerate(self.blocks):
            x = block(x, counts, seed, stream=2 * number)
        x = mask_padding(x, counts)

        statistics = mask_padding(self.statistics(x), counts)
        return x, statistics[..., : self.latent], statistics[..., self.latent :]


class TextBlock(Composite, layers.Layer):  # type: ignore[misc]
    """Attention and two convolutions, each with a norm after its residual connection."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = WindowedAttention(settings, seeds)
        self.attention_norm = layers.LayerNormalization(epsilon=EPSILON)
        self.wide = convolution_layer(settings.feed_forward, settings.kernel, seeds)
        self.narrow = convolution_layer(settings.units, settings.kernel, seeds)
        self.norm = layers.LayerNormalization(epsilon=EPSILON)

    def call(self, x: Tensor, counts: Tensor, seed: Tensor | None = None, stream: int = 0) -> Tensor:
        """Takes and returns [batch, symbols, units].

        Args:
          seed: int [2], of dropout; None: no dropout.
          stream: of its random numbers, the first of two.
        """
        # Post-norm: the norm is behind each sum.
        attended = dropout(self.attention(x, counts), DROPOUT, seed is not None, seed, stream)
        x = self.attention_norm(x + attended)
        y = ops.relu(self.wide(mask_padding(x, counts)))
        y = mask_padding(self.narrow(mask_padding(y, counts)), counts)
        return self.norm(x + dropout(y, DROPOUT, seed is not None, seed, stream + 1))


class WindowedAttention(Composite, layers.Layer):  # type: ignore[misc]
    """Attention with a vector for each distance up to a window, added to keys and to values."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = settings.heads
        self.size = settings.units // settings.heads
        self.window = settings.window
        self.query = dense_layer(settings.units, seeds)
        self.key = dense_layer(settings.units, seeds)
        self.value = dense_layer(settings.units, seeds)
        self.output_projection = dense_layer(settings.units, seeds)
        self.distance_keys = self._distances("distance_keys", next(seeds))
        self.distance_values = self._distances("distance_values", next(seeds))

    def _distances(self, name: str, seed: int) -> Any:
        """A vector for each distance, [2 · window + 1, size]."""
        normal = keras.initializers.RandomNormal(stddev=self.size**-0.5, seed=seed)
        return self.add_weight(shape=(2 * self.window + 1, self.size), initializer=normal, name=name)

    def call(self, x: Tensor, counts: Tensor) -> Tensor:
        """Takes and returns [batch, symbols, units]; hides what is beyond a row's count."""
        batch = ops.shape(x)[0]
        length = ops.shape(x)[1]

        def of_heads(values: Tensor) -> Tensor:
            return ops.transpose(ops.reshape(values, (batch, length, self.heads, self.size)), (0, 2, 1, 3))

        # [batch, heads, symbols, size]
        query = of_heads(self.query(x)) * self.size**-0.5
        key = of_heads(self.key(x))
        value = of_heads(self.value(x))

        # Scores [batch, heads, symbols, symbols], by content and by distance.
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores = scores + self._spread(ops.matmul(query, ops.transpose(self.distance_keys)), length)
        shown = ops.reshape(length_mask(counts, length), (-1, 1, 1, length))
        shares = ops.softmax(ops.where(shown, scores, HIDDEN), axis=-1)

        # Values by content and by distance, [batch, heads, symbols, size].
        attended = ops.matmul(shares, value) + ops.matmul(self._gather(shares, length), self.distance_values)
        attended = ops.transpose(attended, (0, 2, 1, 3))
        return self.output_projection(ops.reshape(attended, (batch, length, self.heads * self.size)))

    def _spread(self, by_distance: Tensor, length: Tensor) -> Tensor:
        """[..., symbols, 2 · window + 1] by distance to [..., symbols, symbols] by symbol; zero beyond the window.

        A row is written one place further to the right than the row before: rows of a width of one more, read as rows
        of the width.
        """
        width = length + 2 * self.window
        padded = ops.pad(by_distance, [(0, 0), (0, 0), (0, 0), (0, length)])
        flat = ops.reshape(padded, (-1, self.heads, length * (width + 1)))
        rows = ops.reshape(flat[..., : length * width], (-1, self.heads, length, width))
        return rows[..., self.window : self.window + length]

    def _gather(self, shares: Tensor, length: Tensor) -> Tensor:
        """The inverse: [..., symbols, symbols] by symbol to [..., symbols, 2 · window + 1] by distance."""
        width = length + 2 * self.window
        padded = ops.pad(shares, [(0, 0), (0, 0), (0, 0), (self.window, self.window)])
        flat = ops.reshape(padded, (-1, self.heads, length * width))
        flat = ops.pad(flat, [(0, 0), (0, 0), (0, length)])
        return ops.reshape(flat, (-1, self.heads, length, width + 1))[..., : 2 * self.window + 1]


class Coupling(Composite, layers.Layer):  # type: ignore[misc]
    """Shifts one half of a frame's values by what a WaveNet makes of the other (section 2.2.1)."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.half = settings.latent // 2
        self.before = dense_layer(settings.units, seeds)
        self.wavenet = GatedConvolutions(settings, settings.flow_layers, seeds)
        self.shift = layers.Dense(self.half, kernel_initializer="zeros")

    def reverse(self, x: Tensor, frames: Tensor, speaker: Tensor | None) -> Tensor:
        """From the text's frames towards the voice's: takes and returns [batch, frames, latent]."""
        first = x[..., : self.half]
        second = x[..., self.half :] - self._shift(first, frames, speaker)
        return ops.concatenate([first, mask_padding(second, frames)], axis=-1)

    def forward(self, x: Tensor, frames: Tensor, speaker: Tensor | None) -> Tensor:
        """From the voice's frames towards the text's, likewise; a shift changes no volume."""
        first = x[..., : self.half]
        second = x[..., self.half :] + self._shift(first, frames, speaker)
        return ops.concatenate([first, mask_padding(second, frames)], axis=-1)

    def _shift(self, first: Tensor, frames: Tensor, speaker: Tensor | None) -> Tensor:
        hidden = self.wavenet(mask_padding(self.before(first), frames), frames, speaker)
        return mask_padding(self.shift(hidden), frames)


class GatedConvolutions(Composite, layers.Layer):  # type: ignore[misc]
    """Gated convolutions, each of which adds to its input and to the output (van den Oord et al. 2016)."""

    def __init__(self, settings: VitsSettings, count: int, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = settings.units
        self.gated = [convolution_layer(2 * self.units, settings.flow_kernel, seeds) for _ in range(count)]
        # The last one adds to the output alone.
        self.mixed = [dense_layer(self.units if n == count - 1 else 2 * self.units, seeds) for n in range(count)]
        self.speaker = dense_layer(2 * self.units * count, seeds) if settings.speakers else None

    def call(self, x: Tensor, frames: Tensor, speaker: Tensor | None = None) -> Tensor:
        """Takes and returns [batch, frames, units], zero beyond a row's frames."""
        conditions: list[Any] = [0.0] * len(self.gated)
        if speaker is not None and self.speaker is not None:
            conditions = ops.split(self.speaker(speaker), len(self.gated), axis=-1)

        outputs: Any = 0.0
        for gated, mixed, condition in zip(self.gated, self.mixed, conditions, strict=True):
            # Filter and gate, [batch, frames, 2 · units]; then the input of the next layer, and the output.
            gates = gated(x) + condition
            mixture = mixed(ops.tanh(gates[..., : self.units]) * ops.sigmoid(gates[..., self.units :]))
            skip = mixture[..., -self.units :]
            outputs = outputs + skip
            if mixed is not self.mixed[-1]:
                x = mask_padding(x + mixture[..., : self.units], frames)
        return mask_padding(outputs, frames)


class WaveformDecoder(Upsampling, Composite, layers.Layer):  # type: ignore[misc]
    """HiFi-GAN's generator, of frames of the latent in place of mels."""

    def __init__(self, settings: VitsSettings, seed: int, precision: str = "float32") -> None:
        super().__init__(dtype=precision)
        self.hop = settings.hop
        draws = Draws(seed, 6, precision)
        self.make_upsampling(settings, draws)
        self.last = draws.convolution(1, 7)
        self.speaker = draws.convolution(settings.channels, 1) if settings.speakers else None

    def call(self, x: Tensor, frames: Tensor, speaker: Tensor | None = None) -> Tensor:
        """Takes [batch, frames, latent]; returns waveforms, float32 [batch, frames · hop], zero beyond a row's own."""
        # [batch, frames, latent] → [batch, samples, channels] → [batch, samples]
        condition = None if speaker is None or self.speaker is None else self.speaker(speaker)
        x = self.upsample(x, frames, condition)
        waveforms = ops.tanh(ops.cast(self.last(ops.leaky_relu(x, LAST_SLOPE)), "float32"))[..., 0]
        real = length_mask(frames * self.hop, ops.shape(waveforms)[1])
        return ops.where(real, waveforms, 0.0)
