"""Vocoder training: segments of mels and of waveforms; validation by the distance of spectra; the exported model.

Signature `vocode` (and `serving_default`): mels float32 [batch, t, mels] as extract computes them, frames int32
[batch] → waveforms float32 [batch, samples], zero beyond a row's own; samples int32 [batch]. A WaveGlow has `sample`
too, which takes sigma and denoiser, float32 [], in place of those in its settings.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.audio.features import compute_features
from voxline.data.dataset import Dataset
from voxline.families.tts.task import render_comparison
from voxline.families.tts.voice_mels import use_mels_of_voice
from voxline.families.vocoder.networks.waveglow import WaveGlow
from voxline.families.vocoder.onnx import export_onnx_vocoder
from voxline.families.vocoder.settings import VocoderExportForm, VocoderTrainSettings
from voxline.families.vocoder.train_module import LIKELIHOOD, VocoderTrainModule, build_vocoder
from voxline.inference.model_info import AS_PUBLISHED
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import MODEL_JSON
from voxline.inference.vocoder import SAMPLE
from voxline.registry.parents import Parent
from voxline.training import devices
from voxline.training.checkpoints import Arrays
from voxline.training.export import (
    START,
    TrainedModel,
    dataset_of,
    model_info,
    published_weights,
    write_exported,
)
from voxline.training.layers import Tensor
from voxline.training.segments import SegmentBatches, split_segments
from voxline.training.task import Samples, TrainingTask, ValidationOutput, evenly_spaced
from voxline.training.weight_names import weight_names

DISTANCES = ("log_stft", "mel_distance", "spectral_convergence")


class VocoderTask(TrainingTask):
    """Scores a validation by the log-STFT distance plus the mel distance, in dB, of a segment of each dev utterance,
    and a WaveGlow by its likelihood.
    """

    settings: VocoderTrainSettings
    module: VocoderTrainModule
    train: SegmentBatches
    dev: SegmentBatches

    def build_batches(self) -> tuple[SegmentBatches, SegmentBatches]:
        settings = self.settings
        settings.check_features(self.dataset.features)
        shared: dict[str, Any] = {
            "share": devices.replica_share(self.strategy),
            "buckets": self.buckets,
        }
        train = SegmentBatches(
            self.dataset,
            "train",
            settings.segment_frames,
            batch_size=settings.step_size,
            seed=settings.seed,
            shuffled=True,
            corpus_weights=settings.corpus_weights,
            **shared,
        )
        return train, SegmentBatches(
            self.dataset, "dev", settings.segment_frames, batch_size=settings.batch_size, **shared
        )

    def use_auxiliary_model(self, name: str, model: Path, folder: Path) -> None:
        """Trains and validates on the mels of a voice; see `TrainingTask`."""
        for split, batches in (("train", self.train), ("dev", self.dev)):
            use_mels_of_voice(batches, model, self.dataset.features, folder / split)

    def build_module(self) -> VocoderTrainModule:
        return VocoderTrainModule(self.settings, self.dataset, self.strategy)

    @property
    def infeasible_advice(self) -> str:
        return ""  # a vocoder reads no labels

    def validate(self, step: int) -> ValidationOutput:
        # Sums and a count, so that workers with different numbers of rows agree.
        names = (*DISTANCES, *([LIKELIHOOD] if self.settings.model.kind == "waveglow" else []))
        sums = np.zeros(len(names))
        count = 0
        samples = Samples()
        shown = self.settings.validation_samples
        for batch in self.dev.epoch(0):
            rows = self.module.run_eval(batch, max(step - 1, 0))
            sums += np.sum([[float(out[name]) for name in names] for _, out in rows], axis=0)
            count += len(rows)
            if shown and not samples.audio:
                samples = self._samples(batch, dict(rows))

        *totals, number = devices.sum_over_workers(self.strategy, [*sums.tolist(), count]).tolist()
        means = {name: total / number for name, total in zip(names, totals, strict=True)}
        score = means.get(LIKELIHOOD, means["log_stft"] + means["mel_distance"])

        return ValidationOutput((score, means["log_stft"]), means, samples)

    def describe(self, metrics: dict[str, float]) -> str:
        likelihood = f"negative log-likelihood {metrics[LIKELIHOOD]:.3f}, " if LIKELIHOOD in metrics else ""
        distances = f"log-STFT distance {metrics['log_stft']:.2f} dB, mel distance {metrics['mel_distance']:.2f} dB"
        return likelihood + distances

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        export_vocoder(folder, self.settings, self.dataset, weights, training)

    def _samples(self, batch: Any, outputs: dict[int, dict[str, Any]]) -> Samples:
        """Generated mels above the recorded ones, and the audio of both."""
        features = self.dataset.features
        images = {}
        audio = {}
        mels, recorded = split_segments(batch.features, features.mels)
        for row in evenly_spaced(len(batch.ids), self.settings.validation_samples):
            if row not in outputs:  # another worker has it
                continue
            name = batch.ids[row]
            generated = np.asarray(outputs[row]["generated"], np.float32)
            generated_mels = compute_features(generated, features)[:, features.mel_columns]
            images[f"mel/{name}"] = render_comparison(generated_mels, mels[row])
            audio[f"generated/{name}"] = np.clip(generated, -1, 1)
            audio[f"recorded/{name}"] = recorded[row].reshape(-1)

        return Samples({}, images, audio, features.sample_rate)


def export_vocoder(
    folder: Path, settings: VocoderTrainSettings, dataset: Dataset, weights: Arrays, training: dict[str, Any]
) -> None:
    """Writes the exported model, whole or not at all.

    Args:
      weights: as `TrainModule.weights` returned them.
      training: what model.json says about the training.
    """
    # With the trained weights, whose arithmetic was that of `train.precision`.
    model = build_vocoder(settings, dataset, settings.export.precision)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])

    if isinstance(model, WaveGlow):
        model.turn_on_denoiser()

    features = dataset.features
    graph = VocoderGraph(model, features.mels, features.hop_length)
    info = model_info(
        settings.model.kind,
        settings,
        dataset,
        training,
        weight_names(model),
        context_frames=model.context_frames,
    )

    # With an ONNX graph a voice speaks without TensorFlow.
    files = {}
    if settings.export.onnx != "none":
        columns = features.mel_columns
        files[ONNX_FILE] = export_onnx_vocoder(
            model, settings.model, features, dataset.mean[columns], dataset.deviation[columns]
        )

    signatures = {"vocode": graph.vocode, "serving_default": graph.vocode}
    if graph.sample is not None:
        signatures[SAMPLE] = graph.sample
    write_exported(folder, graph, signatures, info, files)


def export_published_vocoder(
    folder: Path, parent: Parent, name: str = "", onnx: str = "none", precision: str = "float32"
) -> None:
    """Writes a public vocoder as it comes.

    Args:
      parent: as `open_public_vocoder` opened it.
      name: of the model.
      onnx: the graph beside the SavedModel: none or float32.
      precision: of the network, as `train.export.precision` has it.

    Raises:
      SettingsError: the network has no graph of this kind.
      WorkError: the weights are damaged, or of another network than the settings say.
    """
    info = parent.info
    values = {"name": name or info.name, "model": info.model_settings, "start": {"model": parent.pinned}}
    settings = VocoderTrainSettings.of(
        {**values, "export": {"onnx": onnx, "precision": precision}}, source=parent.label
    )
    dataset = dataset_of(info, parent.load_folder(), parent.label)
    weights = published_weights(build_vocoder(settings, dataset, "float32"), parent)
    export_vocoder(folder, settings, dataset, weights, {AS_PUBLISHED: True, START: parent.describe()})


def export_vocoder_again(model: Path, form: VocoderExportForm, folder: Path) -> None:
    """Writes an exported vocoder in another form, whole or not at all.

    Args:
      model: its folder.

    Raises:
      SettingsError: the network has no such form.
      WorkError: the model is damaged.
    """
    trained = TrainedModel.read(model)
    values = trained.settings_of(("name", "model", "seed"), form)
    settings = VocoderTrainSettings.of(values, source=f"{model}/{MODEL_JSON}")
    export_vocoder(folder, settings, trained.dataset, trained.weights, trained.training)
    trained.complete(folder, form)


class VocoderGraph(tf.Module):  # type: ignore[misc]
    """The exported form of a network."""

    def __init__(self, model: Any, mels: int, hop: int) -> None:
        super().__init__()
        # Behind a function, so that the SavedModel holds weights and signatures but no Keras objects.
        self._network: Callable[..., Tensor] = lambda *inputs: model(*inputs)
        self._hop = hop
        self.weights = [variable.value for variable in model.weights]
        inputs = (
            tf.TensorSpec([None, None, mels], tf.float32, name="mels"),
            tf.TensorSpec([None], tf.int32, name="frames"),
        )
        self.vocode = tf.function(self._vocode, input_signature=inputs, autograph=False)
        self.sample: Any = None
        if not isinstance(model, WaveGlow):
            return

        def sample(mels: Tensor, frames: Tensor, sigma: Tensor, denoiser: Tensor) -> dict[str, Tensor]:
            waveforms = model.denoise(model.sample(mels, frames, sigma), frames, denoiser)
            return self._audible(waveforms, frames)

        scalars = [tf.TensorSpec([], tf.float32, name=name) for name in ("sigma", "denoiser")]
        self.sample = tf.function(sample, input_signature=(*inputs, *scalars), autograph=False)

    def _vocode(self, mels: Tensor, frames: Tensor) -> dict[str, Tensor]:
        return self._audible(self._network(mels, frames), frames)

    def _audible(self, waveforms: Tensor, frames: Tensor) -> dict[str, Tensor]:
        # [batch, samples]; a row's padding is silent.
        samples = tf.maximum(frames - 1, 0) * self._hop
        audible = tf.sequence_mask(samples, tf.shape(waveforms)[1])
        return {"waveforms": tf.where(audible, waveforms, 0.0), "samples": samples}
