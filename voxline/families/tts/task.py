"""TTS training: mels, stop token and attention; validation by free synthesis of some of dev's texts."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from voxline.audio.dtw import dtw
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.griffin_lim import features_to_waveform
from voxline.audio.speaker_encoder import SpeakerEncoder
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.tts.export import export_tts
from voxline.families.tts.networks.tts_network import TtsOutput
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.speaker_rows import hear_speakers
from voxline.families.tts.speakers import name_speakers, speakers_of, with_speakers
from voxline.families.tts.train_module import TtsTrainModule
from voxline.inference.model_info import SPEAKER_ENCODER, ModelInfo
from voxline.inference.synthesizer import SPEAKERS
from voxline.metrics.attention import compute_attention_metrics
from voxline.progress import print_status
from voxline.store.localize import localize
from voxline.training import devices
from voxline.training.batches import Batch, Batches
from voxline.training.checkpoints import Arrays
from voxline.training.task import LOSS, Samples, TrainingTask, ValidationOutput, evenly_spaced
from voxline.training.warm_start import MARK

Values = npt.NDArray[np.floating]
Image = npt.NDArray[np.uint8]

LOGGED_SAMPLES = 2
"""Utterances that each validation draws and plays."""

SPEAKER_LAYER = "speaker"
"""Name of each layer that reads a row of the speaker table."""

MAX_LENGTH_RATIO = 1.5
"""Validation cuts a synthesis at this many times the longest recording of its batch."""


@dataclasses.dataclass(frozen=True)
class SynthesisScores:
    """The measures of one synthesized utterance.

    Attributes:
      mel_dtw: mean distance to the recording along the DTW path, in standard deviations of each mel bin.
      diagonality, coverage: of the attention, see `voxline.metrics.attention`.
      hit_limit: 1 if the decoder did not stop by itself, else 0.
    """

    mel_dtw: float
    diagonality: float
    coverage: float
    hit_limit: float


class TtsTask(TrainingTask):
    """Scores a validation by what the model synthesizes from some of dev's texts, without recorded frames:

      mel_dtw + (1 - attention_diagonality) + hit_limit

    All three are small for a model that works on its own; a model that works under teacher forcing alone fails in at
    least one. The loss under teacher forcing breaks ties.
    """

    settings: TtsTrainSettings
    module: TtsTrainModule
    counts_seconds = True
    dev: Batches
    decoder_parts = ("decoder", "postnet", "spectrum")

    def __init__(self, settings: TtsTrainSettings, dataset: Dataset) -> None:
        self.speakers = speakers_of(dataset, settings)
        if self.speakers:
            print_status(f"train: a voice of {len(self.speakers):,} speakers: {name_speakers(self.speakers)}")
        settings = with_speakers(settings, self.speakers)
        self._encoder: SpeakerEncoder | None = None
        self._speaker_rows: npt.NDArray[np.float32] | None = None
        if settings.fastspeech.speaker_encoder:
            self._encoder = SpeakerEncoder(localize(settings.fastspeech.speaker_encoder))
            self._speaker_rows = hear_speakers(self._encoder, dataset, self.speakers)
        super().__init__(settings, dataset)

    def build_batches(self) -> tuple[Batches, Batches]:
        # A stride of 1 leaves out texts with more symbols than frames. Nobody speaks that fast: such a text belongs to
        # another recording, and a long one takes all memory. The auxiliary CTC could not align it either.
        return self.batches_of_splits(Batches, time_stride=1, speakers=self.speakers)

    def build_module(self) -> TtsTrainModule:
        return TtsTrainModule(
            self.settings,
            self.dataset,
            self.strategy,
            several_speakers=bool(self.speakers),
            speaker_rows=self._speaker_rows,
        )

    def symbol_axis(self, name: str) -> int | None:
        return 0 if name.startswith("embedding/") else None

    def adapt_weight(
        self, name: str, value: npt.NDArray[Any] | None, fresh: npt.NDArray[Any], parent: ModelInfo
    ) -> npt.NDArray[Any] | None:
        if self._encoder is None:
            return adapt_speakers(name, value, fresh, parent, self.speakers)

        # Layers read what one encoder hears; to rows of another kind they mean nothing.
        heard_by = parent.provenance.trained.get(SPEAKER_ENCODER, {}).get("digest")
        if parent.model_settings.get("speakers") and heard_by != self._encoder.digest:
            raise SettingsError(
                "train.start: the parent's rows of speakers are not heard by train.fastspeech.speaker_encoder; start "
                "from a voice of this encoder, from one of a single speaker, or leave the encoder out"
            )
        return fresh if name == SPEAKERS else adapt_speakers(name, value, fresh, parent, self.speakers)

    @property
    def infeasible_advice(self) -> str:
        return "Check that their texts belong to their recordings, or lower extract.features.hop_seconds"

    def validate(self, step: int) -> ValidationOutput:
        """Synthesizes some of dev, and computes the loss under teacher forcing over all of it."""

        # Free synthesis of some texts, and their scores.
        batch = self._validation_batch()
        longest = round(MAX_LENGTH_RATIO * int(batch.frames.max()))
        output = self.module.synthesize(batch, step, longest)
        reduction = self.settings.trained_reduction(step)
        scores = self._score(batch, output, reduction)

        # Teacher forcing over all of dev, with the graph of the last step.
        last = max(step - 1, 0)
        losses = [float(out["loss"]) for dev in self.dev.epoch(0) for _, out in self.module.run_eval(dev, last)]
        # Every worker synthesizes all texts; averaging over workers gives all of them the same numbers.
        sums = [sum(getattr(scored, field.name) for scored in scores) for field in dataclasses.fields(SynthesisScores)]
        numbers = [*sums, len(scores), sum(losses), len(losses)]
        *totals, rows, loss, count = devices.sum_over_workers(self.strategy, numbers).tolist()

        # mel_dtw is in standard deviations, so that the three can be added.
        mean = SynthesisScores(*(total / rows for total in totals))
        score = mean.mel_dtw + (1 - mean.diagonality) + mean.hit_limit
        metrics = {
            "score": score,
            "mel_dtw": mean.mel_dtw,
            "attention_diagonality": mean.diagonality,
            "attention_coverage": mean.coverage,
            "hit_limit": mean.hit_limit,
            LOSS: loss / count,
        }

        return ValidationOutput((score, loss / count), metrics, self._samples(batch, output, reduction))

    def describe(self, metrics: dict[str, float]) -> str:
        return (
            f"synthesis: mel DTW {metrics['mel_dtw']:.3f}, diagonality {metrics['attention_diagonality']:.2f}, "
            f"hit the limit {metrics['hit_limit']:.0%}; loss under teacher forcing {metrics['loss']:.3f}"
        )

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        if self._encoder is not None:
            heard_by = {"digest": self._encoder.digest, "speakers": len(self.speakers)}
            training = {**training, SPEAKER_ENCODER: heard_by}
        export_tts(folder, self.settings, self.dataset, weights, training, speakers=self.speakers)

    def _validation_batch(self) -> Batch:
        """Some utterances of dev, from its shortest to its longest."""

        # dev is sorted by length, so even spacing takes short and long texts.
        order = np.concatenate(self.dev.plan(0))
        return self.dev.read(order[evenly_spaced(len(order), self.settings.validation_utterances)])

    def _score(self, batch: Batch, output: TtsOutput, reduction: int) -> list[SynthesisScores]:
        mels = self.dataset.features.mels

        # [rows, frames, mels] in normalized space.
        reference = np.asarray(self.module.model.normalize(batch.features))[..., :mels]
        scores = []
        for row in range(len(batch.ids)):
            # A synthesis without a frame counts as one frame, which is far from any recording.
            frames = max(int(output.frames[row]), 1)
            steps = -(-frames // reduction)
            alignment = np.asarray(output.alignment[row, :steps, : batch.counts[row]], np.float64)
            attention = compute_attention_metrics(alignment)
            distance = dtw(output.mels[row, :frames], reference[row, : batch.frames[row]]).distance
            scores.append(
                SynthesisScores(distance, attention.diagonality, attention.coverage, float(output.hit_limit[row]))
            )

        return scores

    def _samples(self, batch: Batch, output: TtsOutput, reduction: int) -> Samples:
        """Mels above those of the recording, alignments, and audio of the longest utterances of the batch."""

        # The longest utterances show most of what goes wrong.
        features = self.dataset.features
        mels, linear = self.module.denormalize(output)
        rows = np.argsort(-batch.frames)[:LOGGED_SAMPLES].tolist()
        images = {}
        audio = {}
        lines = ["| utterance | text |", "| --- | --- |"]
        for number, row in enumerate(rows):
            frames = max(int(output.frames[row]), 1)
            recorded = batch.features[row, : batch.frames[row]]
            synthesized = np.asarray(mels[row, :frames], np.float32)
            images[f"mel_{number}"] = render_comparison(synthesized, recorded[:, : features.mels])
            attention = output.alignment[row, : -(-frames // reduction), : batch.counts[row]]
            images[f"alignment_{number}"] = render_heatmap(attention, lowest=0.0, highest=1.0)
            spectrum = synthesized if linear is None else np.asarray(linear[row, :frames], np.float32)
            audio[f"speech_{number}"] = render_audio(spectrum, features, self.settings.griffin_lim.power)
            lines.append(f"| {batch.ids[row]} | {batch.texts[row]} |")

        return Samples({"texts": "\n".join(lines)}, images, audio, features.sample_rate)


def adapt_speakers(
    name: str,
    value: npt.NDArray[Any] | None,
    fresh: npt.NDArray[Any],
    parent: ModelInfo,
    speakers: Sequence[str],
) -> npt.NDArray[Any] | None:
    """A weight of a parent for a voice of other speakers, as `TrainingTask.adapt_weight` gives it; rows go by name.

    Args:
      speakers: of the new voice's table; (): it has none that the corpus names.

    Raises:
      SettingsError: the parent's whole table would be kept, with rows of people who were enrolled: their consent is the
        parent's.
    """
    if name == SPEAKERS and value is not None and (added := parent.added_speakers):
        if not speakers:
            raise SettingsError(
                f"train.start: the parent's table has rows of people who agreed to it ({name_speakers(added)}), and a "
                "voice that keeps the whole table, by train.model.speakers, does not have their consent; start from "
                "the version before they were enrolled, or train on recordings of named speakers"
            )
        # Nor does a new speaker begin as a mean of theirs.
        value = value[: len(value) - len(added)]
        parent = msgspec.structs.replace(parent, speakers=parent.speakers[: len(value)])

    # The parent's speakers keep their rows, and a new one begins as the mean of all of them.
    if name == SPEAKERS and value is not None and speakers and value.shape[1:] == fresh.shape[1:]:
        names = parent.speakers or [f"{MARK}{row}" for row in range(len(value))]
        rows = dict(zip(names, value, strict=True))
        return np.stack([rows.get(speaker, value.mean(axis=0)) for speaker in speakers])

    # A voice without a table begins as it is for every speaker: nothing is added for one yet.
    if value is None and not parent.model_settings.get("speakers") and speakers:
        if name == SPEAKERS:
            return fresh
        if f"/{SPEAKER_LAYER}/" in f"/{name}":
            return np.zeros_like(fresh)
    return value


COLOR_MAP = np.array([[0, 0, 4], [80, 18, 123], [182, 54, 121], [251, 136, 97], [252, 253, 191]], np.float64)
"""Colors from low to high, evenly spaced; dark to light, so that it also works in gray."""
PIXELS_PER_VALUE = 3
GRIFFIN_LIM_ITERATIONS = 20
"""Few, but enough to hear faults."""


def render_heatmap(values: Values, lowest: float | None = None, highest: float | None = None) -> Image:
    """Draws time from left to right, and bins or symbols from bottom to top.

    Args:
      values: [time, bins].
      lowest, highest: the values of the first and last color; None: the extremes of `values`.

    >>> render_heatmap(np.array([[0.0, 1.0]])).shape
    (6, 3, 3)
    """

    # Position of each value among the colors, then the color between two of them.
    low = float(values.min()) if lowest is None else lowest
    high = float(values.max()) if highest is None else highest
    share = np.clip((values.T[::-1] - low) / max(high - low, 1e-9), 0, 1) * (len(COLOR_MAP) - 1)
    left = np.minimum(share.astype(int), len(COLOR_MAP) - 2)
    weight = (share - left)[..., None]
    image = (COLOR_MAP[left] * (1 - weight) + COLOR_MAP[left + 1] * weight).astype(np.uint8)
    enlarged: Image = image.repeat(PIXELS_PER_VALUE, axis=0).repeat(PIXELS_PER_VALUE, axis=1)

    return enlarged


def render_comparison(synthesized: Values, recorded: Values) -> Image:
    """Draws the synthesized mels above the recorded ones, both in the colors of the latter, with a line between."""

    # One scale for both, so that they can be compared.
    low = float(recorded.min())
    high = float(recorded.max())
    images = [render_heatmap(values, low, high) for values in (synthesized, recorded)]
    width = max(image.shape[1] for image in images)
    padded = [np.pad(image, ((0, 0), (0, width - image.shape[1]), (0, 0))) for image in images]
    return np.concatenate([padded[0], np.full((PIXELS_PER_VALUE, width, 3), 255, np.uint8), padded[1]])


def render_audio(spectrum: Values, features: FeatureSettings, power: float = 1.0) -> npt.NDArray[np.float32]:
    """The waveform of raw features, float32 [samples], within [-1, 1]."""
    samples = features_to_waveform(
        np.asarray(spectrum, np.float32), features, iterations=GRIFFIN_LIM_ITERATIONS, power=power
    )

    # Only what would clip is made quieter.
    peak = float(np.abs(samples).max(initial=0.0))
    return samples / np.float32(peak) if peak > 1 else samples
