"""VITS training: whole utterances as samples; validation by the loss, and by free synthesis of some of dev's texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.dtw import dtw
from voxline.audio.features import compute_features
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.speakers import name_speakers, speakers_of, with_speakers
from voxline.families.tts.task import LOGGED_SAMPLES, MAX_LENGTH_RATIO, adapt_speakers, render_comparison
from voxline.families.tts.vits.alignment import MOST_UNSAID, align_split
from voxline.families.tts.vits.export import export_trained_vits
from voxline.families.tts.vits.network import MARKS, VitsOutput
from voxline.families.tts.vits.settings import VitsSettings
from voxline.families.tts.vits.train_module import VitsTrainModule
from voxline.families.tts.vits.weights import EMBEDDING, POSTERIOR
from voxline.inference.model_info import ModelInfo
from voxline.progress import print_status
from voxline.training import devices
from voxline.training.batches import Batch
from voxline.training.checkpoints import Arrays
from voxline.training.segments import WaveformBatches
from voxline.training.task import LOSS, Samples, TrainingTask, ValidationOutput, evenly_spaced, shorten_list

TERMS = ("mel", "kl", "duration", LOSS)


class VitsTask(TrainingTask):
    """Scores a validation by what the voice says of some of dev's texts: mel_dtw + hit_limit.

    `mel_dtw` is the mean distance of its mels to the recording's along the DTW path, in the units of the features. The
    loss over dev breaks ties.
    """

    settings: TtsTrainSettings
    module: VitsTrainModule
    train: WaveformBatches
    dev: WaveformBatches
    counts_seconds = True
    marks = MARKS
    decoder_parts = ("durations", "flows", "decoder")
    unused_parts = (POSTERIOR,)
    function_settings = ("between", "ends", "heads", "upsample_rates", "residual_dilations")

    def __init__(self, settings: TtsTrainSettings, dataset: Dataset) -> None:
        self.speakers = speakers_of(dataset, settings)
        if self.speakers:
            print_status(f"train: a voice of {len(self.speakers):,} speakers: {name_speakers(self.speakers)}")
        super().__init__(with_speakers(settings, self.speakers), dataset)

    def build_batches(self) -> tuple[WaveformBatches, WaveformBatches]:
        # A text has no more symbols than its recording has frames: each is said for one at least.
        return self.batches_of_splits(WaveformBatches, needed_frames=self._sizes.count_symbols, speakers=self.speakers)

    def build_module(self) -> VitsTrainModule:
        return VitsTrainModule(self.settings, self.dataset, self.strategy, several_speakers=bool(self.speakers))

    @property
    def _sizes(self) -> VitsSettings:
        sizes = self.settings.model
        if not isinstance(sizes, VitsSettings):
            raise SettingsError(f"train.model.kind is {sizes.kind!r}; vits is trained here")
        return sizes

    def symbol_axis(self, name: str) -> int | None:
        return 0 if name == EMBEDDING else None

    @property
    def head_steps(self) -> int:
        """The steps of the posterior encoder alone: the voice's own rate then warms up, with a fresh optimizer."""
        return self.module.head_steps

    @property
    def resting_steps(self) -> int:
        return self.module.head_steps

    @property
    def infeasible_reason(self) -> str:
        return "have fewer frames than symbols, with the blanks between them"

    @property
    def infeasible_advice(self) -> str:
        return (
            "Check that their texts belong to their recordings, or lower train.model.upsample_rates and "
            "extract.features.hop_seconds"
        )

    def adapt_weight(
        self, name: str, value: npt.NDArray[Any] | None, fresh: npt.NDArray[Any], parent: ModelInfo
    ) -> npt.NDArray[Any] | None:
        return adapt_speakers(name, value, fresh, parent, self.speakers)

    def take_over(self, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        """Takes a public model's posterior encoder; without one that fits, that is learned first."""
        posterior = {
            name.removeprefix(f"{POSTERIOR}/"): value
            for name, value in weights.items()
            if name.startswith(f"{POSTERIOR}/")
        }
        if posterior and self.module.take_posterior(posterior):
            print_status("train: takes the posterior encoder too; the discriminators begin at random")
            return
        steps = self.settings.vits.posterior_steps
        # A posterior encoder that is too new finds wrong paths, from which durations and text encoder learn to mumble.
        self.module.aligned = self.settings.aligns_by_parent and self._parent_says_texts()
        self.module.learn_posterior_first()
        print_status(
            f"train: the posterior encoder and the discriminators begin at random; the first {steps:,} steps train the "
            "posterior encoder alone, on speech of the voice itself (train.vits.posterior_steps)"
        )

    def _parent_says_texts(self) -> bool:
        """Returns whether the parent has the symbols of nearly all texts; prints which it lacks if not."""
        symbols = self.dataset.alphabet.symbols
        new_labels = {label for label, symbol in enumerate(symbols) if symbol in set(self.new_symbols)}
        in_texts = [new_labels.intersection(self.dataset.alphabet.encode(text)) for text in self.train.texts]
        count = sum(map(bool, in_texts))
        if count <= MOST_UNSAID * len(in_texts):
            return True

        # The rows of these symbols are a mean of others, or random: no sound of theirs tells where they are.
        names = [repr(symbols[label]) for label in sorted(set().union(*in_texts))]
        print_status(
            f"train: the parent lacks the symbols {shorten_list(names)}, which {count:,} of {len(in_texts):,} "
            f"utterances of train have (accepted: {MOST_UNSAID:.0%}): its speech of these texts guides nothing, so "
            "recordings are aligned by search (train.vits.alignment)"
        )
        return False

    def encode_frozen_parts(self, folder: Path) -> None:
        """Aligns each recording by the parent's speech of its text, where that is how this voice learns."""
        if not self.module.aligned:
            return
        for split, batches in (("train", self.train), ("dev", self.dev)):
            if batches.utterances:
                batches.symbols = align_split(batches, folder, split, self.module.rehearse, self.dataset.features)

    def validate(self, step: int) -> ValidationOutput:
        # Free synthesis of some texts, and its distance from the recordings.
        batch = self._validation_batch()
        outputs = self.module.speak(batch, round(MAX_LENGTH_RATIO * int(batch.frames.max())))
        spoken_texts = [self._samples_of(output) for output in outputs]
        distances, mels = self._compare(batch, spoken_texts)

        # The loss over all of dev, in sums and a count, so that workers with different numbers of rows agree.
        rows = [values for dev in self.dev.epoch(0) for _, values in self.module.run_eval(dev, self.module.head_steps)]
        sums = [sum(float(values[name]) for values in rows) for name in TERMS]
        cut_off_texts = sum(bool(output.hit_limit[0]) for output in outputs)
        spoken = [sum(distances), float(cut_off_texts), len(distances)]
        totals = devices.sum_over_workers(self.strategy, [*spoken, *sums, len(rows)]).tolist()
        distance, cut_off, texts, *terms, count = totals
        mel_dtw = distance / texts
        hit_limit = cut_off / texts
        of_dev = {name: total / count for name, total in zip(TERMS, terms, strict=True)}
        metrics = {"mel_dtw": mel_dtw, "hit_limit": hit_limit, **of_dev}
        return ValidationOutput((mel_dtw + hit_limit, of_dev[LOSS]), metrics, self._samples(batch, spoken_texts, mels))

    def describe(self, metrics: dict[str, float]) -> str:
        return (
            f"synthesis: mel DTW {metrics['mel_dtw']:.3f}, hit the limit {metrics['hit_limit']:.0%}; loss "
            f"{metrics['loss']:.2f}, of mels {metrics['mel']:.3f}, KL {metrics['kl']:.2f}, of durations "
            f"{metrics['duration']:.3f}"
        )

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        export_trained_vits(folder, self.settings, self.dataset, weights, training, self.speakers)

    def _validation_batch(self) -> Batch:
        """Some utterances of dev, from its shortest to its longest."""
        order = np.concatenate(self.dev.plan(0))
        return self.dev.read(order[evenly_spaced(len(order), self.settings.validation_utterances)])

    def _samples_of(self, output: VitsOutput) -> npt.NDArray[np.float32]:
        """The samples of one text, float32."""
        return np.asarray(output.waveforms[0, : int(output.frames[0]) * self._sizes.hop], np.float32)

    def _compare(
        self, batch: Batch, spoken_texts: Sequence[npt.NDArray[np.float32]]
    ) -> tuple[list[float], list[tuple[Any, Any]]]:
        """The DTW distance of each row, and its mels, synthesized and recorded, [frames, mels] each."""
        features = self.dataset.features
        distances = []
        mels = []
        for row, spoken in enumerate(spoken_texts):
            recorded = batch.features[row, : batch.frames[row], : self._sizes.hop].reshape(-1)
            spoken_mels, recorded_mels = (
                compute_features(samples, features)[:, features.mel_columns] for samples in (spoken, recorded)
            )
            distances.append(dtw(spoken_mels, recorded_mels).distance)
            mels.append((spoken_mels, recorded_mels))
        return distances, mels

    def _samples(
        self, batch: Batch, spoken_texts: Sequence[npt.NDArray[np.float32]], mels: list[tuple[Any, Any]]
    ) -> Samples:
        """Mels above those of the recording, and audio, of the longest utterances of the batch."""
        images = {}
        audio = {}
        lines = ["| utterance | text |", "| --- | --- |"]
        for number, row in enumerate(np.argsort(-batch.frames)[:LOGGED_SAMPLES].tolist()):
            images[f"mel_{number}"] = render_comparison(*mels[row])
            audio[f"speech_{number}"] = np.clip(spoken_texts[row], -1, 1)
            lines.append(f"| {batch.ids[row]} | {batch.texts[row]} |")
        return Samples({"texts": "\n".join(lines)}, images, audio, self.dataset.features.sample_rate)
