"""The exported TTS model: symbols in, mels and a waveform out, with Griffin-Lim in the graph.

Signatures:
  synthesize      symbols int32 [batch, n], lengths int32 [batch] → mels float32 [batch, t, mels] (raw), frames int32
                  [batch], alignments float32 [batch, steps, n], waveforms float32 [batch, samples], samples int32
                  [batch], hit_limit bool [batch]: the decoder was cut off after `max_steps`.
  speak           the same without waveforms and samples: the speech of a vocoder needs no Griffin-Lim.
  teacher_forced  symbols and lengths as above, features float32 [batch, t, bins] (raw), frames int32 [batch] → mels,
                  alignments, mel_l1 float32 [batch]: mean absolute error over real frames and mels, in raw units.

With an int8 decoder (`train.export.decoder: int8`) one decoder step is a TensorFlow Lite file next to the SavedModel,
and `encode`, `refine` and `refine_mels` replace `synthesize` and `speak`; the loop is in
`voxline.inference.int8_decoder`. With `train.export.onnx` there is an ONNX graph of `speak` too: `onnx_voice`.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.components.train.checkpoints import Arrays
from voxline.components.train.export import model_metadata, write_exported
from voxline.components.train.models.decoder import Decoder, DecoderWeights, EncodedText, decode_step, split_columns
from voxline.components.train.models.layers import mask_padding
from voxline.components.train.tts import griffin_lim, losses
from voxline.components.train.tts.onnx_voice import export_onnx_voice
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.components.train.tts.train_module import INFERENCE_NOISE, build_tts_model, denormalize_output
from voxline.components.train.weight_names import weight_names
from voxline.data.dataset import Dataset
from voxline.inference.int8_decoder import DECODER_FILE
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.synthesizer import REFINE_MELS, SPEAK

Tensor = Any
TEXT_SIGNATURE = (
    tf.TensorSpec([None, None], tf.int32, name="symbols"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)
BEFORE_SIGNATURE = (
    tf.TensorSpec([None, None, None], tf.float32, name="before"),
    tf.TensorSpec([None], tf.int32, name="frames"),
)


class TtsGraph(tf.Module):  # type: ignore[misc]
    """What both forms of the export share.

    Args:
      reduction: frames per decoder step, as the weights were trained.
      sharpener: a `Sharpener` between the post-net and the vocoder; None: none.
    """

    def __init__(
        self, model: Any, settings: TtsTrainSettings, dataset: Dataset, reduction: int, sharpener: Any = None
    ) -> None:
        super().__init__()
        self._griffin_lim, self._features, self._reduction = settings.griffin_lim, dataset.features, reduction
        self.max_steps = max_decoder_steps(settings, dataset, reduction)
        # Behind functions, so that the SavedModel holds weights and signatures but no Keras objects.
        self._network: Callable[..., Any] = lambda *inputs, **named: model(*inputs, **named)
        self._normalize: Callable[[Tensor], Tensor] = lambda features: model.normalize(features)
        self._denormalize: Callable[..., tuple[Tensor, Tensor]] = lambda mels, linear: denormalize_output(
            model, mels, linear
        )
        self.weights = [variable.value for variable in model.weights]
        self._sharpen: Callable[[Tensor, Tensor], Tensor] = lambda mels, frames: mels
        if sharpener is not None:
            self._sharpen = lambda mels, frames: sharpener(mels, frames)
            self.sharpener_weights = [variable.value for variable in sharpener.weights]

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(
            *TEXT_SIGNATURE,
            tf.TensorSpec([None, None, None], tf.float32, name="features"),
            tf.TensorSpec([None], tf.int32, name="frames"),
        ),
        autograph=False,
    )
    def teacher_forced(self, symbols: Tensor, lengths: Tensor, features: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """Feeds the decoder recorded frames."""
        features = tf.ensure_shape(features, [None, None, self._features.bins])
        longest, noise = tf.shape(features)[1], tf.constant(INFERENCE_NOISE)
        target = self._mask(self._normalize(self._mask(features, frames)), frames)
        output = self._network(symbols, lengths, target, frames, noise=noise, reduction=self._reduction)
        mels = self._mask(self._finish(output.mels, output.linear, frames)[0][:, :longest], frames)
        return {
            "mels": mels,
            "alignments": tf.cast(output.alignment, tf.float32),
            "mel_l1": losses.masked_distance(mels, features[..., : self._features.mels], frames),
        }

    def _mask(self, values: Tensor, frames: Tensor) -> Tensor:
        """float32, zero beyond a row's frames."""
        real = tf.expand_dims(tf.sequence_mask(frames, tf.shape(values)[1]), -1)
        return tf.where(real, tf.cast(values, tf.float32), 0.0)

    def _finish(self, mels: Tensor, linear: Tensor | None, frames: Tensor) -> tuple[Tensor, Tensor | None]:
        """Raw mels and linear spectrum of a model's output."""
        return self._denormalize(self._sharpen(mels, frames), linear)

    def _vocode(self, mels: Tensor, linear: Tensor | None, frames: Tensor) -> dict[str, Tensor]:
        """Masked mels and waveforms, of raw ones."""
        longest = tf.reduce_max(frames)
        waveforms, samples = griffin_lim.reconstruct_waveforms(
            (mels if linear is None else linear)[:, :longest],
            frames,
            self._features,
            self._griffin_lim.iterations,
            self._griffin_lim.momentum,
            self._griffin_lim.power,
        )
        return {**self._mels(mels, frames), "waveforms": waveforms, "samples": samples}

    def _mels(self, mels: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """Masked mels, of raw ones."""
        return {"mels": self._mask(mels[:, : tf.reduce_max(frames)], frames), "frames": frames}


class FullTtsGraph(TtsGraph):
    """Network and Griffin-Lim as one graph."""

    def __init__(
        self, model: Any, settings: TtsTrainSettings, dataset: Dataset, reduction: int, sharpener: Any = None
    ) -> None:
        super().__init__(model, settings, dataset, reduction, sharpener)

        # A function of its own is built, saved and loaded once for both signatures.
        @tf.function(input_signature=TEXT_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
        def decode(symbols: Tensor, lengths: Tensor) -> Any:
            noise = tf.constant(INFERENCE_NOISE)
            output = model.synthesize(symbols, lengths, max_steps=self.max_steps, noise=noise, reduction=reduction)
            mels, linear = self._finish(output.mels, output.linear, tf.cast(output.frames, tf.int32))
            return output._replace(mels=mels, linear=linear)

        self._decode: Callable[[Tensor, Tensor], Any] = lambda symbols, lengths: decode(symbols, lengths)

    @tf.function(input_signature=TEXT_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def synthesize(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Runs the decoder on its own frames."""
        output = self._decode(symbols, lengths)
        audio = self._vocode(output.mels, output.linear, tf.cast(output.frames, tf.int32))
        return {**audio, "alignments": tf.cast(output.alignment, tf.float32), "hit_limit": output.hit_limit}

    @tf.function(input_signature=TEXT_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def speak(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """As `synthesize`, without waveforms."""
        output = self._decode(symbols, lengths)
        made = self._mels(output.mels, tf.cast(output.frames, tf.int32))
        return {**made, "alignments": tf.cast(output.alignment, tf.float32), "hit_limit": output.hit_limit}


def max_decoder_steps(settings: TtsTrainSettings, dataset: Dataset, reduction: int) -> int:
    """The number of decoder steps for `max_seconds` of speech."""
    frames = dataset.features.count_frames(round(settings.max_seconds * dataset.features.sample_rate))
    return math.ceil(frames / reduction)


class SplitTtsGraph(TtsGraph):
    """What comes before and after the loop of an int8 decoder."""

    def __init__(
        self, model: Any, settings: TtsTrainSettings, dataset: Dataset, reduction: int, sharpener: Any = None
    ) -> None:
        super().__init__(model, settings, dataset, reduction, sharpener)
        steps, mels = self.max_steps, dataset.features.mels

        def encode(symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
            memory = model.encode(symbols, lengths, False, None)
            masks = model.decoder.prenet_masks(1, steps, tf.constant(INFERENCE_NOISE), False)
            dropped = {} if masks is None else {"masks": tf.concat(masks, -1)[0]}
            return {"memory": memory, "keys": model.decoder.attention.keys(memory), **dropped}

        # As `decode` of the other form.
        @tf.function(input_signature=BEFORE_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
        def refine(before: Tensor, frames: Tensor) -> Any:
            before = mask_padding(tf.ensure_shape(before, [None, None, mels]), frames)
            refined, linear = model.refine(before, frames, False, None)
            return self._finish(refined, linear, frames)

        self._encode = encode
        self._refine: Callable[[Tensor, Tensor], Any] = lambda before, frames: refine(before, frames)

    @tf.function(input_signature=TEXT_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def encode(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """memory and keys float32 [batch, n, units]; masks float32 [steps, units], if the pre-net drops."""
        encoded: dict[str, Tensor] = self._encode(symbols, lengths)
        return encoded

    @tf.function(input_signature=BEFORE_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def refine(self, before: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """The outputs of `synthesize` but for alignments and hit_limit, from the decoder's normalized frames."""
        mels, linear = self._refine(before, frames)
        return self._vocode(mels, linear, frames)

    @tf.function(input_signature=BEFORE_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def refine_mels(self, before: Tensor, frames: Tensor) -> dict[str, Tensor]:
        """As `refine`, without waveforms."""
        return self._mels(self._refine(before, frames)[0], frames)


def convert_decoder_step(model: Any, reduction: int) -> bytes:
    """One decoder step as TensorFlow Lite, with int8 weights and one scale per column of a matrix."""
    module = tf.Module()
    module.weights = [variable.value for variable in model.decoder.weights]
    converter = tf.lite.TFLiteConverter.from_concrete_functions([_decoder_step(model.decoder, reduction)], module)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return bytes(converter.convert())


def _decoder_step(decoder: Decoder, reduction: int) -> Any:
    core, mels = decoder.core, decoder.mels
    splits = np.cumsum(decoder.settings.prenet)[:-1].tolist()
    start = [state.shape[-1] for state in core.start(1)]
    carried = ["context", "previous", "cumulative", *(f"state_{index}" for index in range(len(start)))]
    widths = {"context": decoder.memory_units, **{f"state_{index}": width for index, width in enumerate(start)}}
    given = {
        "own": [None, mels],
        "memory": [None, None, decoder.memory_units],
        "keys": [None, None, decoder.settings.attention.units],
        **{name: [None, widths.get(name)] for name in carried},
    }
    if decoder.prenet_masks(1, 1, INFERENCE_NOISE, False) is not None:
        given["masks"] = [1, sum(decoder.settings.prenet)]
    specs = {name: tf.TensorSpec(shape, tf.float32, name=name) for name, shape in given.items()}
    specs["real"] = tf.TensorSpec([None, None], tf.bool, name="real")

    def run_step(**inputs: Tensor) -> dict[str, Tensor]:
        masks = split_columns(inputs["masks"], splits) if "masks" in inputs else None
        text = EncodedText(inputs["memory"], inputs["keys"], inputs["real"])
        state = tuple(inputs[name] for name in carried)
        made, after = decode_step(decoder, DecoderWeights.of(decoder, reduction), text, inputs["own"], masks, state)
        own = made[:, (reduction - 1) * mels : reduction * mels]
        return {"made": made, "own": own, **dict(zip(carried, after, strict=True))}

    return tf.function(run_step, autograph=False).get_concrete_function(**specs)


def export_tts(
    folder: Path,
    settings: TtsTrainSettings,
    dataset: Dataset,
    weights: Arrays,
    training: dict[str, Any],
    sharpener: Any = None,
) -> None:
    """Writes the exported model, whole or not at all.

    Args:
      weights: as `TrainModule.weights` returned them.
      training: what model.json says about the training; its `best_step` decides the reduction factor.
      sharpener: as `TtsGraph` takes it.
    """
    model = build_tts_model(settings, dataset, portable=True)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])
    reduction, decoder = settings.trained_reduction(int(training["best_step"])), settings.export.decoder
    module: TtsGraph
    if decoder == "float32":
        module = full = FullTtsGraph(model, settings, dataset, reduction, sharpener)
        signatures, files = {"synthesize": full.synthesize, "serving_default": full.synthesize}, {}
        signatures[SPEAK] = full.speak
        if settings.export.onnx != "none":
            files[ONNX_FILE] = export_onnx_voice(
                model,
                max_steps=full.max_steps,
                reduction=reduction,
                noise=INFERENCE_NOISE,
                precision=settings.export.onnx,
                sharpener=sharpener,
            )
    else:
        module = split = SplitTtsGraph(model, settings, dataset, reduction, sharpener)
        signatures = {"encode": split.encode, "refine": split.refine, REFINE_MELS: split.refine_mels}
        files = {DECODER_FILE: convert_decoder_step(model, reduction)}
    signatures["teacher_forced"] = module.teacher_forced
    metadata = model_metadata(settings.model.kind, settings, dataset, training, weight_names(model))
    metadata |= {
        "frontend": dataset.frontend,
        "max_steps": module.max_steps,
        "reduction": reduction,
        "decoder": decoder,
    }
    write_exported(folder, module, signatures, metadata, files)
