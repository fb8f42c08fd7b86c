"""The exported TTS model: symbols in, mels and a waveform out, with Griffin-Lim in the graph.

Signatures:
  synthesize      symbols int32 [batch, n], lengths int32 [batch] → mels float32 [batch, t, mels] (raw), frames int32
                  [batch], alignments float32 [batch, steps, n], waveforms float32 [batch, samples], samples int32
                  [batch], hit_limit bool [batch]: the decoder was cut off after `max_steps`.
  speak           the same without waveforms and samples: the speech of a vocoder needs no Griffin-Lim.
  teacher_forced  symbols and lengths as above, features float32 [batch, t, bins] (raw), frames int32 [batch] → mels,
                  alignments, mel_l1 float32 [batch]: mean absolute error over real frames and mels, in raw units.

Of several speakers they take speakers int32 [batch] too, rows of the speaker table. `serving_default` is `synthesize`
by symbols and lengths alone: the settings' speaker speaks.

With `train.export.onnx` there is an ONNX graph of `speak` too: `onnx`.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.families.tts import griffin_lim, losses
from voxline.families.tts.onnx import export_onnx_voice
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.train_module import INFERENCE_NOISE, build_tts_model, denormalize_output
from voxline.families.tts.vits.settings import SpeakerTableSettings
from voxline.inference.model_info import AS_PUBLISHED
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.synthesizer import SPEAK, SPEAKERS
from voxline.registry.parents import Parent
from voxline.training.checkpoints import Arrays
from voxline.training.export import START, dataset_of, model_info, published_weights, write_exported
from voxline.training.layers import Tensor
from voxline.training.weight_names import weight_names

TEXT_SIGNATURE = (
    tf.TensorSpec([None, None], tf.int32, name="symbols"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)
SPEAKER_SPEC = tf.TensorSpec([None], tf.int32, name=SPEAKERS)
"""Input of a voice of several speakers."""

SHARPENER = "sharpener_weights"
"""Attribute of `TtsGraph` with the weights of a sharpener."""


class TtsGraph(tf.Module):  # type: ignore[misc]
    """Network and Griffin-Lim as one graph.

    Args:
      reduction: frames per decoder step, as the weights were trained.
      sharpener: a `Sharpener` between the post-net and the vocoder; None: none.
      several_speakers: whether who speaks is an input.
    """

    def __init__(
        self,
        model: Any,
        settings: TtsTrainSettings,
        dataset: Dataset,
        reduction: int,
        sharpener: Any = None,
        *,
        several_speakers: bool = False,
    ) -> None:
        super().__init__()
        self._griffin_lim = settings.griffin_lim
        self._features = dataset.features
        self._reduction = reduction
        self.max_steps = max_decoder_steps(settings, dataset, reduction)
        # Behind functions, so that the SavedModel holds weights and signatures but no Keras objects.
        self._network: Callable[..., Any] = lambda *inputs, **named: model(*inputs, **named)
        self._normalize: Callable[[Tensor], Tensor] = lambda features: model.normalize(features)
        self._denormalize: Callable[..., tuple[Tensor, Tensor | None]] = lambda mels, linear: denormalize_output(
            model, mels, linear
        )
        self.weights = [variable.value for variable in model.weights]
        self._sharpen: Callable[[Tensor, Tensor], Tensor] = lambda mels, frames: mels
        if sharpener is not None:
            self._sharpen = lambda mels, frames: sharpener(mels, frames)
            self.sharpener_weights = [variable.value for variable in sharpener.weights]

        # Networks of one speaker take no argument of the speakers.
        who_speaks = (SPEAKER_SPEC,) if several_speakers else ()
        text = (*TEXT_SIGNATURE, *who_speaks)
        recording = (
            *TEXT_SIGNATURE,
            tf.TensorSpec([None, None, None], tf.float32, name="features"),
            tf.TensorSpec([None], tf.int32, name="frames"),
            *who_speaks,
        )
        self._speaker = settings.model.speaker if isinstance(settings.model, SpeakerTableSettings) else 0

        # A function of its own is built, saved and loaded once for both signatures.
        @tf.function(input_signature=text, autograph=False)  # type: ignore[untyped-decorator]
        def decode(symbols: Tensor, lengths: Tensor, speakers: Tensor | None = None) -> Any:
            noise = tf.constant(INFERENCE_NOISE)
            output = model.synthesize(
                symbols, lengths, max_steps=self.max_steps, noise=noise, reduction=reduction, **_named(speakers)
            )
            mels, linear = self._finish(output.mels, output.linear, tf.cast(output.frames, tf.int32))
            return output._replace(mels=mels, linear=linear)

        self._decode: Callable[..., Any] = lambda *inputs, **named: decode(*inputs, **named)
        self.teacher_forced = tf.function(self._teacher_forced, input_signature=recording, autograph=False)
        self.synthesize = tf.function(self._synthesize, input_signature=text, autograph=False)
        self.speak = tf.function(self._speak, input_signature=text, autograph=False)
        self.serving_default = self.synthesize
        if several_speakers:
            self.serving_default = tf.function(self._synthesize_own, input_signature=TEXT_SIGNATURE, autograph=False)

    def _teacher_forced(
        self, symbols: Tensor, lengths: Tensor, features: Tensor, frames: Tensor, speakers: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Feeds the decoder recorded frames."""

        # Padding of the raw features may be anything: it is zero before and after the normalization.
        features = tf.ensure_shape(features, [None, None, self._features.bins])
        longest = tf.shape(features)[1]
        noise = tf.constant(INFERENCE_NOISE)
        target = self._mask(self._normalize(self._mask(features, frames)), frames)

        output = self._network(
            symbols, lengths, target, frames, noise=noise, reduction=self._reduction, **_named(speakers)
        )

        # A decoder of several frames a step makes some more than were recorded.
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

    def _synthesize(self, symbols: Tensor, lengths: Tensor, speakers: Tensor | None = None) -> dict[str, Tensor]:
        """Runs the decoder on its own frames."""
        output = self._decode(symbols, lengths, **_named(speakers))
        audio = self._vocode(output.mels, output.linear, tf.cast(output.frames, tf.int32))
        return {**audio, "alignments": tf.cast(output.alignment, tf.float32), "hit_limit": output.hit_limit}

    def _synthesize_own(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Runs `synthesize` as the settings' speaker."""
        return self._synthesize(symbols, lengths, tf.fill(tf.shape(lengths), self._speaker))

    def _speak(self, symbols: Tensor, lengths: Tensor, speakers: Tensor | None = None) -> dict[str, Tensor]:
        """Runs `synthesize` without waveforms."""
        output = self._decode(symbols, lengths, **_named(speakers))
        features = self._mels(output.mels, tf.cast(output.frames, tf.int32))
        return {**features, "alignments": tf.cast(output.alignment, tf.float32), "hit_limit": output.hit_limit}


def _named(speakers: Tensor | None) -> dict[str, Tensor]:
    """The argument of a network of several speakers; nothing for others, which do not take it."""
    return {} if speakers is None else {SPEAKERS: speakers}


def max_decoder_steps(settings: TtsTrainSettings, dataset: Dataset, reduction: int) -> int:
    """The number of decoder steps for `max_seconds` of speech."""
    frames = dataset.features.count_frames(round(settings.max_seconds * dataset.features.sample_rate))
    return math.ceil(frames / reduction)


def export_published_tacotron2(
    folder: Path, parent: Parent, name: str = "", onnx: str = "none", precision: str = "float32"
) -> None:
    """Writes a public Tacotron 2 as it comes, which speaks by Griffin-Lim.

    Args:
      parent: as `open_tacotron2` opened it.
      name: of the model.
      onnx: the graph beside the SavedModel, as `train.export.onnx` has it.
      precision: of the network, as `train.export.precision` has it.

    Raises:
      SettingsError: the network has no graph of this kind.
      WorkError: the weights are damaged, or of another network than the settings say.
    """
    values = {"name": name or parent.info.name, "model": parent.info.model_settings, "start": {"model": parent.pinned}}
    settings = TtsTrainSettings.of({**values, "export": {"onnx": onnx, "precision": precision}}, source=parent.label)
    dataset = dataset_of(parent.info, parent.load_folder(), parent.label)
    weights = published_weights(build_tts_model(settings, dataset, portable=True), parent)
    training = {AS_PUBLISHED: True, "best_step": 0, START: parent.describe()}
    export_tts(folder, settings, dataset, weights, training)


def export_tts(
    folder: Path,
    settings: TtsTrainSettings,
    dataset: Dataset,
    weights: Arrays,
    training: dict[str, Any],
    sharpener: Any = None,
    speakers: Sequence[str] = (),
) -> None:
    """Writes the exported model, whole or not at all.

    Args:
      weights: as `TrainModule.weights` returned them.
      training: what model.json says about the training; its `best_step` decides the reduction factor.
      sharpener: as `TtsGraph` takes it.
      speakers: names of the rows of its speaker table; (): one speaker.
    """

    # A model without cuDNN kernels, in float32, with the trained weights.
    model = build_tts_model(settings, dataset, portable=True)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])

    reduction = settings.trained_reduction(int(training["best_step"]))
    several = bool(speakers)
    module = TtsGraph(model, settings, dataset, reduction, sharpener, several_speakers=several)

    # Names by which serving calls the graphs.
    signatures = {
        "synthesize": module.synthesize,
        "serving_default": module.serving_default,
        SPEAK: module.speak,
        "teacher_forced": module.teacher_forced,
    }
    files = {}
    if settings.export.onnx != "none":
        files[ONNX_FILE] = export_onnx_voice(
            model,
            max_steps=module.max_steps,
            reduction=reduction,
            noise=INFERENCE_NOISE,
            precision=settings.export.onnx,
            sharpener=sharpener,
            several_speakers=several,
        )

    # What an application needs besides the graph.
    info = model_info(
        settings.model.kind,
        settings,
        dataset,
        training,
        weight_names(model),
        frontend=dataset.frontend,
        max_steps=module.max_steps,
        reduction=reduction,
        **({"speakers": list(speakers)} if several else {}),
    )
    write_exported(folder, module, signatures, info, files)
