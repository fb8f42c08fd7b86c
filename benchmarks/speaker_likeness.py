"""How alike two voices sound, by the speaker encoder of the wheel `Resemblyzer` (`voxline.audio.speaker_encoder`).

pip download --no-deps Resemblyzer==0.1.4
python -m benchmarks.speaker_likeness WHEEL RECORDING RECORDING …    prints how alike each is to the first
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voxline.audio.speaker_encoder import ENCODER_RATE, Array, SpeakerEncoder
from voxline.inference.waveforms import read_waveform


def likeness(place: Array, other: Array) -> float:
    """The cosine of two places, or of means of places: 1 of the same."""
    return float(place @ other / np.linalg.norm(place) / np.linalg.norm(other))


def mean_place(places: Sequence[Array]) -> Array:
    """Where a speaker is, by several recordings."""
    mean: Array = np.mean(places, axis=0)
    return mean


if __name__ == "__main__":
    encoder = SpeakerEncoder(Path(sys.argv[1]))
    voices = [encoder.embed(read_waveform(Path(recording), ENCODER_RATE), ENCODER_RATE) for recording in sys.argv[2:]]
    for name, voice in zip(sys.argv[2:], voices, strict=True):
        print(f"{likeness(voice, voices[0]):.3f} {name}")
