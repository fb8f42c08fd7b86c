"""Writing a corpus as LibriSpeech lays it out (openslr.org/12): FLAC beside the chapter's transcript.

LibriSpeech/test-clean/1021/1/1021-1-0000.flac
LibriSpeech/test-clean/1021/1/1021-1.trans.txt    1021-1-0000 TURN OFF THE KITCHEN LIGHTS
LibriSpeech/SPEAKERS.TXT                          1021 | F | test-clean       |  1.42 | en-gb+f2
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from components.speech.storage import write_text

SUBSETS = {"train": "train-clean", "dev": "dev-clean", "test": "test-clean"}


@dataclasses.dataclass(frozen=True, slots=True)
class SpeakerLine:
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
    name = f"{speaker}-{chapter}"
    folder = root / subset / str(speaker) / str(chapter)
    folder.mkdir(parents=True)
    transcript, samples_written = [], 0
    for number, (text, samples) in enumerate(utterances):
        utterance = f"{name}-{number:04d}"
        soundfile.write(folder / f"{utterance}.flac", samples, rate, subtype="PCM_16")
        transcript.append(f"{utterance} {text.upper()}\n")
        samples_written += len(samples)
    write_text(folder / f"{name}.trans.txt", "".join(transcript))
    return samples_written / rate


def write_speakers(root: Path, speakers: Iterable[SpeakerLine]) -> None:
    lines = ["; Generated speech. NAME is the synthesiser's voice: accent+variant.\n"]
    lines.append(";ID  |SEX| SUBSET           |MINUTES| NAME\n")
    lines += [
        f"{line.id:<5}| {line.sex} | {line.subset:<17}| {line.seconds / 60:5.2f} | {line.name}\n" for line in speakers
    ]
    write_text(root / "SPEAKERS.TXT", "".join(lines))
