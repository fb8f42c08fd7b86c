"""The exported voice: symbols in, mels and a waveform out, everything between in the graph.

Signatures:
  synthesize      symbols int32 [batch, n], lengths int32 [batch] → mels float32 [batch, t, mels] (raw), frames int32
                  [batch], alignments float32 [batch, steps, n], waveforms float32 [batch, samples], samples int32
                  [batch], hit_limit bool [batch]: the decoder was cut after `max_steps`.
  teacher_forced  the same symbols and lengths, features float32 [batch, t, bins] (raw), frames int32 [batch] → mels,
                  alignments, mel_l1 float32 [batch]: mean error over real frames and mels, in raw units.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.speech.dataset import Dataset
from components.train.checkpoints import Arrays
from components.train.export import about, write_exported
from components.train.synthesis import griffin_lim, losses
from components.train.synthesis.learner import FREE_NOISE, build, restored
from components.train.synthesis.settings import SynthesisSettings

Tensor = Any
TEXT = (
    tf.TensorSpec([None, None], tf.int32, name="symbols"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)


class Voice(tf.Module):  # type: ignore[misc]
    """Model and Griffin-Lim as one graph.

    Args:
      reduction: frames in a decoder step, as they were when the weights were learnt.
    """

    def __init__(self, model: Any, settings: SynthesisSettings, dataset: Dataset, reduction: int) -> None:
        super().__init__()
        self._settings, self._features, self._reduction = settings, dataset.features, reduction
        self.max_steps = max_steps(settings, dataset, reduction)
        # Behind functions, so that the SavedModel keeps weights and signatures and nothing of Keras.
        self._speak: Callable[..., Any] = lambda *inputs, **named: model.speak(*inputs, **named)
        self._force: Callable[..., Any] = lambda *inputs, **named: model(*inputs, **named)
        self._normalise: Callable[[Tensor], Tensor] = lambda features: model.normalise(features)
        self._restored: Callable[..., tuple[Tensor, Tensor]] = lambda mels, linear: restored(model, mels, linear)
        self.weights = [variable.value for variable in model.weights]

    @tf.function(input_signature=TEXT, autograph=False)  # type: ignore[untyped-decorator]
    def synthesize(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Free running; see the file's head."""
        noise, vocoder = tf.constant(FREE_NOISE), self._settings.vocoder
        spoken = self._speak(symbols, lengths, max_steps=self.max_steps, noise=noise, reduction=self._reduction)
        frames = tf.cast(spoken.frames, tf.int32)
        longest = tf.reduce_max(frames)
        mels, linear = self._restored(spoken.mels, spoken.linear)
        waveforms, samples = griffin_lim.waveforms(
            (mels if linear is None else linear)[:, :longest],
            frames,
            self._features,
            vocoder.iterations,
            vocoder.momentum,
            vocoder.power,
        )
        return {
            "mels": self._real(mels[:, :longest], frames),
            "frames": frames,
            "alignments": tf.cast(spoken.alignment, tf.float32),
            "waveforms": waveforms,
            "samples": samples,
            "hit_limit": spoken.hit_limit,
        }

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(
            *TEXT,
            tf.TensorSpec([None, None, None], tf.float32, name="features"),
            tf.TensorSpec([None], tf.int32, name="frames"),
        ),
        autograph=False,
    )
    def teacher_forced(self, symbols: Tensor, lengths: Tensor, features: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """Fed the recording; see the file's head."""
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


def max_steps(settings: SynthesisSettings, dataset: Dataset, reduction: int) -> int:
    """Decoder steps that make `max_seconds` of speech."""
    frames = dataset.features.frames(round(settings.max_seconds * dataset.features.sample_rate))
    return math.ceil(frames / reduction)


def export(
    folder: Path, settings: SynthesisSettings, dataset: Dataset, weights: Arrays, trained: dict[str, Any]
) -> None:
    """Writes the exported voice, whole or not at all.

    Args:
      weights: by the names of `Learner.weights`.
      trained: what model.json says of the training; its `best_step` decides the frames in a decoder step.
    """
    model = build(settings, dataset, portable=True)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])
    reduction = settings.reduction(int(trained["best_step"]))
    module = Voice(model, settings, dataset, reduction)
    signatures = {
        "synthesize": module.synthesize,
        "teacher_forced": module.teacher_forced,
        "serving_default": module.synthesize,
    }
    said = about(settings.model.kind, settings, dataset, trained)
    said |= {"reading": dataset.reading, "max_steps": module.max_steps, "reduction": reduction}
    write_exported(folder, module, signatures, said)
