"""The speakers of a generated corpus: accents, voices and rooms.

No two speakers share both accent and variant, and any run of consecutive speakers has many accents and both sexes.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from voxline.components.demo_corpus.espeak import EspeakVoice

ACCENTS = (
    "en-us",
    "en",
    "en-gb-scotland",
    "en-gb-x-rp",
    "en-029",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-us-nyc",
)
"""US, British, Scottish, Received Pronunciation, Caribbean, Lancaster, West Midlands, New York City."""

MALE = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
FEMALE = ("f1", "f2", "f3", "f4", "f5")
VARIANTS = (*MALE, *FEMALE)
DISTINCT_VOICES = len(ACCENTS) * len(VARIANTS)

NOISES = ("pink", "white", "hum")
MIN_REVERBERATION = 0.05
"""RT60 of the driest room, in seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Speaker:
    """A voice in a room.

    Attributes:
      id: LibriSpeech's speaker number.
      sex: "M" or "F".
      reverberation: RT60 of the room, in seconds.
      noise: of the background: "pink", "white" or "hum".
      seed: draws the speaker's sentences, and the recording conditions of each.
    """

    id: int
    sex: str
    voice: EspeakVoice
    reverberation: float
    noise: str
    seed: tuple[int, int]


def draw_speakers(count: int, seed: int, reverberation_max: float, accents: Sequence[str] = ACCENTS) -> list[Speaker]:
    """Draws `count` speakers.

    Args:
      accents: espeak-ng's languages.

    >>> [(speaker.id, speaker.sex, speaker.voice.name) for speaker in draw_speakers(2, 1, 0.3)]
    [(1001, 'F', 'en-gb-x-gbclan+f1'), (1002, 'M', 'en-us+m2')]
    """
    rng = np.random.default_rng(seed)
    accents = rng.permutation(accents).tolist()
    variants = draw_variants(rng)

    # All pairs come before one repeats: after as many as both numbers divide, the variants are shifted by one.
    cycle = math.lcm(len(accents), len(variants))
    return [
        _draw_speaker(
            number,
            accents[number % len(accents)],
            variants[(number + number // cycle) % len(variants)],
            seed,
            reverberation_max,
        )
        for number in range(count)
    ]


def draw_variants(rng: np.random.Generator) -> list[str]:
    """All variants of a voice in random order, both sexes evenly spread."""
    return _alternate(rng.permutation(MALE).tolist(), rng.permutation(FEMALE).tolist())


def _draw_speaker(number: int, accent: str, variant: str, seed: int, reverberation_max: float) -> Speaker:
    # By the speaker's number, so that a larger corpus has the speakers of a smaller one with the same seed.
    rng = np.random.default_rng((seed, number))

    voice = EspeakVoice(
        accent,
        variant,
        rate=int(rng.integers(145, 186)),
        pitch=int(rng.integers(30, 71)),
        pitch_range=int(rng.integers(30, 71)),
    )

    return Speaker(
        id=1001 + number,
        sex="F" if variant in FEMALE else "M",
        voice=voice,
        reverberation=round(float(rng.uniform(MIN_REVERBERATION, reverberation_max)), 3),
        noise=NOISES[rng.integers(len(NOISES))],
        seed=(seed, number),
    )


def _alternate(many: list[str], few: list[str]) -> list[str]:
    """Spreads the shorter list evenly between the members of the longer one."""
    # Places in [0, 1): those of the longer list in the middle of their shares, so that no two are equal.
    positions = [((index + 0.5) / len(many), name) for index, name in enumerate(many)]
    positions += [(index / len(few), name) for index, name in enumerate(few)]
    return [name for _, name in sorted(positions)]
