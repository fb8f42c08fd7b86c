"""What Tacotron and Tacotron 2 share: normalization, and the path through encoder, decoder and post-net."""

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
    """Symbols in, normalized mels out.

    Args:
      symbols: size of the alphabet; every id is a real symbol; `counts` marks padding.
      bins, mels: size of a frame of features, and how many of its first bins are mels.
      mean, deviation: per bin, of the training split.
      seed: of the initial weights.
      precision: a Keras dtype policy, "float32" or "mixed_bfloat16".
      portable: use no cuDNN kernels, so that an exported graph runs on any machine.
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
        self._build_layers(np.random.SeedSequence([seed, 1]).generate_state(64).tolist(), precision, portable)
        once = 2 * settings.reduction
        self(np.zeros((1, 3), "int32"), np.array([3]), np.zeros((1, once, bins), "float32"), np.array([once]))

    def _build_layers(self, seeds: list[int], precision: str, portable: bool) -> None:
        """Creates the layers."""
        raise NotImplementedError

    def encode(self, labels: Tensor, counts: Tensor, training: bool, noise: Tensor) -> Tensor:
        """Encoded text [batch, symbols, units], zero on padding."""
        raise NotImplementedError

    def refine(self, before: Tensor, frames: Tensor, training: bool, noise: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mels after the post-net, and the linear spectrum where there is one."""
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

    def call(
        self,
        labels: Tensor,
        counts: Tensor,
        features: Tensor,
        frames: Tensor,
        training: bool = False,
        noise: Tensor = None,
        reduction: int | None = None,
        teacher_forcing: Tensor = None,
    ) -> TtsOutput:
        """Predicts mels, feeding the decoder recorded frames.

        Args:
          labels: int [batch, symbols]; counts: int [batch], real symbols.
          features: float32 [batch, frames, bins], normalized; frames: int [batch], real frames.
          training: normalize by the statistics of the batch, drop activations and frames.
          noise: int [2], the seed of dropout and of the fed frames; None: no dropout at all.
          reduction: frames per decoder step; at most, and by default, that of the settings.
          teacher_forcing: share of the steps that are fed the recorded frame, a number or float [batch]; None: all. The
            others are fed the decoder's last frame.
        """
        reduction = reduction or self.settings.reduction
        if reduction > self.settings.reduction:
            raise ValueError(
                f"reduction {reduction} is more than the {self.settings.reduction} of the model's settings"
            )
        if teacher_forcing is not None and noise is None:
            raise ValueError("teacher_forcing is a share of steps drawn at random; noise, their seed, is missing")
        counts, frames = ops.cast(counts, "int32"), ops.cast(frames, "int32")
        length = ops.shape(features)[1]
        mels = mask_padding(ops.cast(features, "float32")[..., : self.mels], frames)
        mels = ops.pad(mels, [(0, 0), (0, -length % reduction), (0, 0)])
        memory = self.encode(ops.cast(labels, "int32"), counts, training, noise)
        decoded = decode_teacher_forced(
            self.decoder,
            memory,
            counts,
            mels,
            reduction=reduction,
            training=training,
            noise=noise,
            teacher_forcing=teacher_forcing,
        )
        hit_limit = ops.zeros(ops.shape(frames), "bool")
        return self._output(decoded, frames, hit_limit, training, noise)

    def synthesize(
        self,
        labels: Tensor,
        counts: Tensor,
        *,
        max_steps: int,
        noise: Tensor,
        reduction: int | None = None,
        compiler: Compiler | None = None,
    ) -> TtsOutput:
        """Predicts mels from the decoder's own frames, until each row's stop token or `max_steps` decoder steps.

        Args:
          labels, counts, reduction: as in a call.
          noise: int [2], the seed of the pre-net's dropout, which is the same for all rows of any batch.
          compiler: compiles the decoder's loop.
        """
        counts = ops.cast(counts, "int32")
        memory = self.encode(ops.cast(labels, "int32"), counts, False, None)
        reduction = reduction or self.settings.reduction
        decoded, frames, hit_limit = decode_autoregressive(
            self.decoder, memory, counts, reduction=reduction, max_steps=max_steps, noise=noise, compiler=compiler
        )
        return self._output(decoded, frames, hit_limit, False, None)

    def _output(
        self, decoded: DecoderOutput, frames: Tensor, hit_limit: Tensor, training: bool, noise: Tensor
    ) -> TtsOutput:
        before = mask_padding(decoded.frames, frames)
        mels, linear = self.refine(before, frames, training, noise)
        return TtsOutput(before, mels, linear, decoded.stop, decoded.alignment, frames, hit_limit)
