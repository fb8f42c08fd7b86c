"""An auxiliary CTC model on predicted mels, which trains along with a TTS model and is not exported.

After Liu et al. 2019, "Maximizing Mutual Information for Tacotron" (arXiv 1909.01145).
"""

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.training.layers import Composite, Tensor
from voxline.training.recurrence import GRU

TAPS = 5


class MelCtc(Composite, keras.Model):  # type: ignore[misc]
    """Predicts logits of symbols from normalized mels: two convolutions, a bidirectional GRU, a classifier.

    Args:
      classes: symbols and the blank, which is last.

    >>> model = MelCtc(80, 30, units=8)
    >>> model(np.zeros((2, 50, 80), "float32"), np.array([50, 20])).shape
    TensorShape([2, 50, 30])
    """

    def __init__(self, mels: int, classes: int, *, units: int, seed: int = 1) -> None:
        super().__init__(name="mel_ctc")
        seeds = iter(np.random.SeedSequence([seed, 7]).generate_state(8).tolist())
        self.convolutions = [
            layers.Conv1D(units, TAPS, padding="same", activation="relu", kernel_initializer=_glorot(next(seeds)))
            for _ in range(2)
        ]
        self.recurrent = layers.Bidirectional(
            _gru(units, next(seeds), next(seeds)), backward_layer=_gru(units, next(seeds), next(seeds), backward=True)
        )
        self.classifier = layers.Dense(classes, kernel_initializer=_glorot(next(seeds)))
        self(np.zeros((1, 4, mels), "float32"), np.array([4]))

    @property
    def normalizations(self) -> list[Any]:
        """Empty: it has no batch normalization."""
        return []

    def call(self, mels: Tensor, frames: Tensor, training: bool = False) -> Tensor:
        """Logits float32 [batch, frames, classes] of mels [batch, frames, bins], of which `frames` are real."""

        # [batch, frames], and as a factor [batch, frames, 1]: convolutions must see zeros beyond the end.
        real = ops.arange(ops.shape(mels)[1]) < ops.expand_dims(ops.cast(frames, "int32"), 1)
        mask = ops.expand_dims(ops.cast(real, "float32"), -1)
        x = ops.cast(mels, "float32") * mask
        for convolution in self.convolutions:
            x = convolution(x) * mask
        return self.classifier(self.recurrent(x, mask=real, training=training))


def _glorot(seed: int) -> Any:
    return keras.initializers.GlorotUniform(seed)


def _gru(units: int, seed: int, state_seed: int, *, backward: bool = False) -> layers.Layer:
    return GRU(
        units,
        return_sequences=True,
        go_backwards=backward,
        kernel_initializer=_glorot(seed),
        recurrent_initializer=keras.initializers.Orthogonal(seed=state_seed),
    )
