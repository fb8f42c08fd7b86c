"""A corpus for the recogniser of the round trip: the voice that synthesis learns, and others, say such sentences.

It hears that voice most, and others so that it does not learn one recording of each word; a faint noise, since what a
vocoder makes of silence is none. Its test split tells whether it can be trusted to judge.
"""

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.generate import room
from components.generate.librispeech import SUBSETS, SpeakerLine, write_chapter, write_speakers
from components.generate.sentence import Sentence
from components.generate.sentences import draw_sentences
from components.generate.settings import ListenerSettings
from components.generate.speakers import FEMALE, draw_variants
from components.generate.voice import Voice
from components.generate.voice_corpus import as_written, say_sentences
from components.speech.progress import say
from components.speech.text import normalise

FIRST_SPEAKER = 1001


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """What one voice says in one split."""

    speaker: int
    voice: Voice
    split: str
    sentences: list[Sentence]


def write_listener(root: Path, settings: ListenerSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into the folder `root`. Returns how many of what."""
    parts = _parts(settings)
    total = sum(len(part.sentences) for part in parts)
    say(f"generate: {1 + settings.others} voices say {total:,} {settings.sentences}")
    speakers = []
    for number, part in enumerate(parts):
        rng = np.random.default_rng((settings.seed, 4, number))
        spoken = say_sentences(part.voice, part.sentences, settings.sample_rate, workers)
        utterances = (
            (normalise(sentence.normalised), _heard(samples, rng, settings))
            for sentence, samples in zip(part.sentences, spoken, strict=True)
        )
        subset = SUBSETS[part.split]
        # A chapter a split: the same speaker is in all of them, and an utterance's id holds no split.
        chapter = 1 + list(SUBSETS).index(part.split)
        seconds = write_chapter(root, subset, part.speaker, chapter, utterances, settings.sample_rate)
        sex = "F" if part.voice.name.partition("+")[2] in FEMALE else "M"
        speakers.append(SpeakerLine(part.speaker, sex, subset, seconds, part.voice.name))
    write_speakers(root, speakers)
    return {
        "utterances": total,
        "speakers": 1 + settings.others,
        "seconds": round(sum(line.seconds for line in speakers)),
        **{split: sum(len(part.sentences) for part in parts if part.split == split) for split in SUBSETS},
    }


def _parts(settings: ListenerSettings) -> list[_Part]:
    """Every voice in every split, with sentences of its own; the voice of synthesis comes first."""
    rng = np.random.default_rng((settings.seed, 3))
    own = settings.voice(settings.sentences)
    variants = [variant for variant in draw_variants(rng) if variant != own.variant][: settings.others]
    others = [
        dataclasses.replace(own, variant=variant, rate=int(rng.integers(140, 186)), pitch=int(rng.integers(30, 71)))
        for variant in variants
    ]
    shares = [settings.voice_times, *(1 for _ in others)]
    sizes = {"train": settings.train * sum(shares), "dev": settings.dev * (1 + len(others))}
    sizes["test"] = settings.test * (1 + len(others))
    splits = draw_sentences(settings.sentences, rng, sizes, settings.longer * (1 + len(others)))
    parts = []
    for split, sentences in splits.items():
        # Dealt out like cards: each voice gets its share of every length.
        deck = shares if split == "train" else [1] * len(shares)
        owners = [place for place, share in enumerate(deck) for _ in range(share)]
        for place, voice in enumerate([own, *others]):
            dealt = [sentence for number, sentence in enumerate(sentences) if owners[number % len(owners)] == place]
            parts.append(_Part(FIRST_SPEAKER + place, voice, split, dealt))
    return parts


def _heard(
    samples: npt.NDArray[np.float32], rng: np.random.Generator, settings: ListenerSettings
) -> npt.NDArray[np.int16]:
    background = room.noise(rng, "white", len(samples), settings.sample_rate)
    mixed = room.mix(samples, background, rng.uniform(settings.snr_min, settings.snr_max))
    return as_written(room.set_peak(mixed, rng.uniform(-12, -3)))
