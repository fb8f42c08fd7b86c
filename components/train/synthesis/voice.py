"""The graphs of an exported voice; what they take and give: `export`."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from components.speech.dataset import Dataset
from components.train.synthesis import griffin_lim, losses
from components.train.synthesis.learner import FREE_NOISE, restored
from components.train.synthesis.settings import SynthesisSettings

Tensor = Any
TEXT = (
    tf.TensorSpec([None, None], tf.int32, name="symbols"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)


class Voice(tf.Module):  # type: ignore[misc]
    """What both ways to export a voice have.

    Args:
      reduction: frames in a decoder step, as they were when the weights were learnt.
    """

    def __init__(self, model: Any, settings: SynthesisSettings, dataset: Dataset, reduction: int) -> None:
        super().__init__()
        self._vocoder, self._features, self._reduction = settings.vocoder, dataset.features, reduction
        self.max_steps = max_steps(settings, dataset, reduction)
        # Behind functions, so that the SavedModel keeps weights and signatures and nothing of Keras.
        self._force: Callable[..., Any] = lambda *inputs, **named: model(*inputs, **named)
        self._normalise: Callable[[Tensor], Tensor] = lambda features: model.normalise(features)
        self._restored: Callable[..., tuple[Tensor, Tensor]] = lambda mels, linear: restored(model, mels, linear)
        self.weights = [variable.value for variable in model.weights]

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(
            *TEXT,
            tf.TensorSpec([None, None, None], tf.float32, name="features"),
            tf.TensorSpec([None], tf.int32, name="frames"),
        ),
        autograph=False,
    )
    def teacher_forced(self, symbols: Tensor, lengths: Tensor, features: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """Fed the recording."""
        features = tf.ensure_shape(features, [None, None, self._features.bins])
        longest, noise = tf.shape(features)[1], tf.constant(FREE_NOISE)
        wanted = self._real(self._normalise(self._real(features, frames)), frames)
        spoken = self._force(symbols, lengths, wanted, frames, noise=noise, reduction=self._reduction)
        mels = self._real(self._restored(spoken.mels, spoken.linear)[0][:, :longest], frames)
        return {
            "mels": mels,
            "alignments": tf.cast(spoken.alignment, tf.float32),
            "mel_l1": losses.distance(mels, features[..., : self._features.mels], frames),
        }

    def _real(self, values: Tensor, frames: Tensor) -> Tensor:
        """Zero beyond a row's frames."""
        real = tf.expand_dims(tf.sequence_mask(frames, tf.shape(values)[1]), -1)
        return tf.where(real, tf.cast(values, tf.float32), 0.0)

    def _heard(self, mels: Tensor, linear: Tensor | None, frames: Tensor) -> dict[str, Tensor]:
        """Raw mels and waveforms of what a model made in normalised space."""
        longest = tf.reduce_max(frames)
        mels, linear = self._restored(mels, linear)
        waveforms, samples = griffin_lim.waveforms(
            (mels if linear is None else linear)[:, :longest],
            frames,
            self._features,
            self._vocoder.iterations,
            self._vocoder.momentum,
            self._vocoder.power,
        )
        mels = self._real(mels[:, :longest], frames)
        return {"mels": mels, "frames": frames, "waveforms": waveforms, "samples": samples}


class WholeVoice(Voice):
    """Model and Griffin-Lim as one graph."""

    def __init__(self, model: Any, settings: SynthesisSettings, dataset: Dataset, reduction: int) -> None:
        super().__init__(model, settings, dataset, reduction)
        self._speak: Callable[..., Any] = lambda *inputs, **named: model.speak(*inputs, **named)

    @tf.function(input_signature=TEXT, autograph=False)  # type: ignore[untyped-decorator]
    def synthesize(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Free running."""
        noise = tf.constant(FREE_NOISE)
        spoken = self._speak(symbols, lengths, max_steps=self.max_steps, noise=noise, reduction=self._reduction)
        heard = self._heard(spoken.mels, spoken.linear, tf.cast(spoken.frames, tf.int32))
        return {**heard, "alignments": tf.cast(spoken.alignment, tf.float32), "hit_limit": spoken.hit_limit}


def max_steps(settings: SynthesisSettings, dataset: Dataset, reduction: int) -> int:
    """Decoder steps that make `max_seconds` of speech."""
    frames = dataset.features.frames(round(settings.max_seconds * dataset.features.sample_rate))
    return math.ceil(frames / reduction)
