"""The weights of the decoder that both Tacotrons have, and what is made of them whoever feeds it.

How it is run: `teacher_forcing` feeds it recorded frames, `free_running` its own.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

from components.train.models.attention import LocationSensitiveAttention
from components.train.models.decoder_core import Core
from components.train.models.normalisation import StepSeed
from components.train.synthesis.model_settings import DecoderSettings

Tensor = Any
PRENET_PLACE = 100
"""Where in the noise the pre-net's dropout is drawn."""


class Decoded(NamedTuple):
    """Frames [batch, steps · reduction, mels], stop logits [batch, steps · reduction], alignment [batch, steps, n]."""

    frames: Tensor
    stop: Tensor
    alignment: Tensor


class Decoder(layers.Layer):  # type: ignore[misc]
    """Pre-net, attention, a core of recurrent layers, projection to frames and stop logits."""

    def __init__(
        self, settings: DecoderSettings, core: Core, memory_units: int, mels: int, *, seed: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings, self.core, self.mels, self.memory_units = settings, core, mels, memory_units
        seeds = iter(np.random.SeedSequence([seed, 3]).generate_state(8).tolist())
        glorot = keras.initializers.GlorotUniform
        self.prenet: list[tuple[Any, Any]] = []
        width = mels
        for units in settings.prenet:
            shape = (width, units)
            kernel = self.add_weight(shape=shape, initializer=glorot(next(seeds)), name=f"prenet_{len(self.prenet)}")
            bias = self.add_weight(shape=(units,), initializer="zeros", name=f"prenet_bias_{len(self.prenet)}")
            self.prenet.append((kernel, bias))
            width = units
        self.attention = LocationSensitiveAttention(
            settings.attention, core.query_units, memory_units, seed=next(seeds), dtype=self.dtype_policy
        )
        most, out = settings.reduction, core.output_units
        wide = out + memory_units
        self.frame_kernel = self.add_weight(shape=(wide, most * mels), initializer=glorot(next(seeds)), name="frames")
        self.frame_bias = self.add_weight(shape=(most * mels,), initializer="zeros", name="frames_bias")
        self.stop_kernel = self.add_weight(shape=(wide, most), initializer=glorot(next(seeds)), name="stop")
        self.stop_bias = self.add_weight(shape=(most,), initializer="zeros", name="stop_bias")
        self.built = True

    def prenet_masks(self, rows: Tensor, steps: Tensor, noise: Tensor, training: bool) -> list[Tensor] | None:
        """Dropout of the pre-net, [rows, steps, units]; the same for all rows where a voice speaks."""
        rate = self.settings.prenet_dropout
        if noise is None or not rate or not (training or self.settings.prenet_dropout_stays):
            return None
        drawn = []
        for index, (kernel, _) in enumerate(self.prenet):
            chance = keras.random.uniform((rows, steps, kernel.shape[1]), seed=StepSeed(noise, PRENET_PLACE + index))
            drawn.append(ops.cast(chance >= rate, self.compute_dtype) / (1 - rate))
        return drawn

    def narrowed(self, x: Tensor, masks: list[Tensor] | None) -> Tensor:
        """A frame, or all of them, through the pre-net."""
        for index, (kernel, bias) in enumerate(self.prenet):
            x = ops.relu(ops.matmul(x, ops.cast(kernel, x.dtype)) + ops.cast(bias, x.dtype))
            x = x if masks is None else x * masks[index]
        return x

    def projection(self, reduction: int) -> tuple[Tensor, Tensor]:
        """One matrix for frames and stop logits of so many frames, and its bias; float32."""
        wide = reduction * self.mels
        kernel = ops.concatenate([self.frame_kernel[:, :wide], self.stop_kernel[:, :reduction]], axis=1)
        bias = ops.concatenate([self.frame_bias[:wide], self.stop_bias[:reduction]], axis=0)
        return ops.cast(kernel, "float32"), ops.cast(bias, "float32")

    def unfolded(self, made: Tensor, alignment: Tensor, reduction: int) -> Decoded:
        """What the projection made, [batch, steps, reduction · (mels + 1)], frame by frame."""
        batch, wide = ops.shape(made)[0], reduction * self.mels
        frames = ops.reshape(made[..., :wide], (batch, -1, self.mels))
        return Decoded(frames, ops.reshape(made[..., wide:], (batch, -1)), alignment)


def weighted(weights: Tensor, memory: Tensor) -> Tensor:
    """What weights [batch, symbols] take from [batch, symbols, width]: [batch, width]."""
    return ops.squeeze(ops.matmul(ops.expand_dims(ops.cast(weights, memory.dtype), 1), memory), 1)


def cut(x: Tensor, places: list[int]) -> list[Tensor]:
    """Pieces of the last axis, cut at `places`; with none, the whole."""
    return [x[..., begin:end] for begin, end in zip([0, *places], [*places, x.shape[-1]], strict=True)]
