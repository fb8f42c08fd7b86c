"""Deep Speech 2: convolutions over time and frequency, recurrent layers, CTC on top.

After Amodei et al. 2015, "Deep Speech 2: End-to-End Speech Recognition in English and Mandarin". The deployed form of
its section 3.7 has forward layers only, and a row convolution. Where this differs: docs/decisions/0056.

Padding never changes a result: every convolution pads a fixed number of frames on the left (Keras's "same" depends on
the batch's length), frames beyond an utterance's end are set to zero before they can reach real ones, and the backward
layers start at the last real frame.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.asr.networks.settings import ConvolutionSettings, DeepSpeech2Settings
from voxline.training.layers import Composite, FeatureNormalizer, SequenceBatchNorm, Tensor, dropout, pool_utterance
from voxline.training.recurrence import GRU, LSTM, SimpleRNN

RECURRENT = {"gru": GRU, "lstm": LSTM, "simple": SimpleRNN}


class DeepSpeech2(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits from raw features; a `CtcModel`.

    Args:
      settings: sizes.
      mean, deviation: per bin, of the training split; the graph normalizes features by them.
      classes: symbols of the alphabet and the blank.
      seed: of the initial weights.
      precision: a Keras dtype policy, "float32", "mixed_bfloat16" or "mixed_float16".
      portable: use no cuDNN kernels, so that an exported graph runs on any machine.

    >>> settings = DeepSpeech2Settings(units=4, padding=0)
    >>> model = DeepSpeech2(settings, mean=[0.0] * 40, deviation=[1.0] * 40, classes=29)
    >>> logits, frames = model(np.zeros((2, 31, 40), "float32"), np.array([31, 7]))
    >>> logits.shape, frames.numpy().tolist()
    (TensorShape([2, 11, 29]), [11, 3])
    """

    def __init__(
        self,
        settings: DeepSpeech2Settings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="deep_speech_2")
        self.settings = settings
        self.bins = len(mean)
        self.normalize = FeatureNormalizer(mean, deviation, settings.top_db)
        seeds = iter(np.random.SeedSequence(seed).generate_state(8 + 4 * settings.layers).tolist())

        # Convolutions over time and frequency, each with batch normalization.
        self.convolutions = [
            ConvolutionBlock(convolution, settings.relu_clip, seed=next(seeds), dtype=precision)
            for convolution in settings.convolutions
        ]

        # Sequence-wise batch normalization of what goes into a recurrent layer (section 3.2), but not the first.
        self.norms = [
            SequenceBatchNorm(dtype=precision) if settings.rnn_batch_norm and index else None
            for index in range(settings.layers)
        ]
        self.recurrent = [_directions(settings, seeds, precision, portable) for _ in range(settings.layers)]

        # Section 3.7: a row convolution gives forward layers a few frames of the future.
        self.row_convolution = None
        if settings.lookahead:
            self.row_convolution = layers.DepthwiseConv1D(
                settings.lookahead + 1,
                use_bias=False,
                depthwise_initializer=keras.initializers.GlorotUniform(next(seeds)),
                dtype=precision,
            )

        self.output_norm = SequenceBatchNorm(dtype=precision) if settings.rnn_batch_norm else None
        # The logits stay float32 in every precision: CTC sums probabilities over hundreds of frames.
        self.classifier = layers.Dense(
            classes, kernel_initializer=keras.initializers.GlorotUniform(next(seeds)), dtype="float32"
        )

        # A call makes the weights of all layers.
        least_frames = 2 * math.prod(convolution.stride[0] for convolution in settings.convolutions)
        self(np.zeros((1, least_frames, self.bins), "float32"), np.array([least_frames]))

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs the network.

        Args:
          features: float32 [batch, frames, bins], as extract writes them.
          frames: int [batch], real frames.
          training: normalize by the statistics of the batch, and apply dropout.
          noise: int [2], the seed of dropout: the same numbers drop the same activations.

        Returns:
          logits, float32 [batch, output frames, classes], the blank last; and int32 [batch], real output frames.
          With pooling there is one.
        """

        # [batch, frames, bins], zero beyond the end.
        frames = ops.cast(frames, "int32")
        x = self.normalize(features, frames)
        x = ops.cast(x * _mask(frames, x, 3), self.compute_dtype)
        padding = self.settings.padding
        x = ops.pad(ops.expand_dims(x, -1), [(0, 0), (padding, padding), (0, 0), (0, 0)])
        frames = frames + 2 * padding
        for convolution in self.convolutions:
            x, frames = convolution(x, frames, training=training)

        # [batch, frames, bins, channels] → [batch, frames, bins · channels]
        x = ops.reshape(x, (ops.shape(x)[0], -1, x.shape[2] * x.shape[3]))
        for index, (norm, recurrent) in enumerate(zip(self.norms, self.recurrent, strict=True)):
            # [batch, frames, units], or twice as many units with both directions side by side.
            if norm is not None:
                x = norm(x, frames, training=training)
            x = dropout(x, self.settings.dropout, training, noise, index)
            x = recurrent(x, mask=ops.arange(ops.shape(x)[1]) < frames[:, None])
            x = x * _mask(frames, x, 3)

        # Frames t to t + lookahead, padded at the end alone.
        if self.row_convolution is not None:
            x = self.row_convolution(ops.pad(x, [(0, 0), (0, self.settings.lookahead), (0, 0)]))

        # [batch, 1, 2 · units]: the whole utterance is one output frame.
        if self.settings.pooling == "utterance":
            x = pool_utterance(x, frames)
            frames = ops.ones_like(frames)

        if self.output_norm is not None:
            x = self.output_norm(x, frames, training=training)

        # [batch, output frames, classes]
        rate = self.settings.dropout if self.settings.output_dropout is None else self.settings.output_dropout

        return self.classifier(dropout(x, rate, training, noise, len(self.recurrent))), frames

    @property
    def normalizations(self) -> list[SequenceBatchNorm]:
        """The layers whose moving statistics the trainer updates after an accepted step."""
        norms = [block.norm for block in self.convolutions] + [*self.norms, self.output_norm]
        return [norm for norm in norms if norm is not None]


class ConvolutionBlock(Composite, layers.Layer):  # type: ignore[misc]
    """Convolution, batch normalization over real frames, clipped ReLU.

    Takes and returns [batch, frames, bins, channels] with padded frames zero.
    """

    def __init__(self, settings: ConvolutionSettings, ceiling: float, *, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.ceiling = ceiling
        self.convolution = layers.Conv2D(
            settings.channels,
            settings.kernel,
            strides=settings.stride,
            use_bias=False,
            kernel_initializer=keras.initializers.HeNormal(seed),
            dtype=self.dtype_policy,
        )
        self.norm = SequenceBatchNorm(dtype=self.dtype_policy)

    def call(self, x: Tensor, frames: Tensor, training: bool = False) -> tuple[Tensor, Tensor]:
        # [batch, frames, bins, channels] → [batch, frames / stride, bins / stride, channels]
        x = self.convolution(ops.pad(x, [(0, 0), *(_same_padding(taps) for taps in self.settings.kernel), (0, 0)]))
        frames = -(-frames // self.settings.stride[0])
        x = ops.clip(self.norm(x, frames, training=training), 0.0, self.ceiling)
        return x * _mask(frames, x, 4), frames


def _same_padding(taps: int) -> tuple[int, int]:
    """Padding that centers output `i` on input `i · stride`, whatever the batch's length."""
    return (taps - 1) // 2, taps // 2


def _mask(frames: Tensor, like: Tensor, rank: int) -> Tensor:
    """1 in real frames and 0 beyond, in the dtype of `like`, broadcastable to [batch, frames, …]."""

    # [batch, frames], then an axis of one for each further axis.
    real = ops.arange(ops.shape(like)[1]) < ops.expand_dims(frames, 1)
    return ops.cast(ops.reshape(real, (*ops.shape(real), *([1] * (rank - 2)))), like.dtype)


def _directions(settings: DeepSpeech2Settings, seeds: Iterator[int], precision: str, portable: bool) -> layers.Layer:
    """One recurrent layer, in one direction or both."""
    layer = _recurrent(settings, next(seeds), next(seeds), precision, portable)
    direction_layers = [layer]
    if settings.directions != "forward":
        layer = layers.Bidirectional(
            layer,
            backward_layer=_recurrent(settings, next(seeds), next(seeds), precision, portable, backward=True),
            merge_mode="sum" if settings.directions == "summed" else "concat",
            dtype=precision,
        )
        direction_layers = [layer.forward_layer, layer.backward_layer]

    if settings.rnn_activation == "clipped_relu":
        for (
            direction
        ) in direction_layers:  # set here, because Bidirectional copies its layers by the names of their activations
            direction.cell.activation = functools.partial(ops.clip, x_min=0.0, x_max=settings.relu_clip)

    return layer


def _recurrent(
    settings: DeepSpeech2Settings,
    kernel_seed: int,
    state_seed: int,
    precision: str,
    portable: bool,
    backward: bool = False,
) -> layers.Layer:
    # SimpleRNN has no argument of this name.
    cudnn = {} if settings.rnn == "simple" else {"use_cudnn": False if portable else "auto"}
    return RECURRENT[settings.rnn](
        settings.units,
        return_sequences=True,
        go_backwards=backward,
        kernel_initializer=keras.initializers.GlorotUniform(kernel_seed),
        recurrent_initializer=keras.initializers.Orthogonal(seed=state_seed),
        dtype=precision,
        **cudnn,
    )
