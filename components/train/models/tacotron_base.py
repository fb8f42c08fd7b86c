"""What Tacotron and Tacotron 2 have in common: normalisation, the way through encoder, decoder and post-net."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from voxline.components.train.models.decoder import Decoder, DecoderOutput
from voxline.components.train.models.decoding import Compiler, decode_autoregressive, decode_teacher_forced
from voxline.components.train.models.layers import SequenceBatchNorm, TtsOutput, mask_padding

Tensor = Any


class TacotronBase(keras.Model):  # type: ignore[misc]
    """Symbols in, normalised mels out.

    Args:
      symbols: size of the alphabet; every id is a real symbol, padding is told by counts.
      bins, mels: width of a frame of features, and how many of them, from the first, are mels.
      mean, deviation: per bin, of the training split.
      seed: of the initial weights.
      precision: a Keras dtype policy, "float32" or "mixed_bfloat16".
      portable: keep cuDNN out of the graph, so that an exported one runs on any machine.
    """

    decoder: Decoder

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
        self.settings, self.symbols, self.bins, self.mels = settings, symbols, bins, mels
        self._mean = np.asarray(mean, "float32")
        self._deviation = np.maximum(np.asarray(deviation, "float32"), 1e-5)
        self._assemble(np.random.SeedSequence([seed, 1]).generate_state(64).tolist(), precision, portable)
        once = 2 * settings.reduction
        self(np.zeros((1, 3), "int32"), np.array([3]), np.zeros((1, once, bins), "float32"), np.array([once]))

    def _assemble(self, seeds: list[int], precision: str, portable: bool) -> None:
        """Makes the layers."""
        raise NotImplementedError

    def encode(self, labels: Tensor, counts: Tensor, training: bool, noise: Tensor) -> Tensor:
        """Encoded text [batch, symbols, units], zero on padding."""
        raise NotImplementedError

    def refine(self, before: Tensor, frames: Tensor, training: bool, noise: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mels after the post-net, and the linear spectrum where there is one."""
        raise NotImplementedError

    @property
    def normalisations(self) -> list[SequenceBatchNorm]:
        """The layers whose statistics the train loop moves, once a step has been accepted."""
        return [layer for layer in self._flatten_layers() if isinstance(layer, SequenceBatchNorm)]

    def normalise(self, features: Tensor) -> Tensor:
        """Raw features [..., bins], or mels alone, in deviations from the mean."""
        width = features.shape[-1]
        return (ops.cast(features, "float32") - self._mean[:width]) / self._deviation[:width]

    def restore(self, normalised: Tensor) -> Tensor:
        """The way back of `normalise`."""
        width = normalised.shape[-1]
        return ops.cast(normalised, "float32") * self._deviation[:width] + self._mean[:width]

    def call(
        self,
        labels: Tensor,
        counts: Tensor,
        features: Tensor,
        frames: Tensor,
        training: bool = False,
        noise: Tensor = None,
        reduction: int | None = None,
        teacher: Tensor = None,
    ) -> TtsOutput:
        """Speaks with the recording before it.

        Args:
          labels: int [batch, symbols]; counts: int [batch], how many of them are real.
          features: float32 [batch, frames, bins], normalised; frames: int [batch], how many of them are real.
          training: use the batch's own statistics, drop activations and frames.
          noise: int [2], what is dropped and fed is drawn from it; None: no dropout at all.
          reduction: frames in a decoder step; at most, and by default, that of the settings.
          teacher: share of the steps that are fed the recorded frame, a number or float [batch]; None: all.
        """
        reduction = reduction or self.settings.reduction
        if reduction > self.settings.reduction:
            raise ValueError(f"reduction {reduction} is more than the {self.settings.reduction} the model was made for")
        if teacher is not None and noise is None:
            raise ValueError("teacher is a share of steps drawn by chance; give the noise to draw from")
        counts, frames = ops.cast(counts, "int32"), ops.cast(frames, "int32")
        length = ops.shape(features)[1]
        mels = mask_padding(ops.cast(features, "float32")[..., : self.mels], frames)
        mels = ops.pad(mels, [(0, 0), (0, -length % reduction), (0, 0)])
        memory = self.encode(ops.cast(labels, "int32"), counts, training, noise)
        decoded = decode_teacher_forced(
            self.decoder, memory, counts, mels, reduction=reduction, training=training, noise=noise, teacher=teacher
        )
        hit_limit = ops.zeros(ops.shape(frames), "bool")
        return self._spoken(decoded, frames, hit_limit, training, noise)

    def speak(
        self,
        labels: Tensor,
        counts: Tensor,
        *,
        max_steps: int,
        noise: Tensor,
        reduction: int | None = None,
        compiler: Compiler | None = None,
    ) -> TtsOutput:
        """Speaks alone, until every row's stop token or `max_steps` decoder steps.

        Args:
          labels, counts, reduction: as in a call.
          noise: int [2], what the pre-net drops is drawn from it, alike for all rows and whatever stands beside them.
          compiler: makes the decoder's loop faster.
        """
        counts = ops.cast(counts, "int32")
        memory = self.encode(ops.cast(labels, "int32"), counts, False, None)
        reduction = reduction or self.settings.reduction
        decoded, frames, hit_limit = decode_autoregressive(
            self.decoder, memory, counts, reduction=reduction, max_steps=max_steps, noise=noise, compiler=compiler
        )
        return self._spoken(decoded, frames, hit_limit, False, None)

    def _spoken(
        self, decoded: DecoderOutput, frames: Tensor, hit_limit: Tensor, training: bool, noise: Tensor
    ) -> TtsOutput:
        before = mask_padding(decoded.frames, frames)
        mels, linear = self.refine(before, frames, training, noise)
        return TtsOutput(before, mels, linear, decoded.stop, decoded.alignment, frames, hit_limit)
