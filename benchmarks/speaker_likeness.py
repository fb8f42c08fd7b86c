"""How alike two voices sound, by the speaker encoder of the wheel `Resemblyzer` (`voxline.audio.speaker_encoder`).

pip download --no-deps Resemblyzer==0.1.4
python -m benchmarks.speaker_likeness WHEEL RECORDING RECORDING …    prints how alike each is to the first
python -m benchmarks.speaker_likeness WHEEL FOLDER FOLDER …    prints what evaluate's judge finds of the wavs of each
    folder beside the recordings in the first; files of one name say one sentence
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voxline.audio.speaker_encoder import ENCODER_RATE, Array, SpeakerEncoder
from voxline.components.evaluate.judges import SpeakerJudge
from voxline.data.manifest import Utterance
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import aggregate


def likeness(place: Array, other: Array) -> float:
    """The cosine of two places, or of means of places: 1 of the same."""
    return float(place @ other / np.linalg.norm(place) / np.linalg.norm(other))


def mean_place(places: Sequence[Array]) -> Array:
    """Where a speaker is, by several recordings."""
    mean: Array = np.mean(places, axis=0)
    return mean


def judge_folders(wheel: Path, recordings: Path, folders: Sequence[Path]) -> None:
    """Prints the metrics of speech in each folder, as of a corpus of one speaker."""
    names = sorted(set.intersection(*({file.name for file in folder.glob("*.wav")} for folder in folders)))
    sentences = []
    for name in names:
        file = recordings / name
        seconds = len(read_waveform(file, ENCODER_RATE)) / ENCODER_RATE
        sentences.append(Utterance(name, str(file), seconds, name, "", "test", ""))
    judge = SpeakerJudge(wheel, sentences, 30, ENCODER_RATE)
    for folder in folders:
        rows = [judge.measure(said, read_waveform(folder / said.id, ENCODER_RATE), ENCODER_RATE) for said in sentences]
        figures = [aggregate([row[name] for row in rows], "mean") for name in rows[0]]
        print(*("—" if figure is None else f"{figure:.3f}" for figure in figures), folder)


if __name__ == "__main__":
    if Path(sys.argv[2]).is_dir():
        judge_folders(Path(sys.argv[1]), Path(sys.argv[2]), [Path(folder) for folder in sys.argv[2:]])
        sys.exit()
    encoder = SpeakerEncoder(Path(sys.argv[1]))
    voices = [encoder.embed(read_waveform(Path(recording), ENCODER_RATE), ENCODER_RATE) for recording in sys.argv[2:]]
    for name, voice in zip(sys.argv[2:], voices, strict=True):
        print(f"{likeness(voice, voices[0]):.3f} {name}")
