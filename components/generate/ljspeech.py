"""Writing a corpus as LJSpeech lays it out (keithito.com/LJ-Speech-Dataset): WAVs beside one table of texts.

LJSpeech/metadata.csv             test-0003|4 8 3|four eight three
LJSpeech/wavs/test-0003.wav
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from components.generate.sentence import Sentence
from components.speech.storage import write_text

FOLDER = "LJSpeech"

Recorded = tuple[str, Sentence, npt.NDArray[np.int16]]
"""The name of the split, what was said, and its samples."""


def write_ljspeech(root: Path, recordings: Iterable[Recorded], rate: int) -> float:
    """Writes the corpus; an id begins with the split, as LJSpeech's does with the book. Returns its seconds."""
    (root / "wavs").mkdir(parents=True)
    lines, samples_written = [], 0
    for number, (split, sentence, samples) in enumerate(recordings):
        id = f"{split}-{number:04d}"
        soundfile.write(root / "wavs" / f"{id}.wav", samples, rate, subtype="PCM_16")
        lines.append(f"{id}|{sentence.written}|{sentence.normalised}\n")
        samples_written += len(samples)
    write_text(root / "metadata.csv", "".join(lines))
    return samples_written / rate
