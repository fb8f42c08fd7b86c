"""What a converter of voices achieves on a split of a dataset: which attributes are heard, and whether the words are.

One attribute of each utterance is changed at a time, to a random other value; of an utterance whose own value is not
known, to any. The classifier learned from recordings
alone, and reads recordings of the split too. A recognizer hears the recording, its mels made audible again, and the
converted mels made audible: the difference of the last two is the conversion's.
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
RECORDED, RESYNTHESIZED, CONVERTED = "recorded", "resynthesized", "converted"


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
      recognizer: that listens; None: nobody does.
      strength: of what is changed.
      seed: draws what each utterance is converted to.

    Raises:
      SettingsError: the converter reads other features, or the dataset has no such split.
      WorkError: a recording is gone.
    """
    reader = DatasetReader(folder)
    converter.check_features(reader.info.features, f"the converter {converter.folder}")
    settings = [AttributeSettings.of(one) for one in converter.info.settings["attributes"]]
    rows = [row for row in reader.info.rows() if row.split == split]
    examples = list(reader.examples(split))
    progress = Progress("utterances converted", len(examples))
    sums: dict[str, list[tuple[str, SumAndWeight]]] = {}
    converted: list[Waveform] = []
    for number, (row, example) in enumerate(zip(rows, examples, strict=True)):
        random = np.random.default_rng([seed, number])
        heard = converter.read(example.features)
        for one, (name, values) in zip(settings, converter.attributes.items(), strict=True):
            value = value_of(row, one)
            others = [each for each in values if each != value]
            wanted = others[int(random.integers(len(others)))]
            made = converter.convert(example.features, {name: wanted}, strength)
            for of, probabilities, right in ((RECORDED, heard, value), (CONVERTED, converter.read(made), wanted)):
                if right in values:
                    read = max(probabilities[name], key=probabilities[name].__getitem__)
                    count = SumAndWeight(float(read == right), 1)
                    sums.setdefault(f"read/{of}/{name}", []).append((row.speaker, count))
            if recognizer:
                converted.append(_audible(made, converter))
        progress.advance()
    if recognizer:
        recordings, times = _recordings(reader.info, rows, converter.features.sample_rate), len(settings)
        resynthesized = [_audible(example.features, converter) for example in examples]
        listened = {RECORDED: (rows, recordings), RESYNTHESIZED: (rows, resynthesized)}
        listened[CONVERTED] = ([row for row in rows for _ in range(times)], converted)
        for of, (said, waveforms) in listened.items():
            found = _transcribe(recognizer, waveforms, converter.features.sample_rate)
            edits = count_word_edits([row.text for row in said], found)
            sums[f"wer/{of}"] = [(row.speaker, one.as_metric) for row, one in zip(said, edits, strict=True)]
    return [_share(name, values) for name, values in sums.items()]


def _share(name: str, counted: Sequence[tuple[str, SumAndWeight]]) -> Share:
    """Of the speaker and the count of each utterance."""
    speakers, values = zip(*counted, strict=True)
    interval = Bootstrap().interval(values, speakers)
    return Share(name, aggregate(values) or 0.0, interval.low, interval.high, len(values))


def _audible(mels: npt.NDArray[np.float32], converter: VoiceConverter) -> Waveform:
    return np.clip(features_to_waveform(mels, converter.features), -1, 1)


def _recordings(dataset: Dataset, rows: Sequence[DatasetRow], sample_rate: int) -> list[Waveform]:
    files = dataset.recordings((row.audio_hash for row in rows), "train")
    return [read_waveform(file, sample_rate, row.offset, row.duration) for file, row in zip(files, rows, strict=True)]


def _transcribe(recognizer: Recognizer, waveforms: Sequence[Waveform], sample_rate: int) -> list[str]:
    rate = recognizer.sample_rate
    return recognizer.transcribe_waveforms([np.clip(resample(one, sample_rate, rate), -1, 1) for one in waveforms])
