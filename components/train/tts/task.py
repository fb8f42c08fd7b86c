"""Teaches a voice: whole utterances to learn from; what it says of dev's texts, without help, to choose by."""

from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.dtw import dtw
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.train import devices
from voxline.components.train.batches import Batch, Batches
from voxline.components.train.task import TrainingTask, ValidationOutput, evenly_spaced
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.components.train.tts.train_module import TtsTrainModule
from voxline.components.train.validation import Samples, ValidationResult
from voxline.data.dataset import Dataset
from voxline.metrics.attention import compute_attention_metrics

Values = npt.NDArray[np.floating]
Image = npt.NDArray[np.uint8]
COLOR_MAP = np.array([[0, 0, 4], [80, 18, 123], [182, 54, 121], [251, 136, 97], [252, 253, 191]], np.float64)
"""From low to high, evenly spaced: dark to light, so that it reads in grey too."""
PIXELS_PER_VALUE = 3
"""Pixels a value, either way."""
GRIFFIN_LIM_ITERATIONS = 20
"""Of Griffin-Lim: enough to hear what goes wrong."""


def render_heatmap(values: Values, lowest: float | None = None, highest: float | None = None) -> Image:
    """Time from left to right, bins or symbols from bottom to top.

    Args:
      values: [time, bins].
      lowest, highest: the ends of the colours; empty: those of the values.

    >>> render_heatmap(np.array([[0.0, 1.0]])).shape
    (6, 3, 3)
    """
    low = float(values.min()) if lowest is None else lowest
    high = float(values.max()) if highest is None else highest
    share = np.clip((values.T[::-1] - low) / max(high - low, 1e-9), 0, 1) * (len(COLOR_MAP) - 1)
    left = np.minimum(share.astype(int), len(COLOR_MAP) - 2)
    weight = (share - left)[..., None]
    image = (COLOR_MAP[left] * (1 - weight) + COLOR_MAP[left + 1] * weight).astype(np.uint8)
    enlarged: Image = image.repeat(PIXELS_PER_VALUE, axis=0).repeat(PIXELS_PER_VALUE, axis=1)
    return enlarged


def render_comparison(made: Values, recorded: Values) -> Image:
    """Made above recorded, in the colours of the recorded one, a light line between."""
    low, high = float(recorded.min()), float(recorded.max())
    images = [render_heatmap(values, low, high) for values in (made, recorded)]
    width = max(image.shape[1] for image in images)
    padded = [np.pad(image, ((0, 0), (0, width - image.shape[1]), (0, 0))) for image in images]
    return np.concatenate([padded[0], np.full((PIXELS_PER_VALUE, width, 3), 255, np.uint8), padded[1]])


def render_audio(part: Values, features: FeatureSettings, power: float = 1.0) -> npt.NDArray[np.float32]:
    """A waveform of raw features, float32 [samples], never louder than 1."""
    made = features_to_waveform(np.asarray(part, np.float32), features, iterations=GRIFFIN_LIM_ITERATIONS, power=power)
    loudest = float(np.abs(made).max(initial=0.0))
    return made / np.float32(loudest) if loudest > 1 else made


LOGGED_SAMPLES = 2
"""Utterances that are drawn and played at each look."""

MAX_LENGTH_RATIO = 1.5
"""A look cuts a synthesis off at so many times the longest recording among its texts."""


class TtsTask(TrainingTask):
    """See `TrainingTask`. A look has some of dev's texts spoken, and its score is

      mel_dtw + (1 - attention_diagonality) + hit_limit

    the mean distance to the recording after time warping in deviations of each mel bin, the attention that lies off the
    diagonal, and the share of syntheses that did not come to an end. All three are small in a voice that is good
    without help, and one of them is not in a voice that is good only with it. The loss under teacher forcing parts
    equal scores, and decides nothing else.
    """

    settings: TtsTrainSettings
    learner: TtsTrainModule

    def batches(self, dataset: Dataset) -> tuple[Batches, Batches]:
        settings = self.settings
        # Nobody says more symbols than there are frames: such a text belongs to another recording, and a long one takes
        # all memory. The recogniser of mutual information could not hear it either.
        stride = 1
        train = Batches(
            dataset,
            "train",
            batch_size=settings.batch_size,
            time_stride=stride,
            seed=settings.seed,
            shuffled=True,
            length_noise=settings.length_noise,
            shortest_first=settings.shortest_first,
        )
        return train, Batches(dataset, "dev", batch_size=settings.batch_size, time_stride=stride)

    def make_learner(self, dataset: Dataset) -> TtsTrainModule:
        self._features, self._alphabet = dataset.features, dataset.alphabet
        return TtsTrainModule(self.settings, dataset, self.strategy)

    @property
    def advice(self) -> str:
        return "Nobody speaks as fast: look whether their texts belong to their recordings, or make hop_seconds shorter"

    def look(self, step: int) -> ValidationOutput:
        batch = self._looked_at()
        longest = round(MAX_LENGTH_RATIO * int(batch.frames.max()))
        spoken = self.learner.speak(batch, step, longest)
        wanted = np.asarray(self.learner.model.normalise(batch.features))[..., : self._features.mels]
        reduction, seen = self.settings.learnt_reduction(step), []
        for row in range(len(batch.ids)):
            frames = max(int(spoken.frames[row]), 1)
            steps = -(-frames // reduction)
            read = compute_attention_metrics(np.asarray(spoken.alignment[row, :steps, : batch.counts[row]], np.float64))
            apart = dtw(spoken.mels[row, :frames], wanted[row, : batch.frames[row]]).distance
            seen.append([apart, read.diagonality, read.coverage, float(spoken.hit_limit[row])])
        last = max(step - 1, 0)
        forced = [float(loss) for each in self.dev.epoch(0) for _, loss in self.learner.examined(each, last)]
        # Every worker has every text spoken; their mean is taken, since the same numbers must reach all of them.
        numbers = [*np.sum(seen, 0).tolist(), len(seen), sum(forced), len(forced)]
        *sums, rows, loss, count = devices.sum_over_workers(self.strategy, numbers).tolist()
        apart, diagonality, coverage, limit = (value / rows for value in sums)
        score = apart + (1 - diagonality) + limit
        figures = {
            "score": score,
            "mel_dtw": apart,
            "attention_diagonality": diagonality,
            "attention_coverage": coverage,
            "hit_limit": limit,
            "loss": loss / count,
        }
        return ValidationOutput((score, loss / count), figures, self._samples(batch, spoken, reduction))

    def told(self, look: ValidationResult) -> str:
        seen = look.figures
        return (
            f"free running: mel distance {seen['mel_dtw']:.3f}, diagonality {seen['attention_diagonality']:.2f}, "
            f"hit the limit {seen['hit_limit']:.0%}; with teacher forcing {seen['loss']:.3f}"
        )

    def _looked_at(self) -> Batch:
        """Some of dev, from its shortest utterance to its longest."""
        order = np.concatenate(self.dev.plan(0))
        return self.dev.read(order[evenly_spaced(len(order), self.settings.look_utterances)])

    def _samples(self, batch: Batch, spoken: Any, reduction: int) -> Samples:
        """Mels beside the recording's, alignments, and sound, of the longest utterances that were looked at."""
        mels, linear = self.learner.restored(spoken)
        rows = np.argsort(-batch.frames)[:LOGGED_SAMPLES].tolist()
        images, audio, lines = {}, {}, ["| utterance | text |", "| --- | --- |"]
        for number, row in enumerate(rows):
            frames = max(int(spoken.frames[row]), 1)
            recorded = batch.features[row, : batch.frames[row]]
            made = np.asarray(mels[row, :frames], np.float32)
            images[f"mel_{number}"] = render_comparison(made, recorded[:, : self._features.mels])
            attention = spoken.alignment[row, : -(-frames // reduction), : batch.counts[row]]
            images[f"alignment_{number}"] = render_heatmap(attention, lowest=0.0, highest=1.0)
            part = made if linear is None else np.asarray(linear[row, :frames], np.float32)
            audio[f"speech_{number}"] = render_audio(part, self._features, self.settings.vocoder.power)
            lines.append(f"| {batch.ids[row]} | {batch.texts[row]} |")
        return Samples({"texts": "\n".join(lines)}, images, audio, self._features.sample_rate)
