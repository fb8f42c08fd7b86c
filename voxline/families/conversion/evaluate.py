"""Measures a converter of voices on a split of a dataset: its attributes by a classifier, its words by a recognizer.

One attribute of each utterance is changed at a time, to a random other value; to any value if its own is not known. The
classifier learned from recordings alone, and reads recordings of the split too. The recognizer transcribes the
recording, its mels made audible again, and the converted mels made audible: the difference of the last two is the
conversion's.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import resample
from voxline.audio.griffin_lim import features_to_waveform
from voxline.data.dataset import Dataset
from voxline.data.reader import DatasetReader
from voxline.data.rows import DatasetRow
from voxline.families.conversion.settings import AttributeSettings
from voxline.families.conversion.task import value_of
from voxline.inference.recognizer import Recognizer
from voxline.inference.voice_converter import STRENGTH, VoiceConverter
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.wer import count_word_edits
from voxline.progress import Progress

Waveform = npt.NDArray[np.float32]
RECORDED = "recorded"
RESYNTHESIZED = "resynthesized"
CONVERTED = "converted"


@dataclasses.dataclass(frozen=True)
class Share:
    """A share, or an error rate, over utterances.

    Attributes:
      name: `read/<of>/<attribute>`: that the classifier reads as it should; `wer/<of>`: word errors.
      low, high: of the 95% interval, which resamples speakers where there are enough, and else utterances.
      count: utterances.
    """

    name: str
    value: float
    low: float
    high: float
    count: int


def evaluate_conversion(
    converter: VoiceConverter,
    folder: Path | str,
    split: str,
    recognizer: Recognizer | None,
    strength: float = STRENGTH,
    seed: int = 1,
) -> list[Share]:
    """Converts each utterance of a split, once for each attribute.

    Args:
      folder: of the dataset.
      recognizer: transcribes; None: words are not measured.
      strength: of the change; 0.5 is that of the training.
      seed: draws the value that each utterance is converted to.

    Raises:
      SettingsError: the converter reads other features, or the dataset has no such split.
      WorkError: a recording is gone.
    """
    reader = DatasetReader(folder)
    converter.check_features(reader.info.features, f"the converter {converter.folder}")
    settings = [AttributeSettings.of(values) for values in converter.info.settings["attributes"]]
    rows = [row for row in reader.info.rows() if row.split == split]
    examples = list(reader.examples(split))
    progress = Progress("utterances converted", len(examples))
    counts: dict[str, list[tuple[str, SumAndWeight]]] = {}
    converted: list[Waveform] = []
    for number, (row, example) in enumerate(zip(rows, examples, strict=True)):
        # Drawn from (seed, number), so that an utterance is converted alike whatever comes before it.
        random = np.random.default_rng([seed, number])
        read_of_recording = converter.read(example.features)
        for attribute, (name, values) in zip(settings, converter.attributes.items(), strict=True):
            value = value_of(row, attribute)
            targets = [candidate for candidate in values if candidate != value]
            target = targets[int(random.integers(len(targets)))]

            # mels [frames, mels]; the classifier reads {attribute: {value: probability}} of them.
            mels = converter.convert(example.features, {name: target}, strength)
            readings = ((RECORDED, read_of_recording, value), (CONVERTED, converter.read(mels), target))
            for form, probabilities, expected in readings:
                # The value of a recording may be unknown, or one that the converter does not have.
                if expected in values:
                    most_probable = max(probabilities[name], key=probabilities[name].__getitem__)
                    count = SumAndWeight(float(most_probable == expected), 1)
                    counts.setdefault(f"read/{form}/{name}", []).append((row.speaker, count))
            if recognizer:
                converted.append(_audible(mels, converter))
        progress.advance()

    # Griffin-Lim costs words of its own, so the recording is made audible from its mels too.
    if recognizer:
        sample_rate = converter.features.sample_rate
        recordings = _recordings(reader.info, rows, sample_rate)
        resynthesized = [_audible(example.features, converter) for example in examples]
        each_converted = [row for row in rows for _ in settings]
        forms = {
            RECORDED: (rows, recordings),
            RESYNTHESIZED: (rows, resynthesized),
            CONVERTED: (each_converted, converted),
        }
        for form, (spoken, waveforms) in forms.items():
            hypotheses = _transcribe(recognizer, waveforms, sample_rate)
            edits = count_word_edits([row.text for row in spoken], hypotheses)
            counts[f"wer/{form}"] = [(row.speaker, words.as_metric) for row, words in zip(spoken, edits, strict=True)]
    return [_share(name, values) for name, values in counts.items()]


def _share(name: str, counted: Sequence[tuple[str, SumAndWeight]]) -> Share:
    """The share over utterances, from the speaker and the count of each."""
    speakers, values = zip(*counted, strict=True)
    interval = Bootstrap().interval(values, speakers)
    return Share(name, aggregate(values) or 0.0, interval.low, interval.high, len(values))


def _audible(mels: npt.NDArray[np.float32], converter: VoiceConverter) -> Waveform:
    # mels [frames, mels] → waveform [samples]; Griffin-Lim may overshoot full scale.
    return np.clip(features_to_waveform(mels, converter.features), -1, 1)


def _recordings(dataset: Dataset, rows: Sequence[DatasetRow], sample_rate: int) -> list[Waveform]:
    files = dataset.recordings((row.audio_hash for row in rows), "train")
    return [read_waveform(file, sample_rate, row.offset, row.duration) for file, row in zip(files, rows, strict=True)]


def _transcribe(recognizer: Recognizer, waveforms: Sequence[Waveform], sample_rate: int) -> list[str]:
    rate = recognizer.sample_rate
    return recognizer.transcribe_waveforms(
        [np.clip(resample(waveform, sample_rate, rate), -1, 1) for waveform in waveforms]
    )
