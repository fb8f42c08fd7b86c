"""A voice whose decoder has weights of 8 bits: four times fewer bytes to read in a step, and that is what a step costs.

TensorFlow has no product of one row with 8-bit weights that is faster than float32's; TensorFlow Lite, a part of it,
has one. So a decoder step becomes a file of its own, and what stands around the loop stays a SavedModel of float32.
Measured, and what else was tried: docs/decisions/0032-synthesis-models.md.

Signatures, beside `teacher_forced`:
  encode  symbols int32 [batch, n], lengths int32 [batch] → memory float32 [batch, n, units], keys float32 [batch, n,
          attention units] and, where the pre-net drops, masks float32 [max_steps, units]
  refine  before float32 [batch, t, mels], as the decoder made them, frames int32 [batch] → mels, frames, waveforms,
          samples

decoder.tflite, one step; all float32, and what it gives under a name that it takes is what it takes in the next step:
  takes  own [batch, mels], memory, keys, real bool [batch, n], masks [1, units] where there are any, context, previous,
         cumulative [batch, n], state_0, state_1, …
  gives  made [batch, reduction · (mels + 1)]: frames, then stop logits; own, context, previous, cumulative, state_0, …
"""

from typing import Any

import numpy as np
import tensorflow as tf

from components.speech.dataset import Dataset
from components.train.models.decoder import Decoder, cut
from components.train.models.decoder_step import Matrices, Text, advance
from components.train.models.spoken import silenced
from components.train.synthesis.learner import FREE_NOISE
from components.train.synthesis.settings import SynthesisSettings
from components.train.synthesis.voice import TEXT, Voice

Tensor = Any


class PartedVoice(Voice):
    """What stands before and after the decoder's loop."""

    def __init__(self, model: Any, settings: SynthesisSettings, dataset: Dataset, reduction: int) -> None:
        super().__init__(model, settings, dataset, reduction)
        steps, mels = self.max_steps, dataset.features.mels

        def encode(symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
            memory = model.encode(symbols, lengths, False, None)
            masks = model.decoder.prenet_masks(1, steps, tf.constant(FREE_NOISE), False)
            dropped = {} if masks is None else {"masks": tf.concat(masks, -1)[0]}
            return {"memory": memory, "keys": model.decoder.attention.keys(memory), **dropped}

        def refine(before: Tensor, frames: Tensor) -> Any:
            before = silenced(tf.ensure_shape(before, [None, None, mels]), frames)
            return model.refine(before, frames, False, None)

        self._encode, self._refine = encode, refine

    @tf.function(input_signature=TEXT, autograph=False)  # type: ignore[untyped-decorator]
    def encode(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """See the file's head."""
        made: dict[str, Tensor] = self._encode(symbols, lengths)
        return made

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(
            tf.TensorSpec([None, None, None], tf.float32, name="before"),
            tf.TensorSpec([None], tf.int32, name="frames"),
        ),
        autograph=False,
    )
    def refine(self, before: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """See the file's head."""
        mels, linear = self._refine(before, frames)
        return self._heard(mels, linear, frames)


def converted(model: Any, reduction: int) -> bytes:
    """The file of one decoder step, with weights of 8 bits, each column of a matrix with a scale of its own."""
    module = tf.Module()
    module.weights = [variable.value for variable in model.decoder.weights]
    converter = tf.lite.TFLiteConverter.from_concrete_functions([_step(model.decoder, reduction)], module)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return bytes(converter.convert())


def _step(decoder: Decoder, reduction: int) -> Any:
    core, mels = decoder.core, decoder.mels
    places = np.cumsum(decoder.settings.prenet)[:-1].tolist()
    start = [state.shape[-1] for state in core.start(1)]
    carried = ["context", "previous", "cumulative", *(f"state_{index}" for index in range(len(start)))]
    widths = {"context": decoder.memory_units, **{f"state_{index}": width for index, width in enumerate(start)}}
    given = {
        "own": [None, mels],
        "memory": [None, None, decoder.memory_units],
        "keys": [None, None, decoder.settings.attention.units],
        **{name: [None, widths.get(name)] for name in carried},
    }
    if decoder.prenet_masks(1, 1, FREE_NOISE, False) is not None:
        given["masks"] = [1, sum(decoder.settings.prenet)]
    specs = {name: tf.TensorSpec(shape, tf.float32, name=name) for name, shape in given.items()}
    specs["real"] = tf.TensorSpec([None, None], tf.bool, name="real")

    def step(**inputs: Tensor) -> dict[str, Tensor]:
        masks = cut(inputs["masks"], places) if "masks" in inputs else None
        text = Text(inputs["memory"], inputs["keys"], inputs["real"])
        state = tuple(inputs[name] for name in carried)
        made, after = advance(decoder, Matrices.of(decoder, reduction), text, inputs["own"], masks, state)
        own = made[:, (reduction - 1) * mels : reduction * mels]
        return {"made": made, "own": own, **dict(zip(carried, after, strict=True))}

    return tf.function(step, autograph=False).get_concrete_function(**specs)
