"""Writes corpora in the layouts of LibriSpeech, LJSpeech and THCHS-30.

LibriSpeech (openslr.org/12) has FLAC files next to the transcript of their chapter:

LibriSpeech/test-clean/1021/1/1021-1-0000.flac
LibriSpeech/test-clean/1021/1/1021-1.trans.txt    1021-1-0000 TURN OFF THE KITCHEN LIGHTS
LibriSpeech/SPEAKERS.TXT                          1021 | F | test-clean       |  1.42 | en-gb+f2

A manifest beside it may list the same recordings with what that layout has no place for.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from voxline.components.demo_corpus.grammar import Sentence
from voxline.components.demo_corpus.mandarin import syllable_phones
from voxline.store.files import write_text

SUBSETS = {"train": "train-clean", "dev": "dev-clean", "test": "test-clean"}


@dataclasses.dataclass(frozen=True, slots=True)
class SpeakerRecord:
    """A line of SPEAKERS.TXT."""

    id: int
    sex: str
    subset: str
    seconds: float
    name: str


def write_chapter(
    root: Path,
    subset: str,
    speaker: int,
    chapter: int,
    utterances: Iterable[tuple[str, npt.NDArray[np.int16]]],
    rate: int,
) -> float:
    """Writes one chapter: (text, samples) for each utterance. Returns its seconds."""
    folder = root / subset / str(speaker) / str(chapter)
    folder.mkdir(parents=True)

    # Utterances come one by one, so that memory holds one recording, and their texts.
    transcript = []
    samples_written = 0
    for number, (text, samples) in enumerate(utterances):
        file = utterance_file(root, subset, speaker, chapter, number)
        soundfile.write(file, samples, rate, subtype="PCM_16")
        transcript.append(f"{file.stem} {text.upper()}\n")
        samples_written += len(samples)

    write_text(folder / f"{speaker}-{chapter}.trans.txt", "".join(transcript))
    return samples_written / rate


def utterance_file(root: Path, subset: str, speaker: int, chapter: int, number: int) -> Path:
    """The recording of an utterance in LibriSpeech's layout."""
    return root / subset / str(speaker) / str(chapter) / f"{speaker}-{chapter}-{number:04d}.flac"


def write_manifest_beside(folder: Path, lines: Iterable[Mapping[str, str]]) -> None:
    """Writes a manifest.jsonl into the folder that holds the layout's; its paths are relative to the folder."""
    write_text(folder / "manifest.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def write_speakers(root: Path, speakers: Iterable[SpeakerRecord]) -> None:
    # Columns as in LibriSpeech's own file, which readers split at "|".
    lines = ["; Generated speech. NAME is espeak-ng's voice: accent+variant.\n"]
    lines.append(";ID  |SEX| SUBSET           |MINUTES| NAME\n")
    lines += [
        f"{line.id:<5}| {line.sex} | {line.subset:<17}| {line.seconds / 60:5.2f} | {line.name}\n" for line in speakers
    ]
    write_text(root / "SPEAKERS.TXT", "".join(lines))


RecordedSentence = tuple[str, Sentence, npt.NDArray[np.int16]]
"""The name of the split, the sentence, and its samples."""


def write_ljspeech(root: Path, recordings: Iterable[RecordedSentence], rate: int) -> float:
    """Writes LJSpeech's layout; an id begins with the split, as LJSpeech's with the book. Returns the seconds."""
    (root / "wavs").mkdir(parents=True)
    lines = []
    samples_written = 0
    for number, (split, sentence, samples) in enumerate(recordings):
        id = f"{split}-{number:04d}"
        soundfile.write(root / "wavs" / f"{id}.wav", samples, rate, subtype="PCM_16")
        # The text as it is written, and as it is read: LJSpeech has both.
        lines.append(f"{id}|{sentence.written}|{sentence.normalized}\n")
        samples_written += len(samples)

    write_text(root / "metadata.csv", "".join(lines))
    return samples_written / rate


SPEAKER = "A1"


def write_thchs30(root: Path, recordings: Iterable[RecordedSentence], rate: int) -> float:
    """Writes THCHS-30's layout; files with a path replace the links of the publisher. Returns the seconds."""
    for folder in ("data", "train", "dev", "test"):
        (root / folder).mkdir(parents=True)

    samples_written = 0
    for number, (split, sentence, samples) in enumerate(recordings):
        recording = f"{SPEAKER}_{number}.wav"
        soundfile.write(root / "data" / recording, samples, rate, subtype="PCM_16")

        # Three lines: hanzi, pinyin and phones. The publisher's folders of splits hold links, which not every disk has.
        phones = " ".join(map(syllable_phones, sentence.normalized.split()))
        transcript = f"{sentence.written}\n{sentence.normalized}\n{phones}\n"
        (root / "data" / f"{recording}.trn").write_text(transcript, encoding="utf-8")
        (root / split / f"{recording}.trn").write_text(f"../data/{recording}.trn\n", encoding="utf-8")

        samples_written += len(samples)
    return samples_written / rate
