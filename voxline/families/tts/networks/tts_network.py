"""The interface that all TTS networks share: symbols in, normalized mels out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from voxline.training.layers import Composite, SequenceBatchNorm, Tensor


class TtsOutput(NamedTuple):
    """The output of a TTS model, in normalized space.

    Attributes:
      before: float32 [batch, frames', mels], from the decoder; frames' = steps · reduction. Zero beyond the end.
      mels: after the post-net, or `before` if the network has none.
      linear: float32 [batch, frames', linear bins] of Tacotron, else None.
      stop: float32 [batch, frames'], logit of "this frame is the last"; None where durations are predicted.
      alignment: float32 [batch, steps, symbols].
      frames: int32 [batch], real frames.
      hit_limit: bool [batch], cut off by `max_steps`.
    """

    before: Tensor
    mels: Tensor
    linear: Tensor | None
    stop: Tensor | None
    alignment: Tensor
    frames: Tensor
    hit_limit: Tensor


class TtsNetwork(Composite, keras.Model):  # type: ignore[misc]
    """Symbols in, normalized mels out.

    Args:
      symbols: size of the alphabet; every id is a real symbol; `counts` marks padding.
      bins, mels: size of a frame of features, and how many of its first bins are mels.
      mean, deviation: per bin, of the training split.
      seed: of the initial weights.
      precision: a Keras dtype policy, "float32", "mixed_bfloat16" or "mixed_float16".
      portable: use no cuDNN kernels, so that an exported graph runs on any machine.
    """

    def __init__(
        self,
        settings: Any,
        *,
        symbols: int,
        bins: int,
        mels: int,
        mean: Sequence[float],
        deviation: Sequence[float],
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, name=settings.kind)
        self.settings = settings
        self.symbols = symbols
        self.bins = bins
        self.mels = mels

        # Constants of the graph, so that an exported model takes raw features.
        self._mean = np.asarray(mean, "float32")
        self._deviation = np.maximum(np.asarray(deviation, "float32"), 1e-5)
        self._build_layers(np.random.SeedSequence([seed, 1]).generate_state(128).tolist(), precision, portable)

        # A call on three symbols makes the weights of all layers.
        frames = 3 * settings.reduction
        self(np.zeros((1, 3), "int32"), np.array([3]), np.zeros((1, frames, bins), "float32"), np.array([frames]))

    def _build_layers(self, seeds: list[int], precision: str, portable: bool) -> None:
        """Creates the layers."""
        raise NotImplementedError

    @property
    def normalizations(self) -> list[SequenceBatchNorm]:
        """The layers whose moving statistics the trainer updates after an accepted step."""
        return [layer for layer in self._flatten_layers() if isinstance(layer, SequenceBatchNorm)]

    def normalize(self, features: Tensor) -> Tensor:
        """Raw features [..., bins], or mels alone, to zero mean and unit variance."""
        width = features.shape[-1]
        return (ops.cast(features, "float32") - self._mean[:width]) / self._deviation[:width]

    def denormalize(self, normalized: Tensor) -> Tensor:
        """The inverse of `normalize`."""
        width = normalized.shape[-1]
        return ops.cast(normalized, "float32") * self._deviation[:width] + self._mean[:width]
