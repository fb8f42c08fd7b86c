"""Mozilla's DeepSpeech: three dense layers over frames with their neighbors, a forward LSTM, two dense layers, CTC.

After Hannun et al. 2014, "Deep Speech: Scaling up end-to-end speech recognition", with an LSTM in place of the
bidirectional layer, as in Mozilla DeepSpeech 0.9. Where this differs: docs/decisions/0059.

Padding changes nothing: beyond an utterance's end the first layer sees zeros, and the LSTM runs forward.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.asr.networks.settings import DeepSpeechSettings
from voxline.training.layers import Composite, FeatureNormalizer, Tensor, dropout, mask_padding
from voxline.training.recurrence import LSTM


class DeepSpeech(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits from raw features; a `CtcModel`, whose arguments it takes.

    >>> model = DeepSpeech(DeepSpeechSettings(units=8, padding=1), mean=[0.0] * 26, deviation=[1.0] * 26, classes=29)
    >>> logits, frames = model(np.zeros((2, 31, 26), "float32"), np.array([31, 7]))
    >>> logits.shape, frames.numpy().tolist()
    (TensorShape([2, 33, 29]), [33, 9])
    """

    def __init__(
        self,
        settings: DeepSpeechSettings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="deepspeech")
        self.settings = settings
        self.normalize = FeatureNormalizer(mean, deviation, settings.top_db)
        seeds = np.random.SeedSequence(seed).generate_state(7).tolist()
        glorot = [keras.initializers.GlorotUniform(number) for number in seeds]
        units = settings.units
        # A dense layer over 2 · context + 1 stacked frames, without storing the stack.
        window = layers.Conv1D(
            units, 2 * settings.context + 1, padding="same", kernel_initializer=glorot[0], dtype=precision
        )
        self.before = [
            window,
            *(layers.Dense(units, kernel_initializer=glorot[index], dtype=precision) for index in (1, 2)),
        ]
        self.recurrent = LSTM(
            units,
            return_sequences=True,
            unit_forget_bias=True,  # Jozefowicz et al. 2015
            kernel_initializer=glorot[3],
            recurrent_initializer=keras.initializers.Orthogonal(seed=seeds[4]),
            use_cudnn=False if portable else "auto",
            dtype=precision,
        )
        self.after = layers.Dense(units, kernel_initializer=glorot[5], dtype=precision)
        # The logits stay float32 in every precision: CTC sums probabilities over hundreds of frames.
        self.classifier = layers.Dense(classes, kernel_initializer=glorot[6], dtype="float32")
        self(np.zeros((1, 2, self.normalize.bins), "float32"), np.array([2]))

    @property
    def normalizations(self) -> list[Any]:
        """None: no layer has moving statistics."""
        return []

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs the network; see `CtcModel`."""

        def drop(x: Tensor, layer: int) -> Tensor:
            return dropout(x, self.settings.dropout[layer], training, noise, layer)

        # [batch, frames, bins], zero beyond the end.
        x = self.normalize(features, frames)
        x = ops.cast(mask_padding(x, frames), self.compute_dtype)

        # Frames of padding give CTC room for the first and last symbols.
        padding = self.settings.padding
        x = ops.pad(x, [(0, 0), (padding, padding), (0, 0)])
        frames = ops.cast(frames, "int32") + 2 * padding

        # Clipped ReLU, min(max(x, 0), 20), then dropout: [batch, frames, units].
        for index, layer in enumerate(self.before):
            x = drop(self._clip(layer(x)), index)

        # Forward in time, then the fifth layer and the logits [batch, frames, classes].
        x = drop(self.recurrent(x), 3)
        x = drop(self._clip(self.after(x)), 4)

        return self.classifier(x), frames

    def _clip(self, x: Tensor) -> Tensor:
        return ops.clip(x, 0.0, self.settings.relu_clip)
