"""The demo corpus of recognition: commands spoken by generated voices in their rooms, in LibriSpeech's layout."""

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus import acoustics
from voxline.components.demo_corpus.grammar import Grammar, Sentence
from voxline.components.demo_corpus.layouts import SUBSETS, SpeakerRecord, write_chapter, write_speakers
from voxline.components.demo_corpus.sentences import draw_sentences
from voxline.components.demo_corpus.settings import CommandsCorpusSettings, RoundTripCorpusSettings
from voxline.components.demo_corpus.speakers import FEMALE, Speaker, draw_speakers, draw_variants
from voxline.components.demo_corpus.speech import EspeakVoice, speak
from voxline.components.demo_corpus.tts_corpora import record_sentences, to_int16
from voxline.progress import Progress, print_status
from voxline.text.alphabet import normalize_transcript

TEMPLATES = (
    "turn the {room} {device} {switch}",
    "turn {switch} the {room} {device} at {hour}",
    "turn {switch} the {device} in {number} minutes",
    "set the {clock} for {number} minutes",
    "set the {clock} for {hour} {day}",
    "set the {room} heating to {number} degrees",
    "play the {order} song in the {room}",
    "stop the {room} {sounding}",
    "{move} the {room} {opening}",
    "{move} the {opening} in the {room} at {hour}",
    "what is the {asked} {day}",
    "how {feeling} is it in the {room}",
    "call {name} {day} at {hour}",
    "remind me to call {name} at {hour}",
    "remind me to {move} the {opening} at {hour}",
    "add {drink} and {food} to the list",
)

SLOTS: dict[str, tuple[str, ...]] = {
    "switch": ("on", "off"),
    "room": ("kitchen", "bedroom", "bathroom", "garden", "garage"),
    "device": ("lights", "fan", "radio", "heating"),
    "clock": ("alarm", "timer"),
    "sounding": ("alarm", "timer", "radio"),
    "order": ("next", "last"),
    "move": ("open", "close"),
    "opening": ("door", "window"),
    "asked": ("time", "weather"),
    "day": ("today", "tomorrow"),
    "feeling": ("warm", "cold"),
    "name": ("anna", "peter", "mother"),
    "drink": ("milk", "tea"),
    "food": ("bread", "apples"),
    "unit": ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "tens": ("twenty", "thirty", "forty"),
    "number": ("{tens} {unit}", "{tens} {unit}", "{tens}", "{hour}"),
    "hour": ("{unit}", "{unit}", "{unit}", "ten", "eleven", "twelve"),
}

COMMANDS = Grammar(TEMPLATES, SLOTS)


SAMPLE_RATE = 16000
CHAPTER = 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """What one speaker records, in which split."""

    speaker: Speaker
    split: str
    utterances: int


def write_commands_corpus(root: Path, settings: CommandsCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into the folder `root`. Returns how many of what."""
    parts = _cast(settings)
    total = sum(part.utterances for part in parts)
    print_status(f"generate: {len(parts)} voices speak {total:,} commands")
    progress = Progress("utterances", total)
    speakers = []
    with ThreadPoolExecutor(workers) as pool:
        # Results come in the order of the parts, so that nothing depends on who is done first.
        for part, seconds in zip(parts, pool.map(lambda part: _record(root, part, settings), parts), strict=True):
            name = part.speaker.voice.name
            speakers.append(SpeakerRecord(part.speaker.id, part.speaker.sex, SUBSETS[part.split], seconds, name))
            progress.advance(part.utterances, note=f"{name} is done")
    write_speakers(root, speakers)
    seconds = round(sum(speaker.seconds for speaker in speakers))
    return {
        "utterances": total,
        "speakers": len(parts),
        "seconds": seconds,
        **{split: sum(part.utterances for part in parts if part.split == split) for split in SUBSETS},
    }


def _cast(settings: CommandsCorpusSettings) -> list[_Part]:
    """Who is in which split; nobody is in two."""
    sizes = {
        "train": (settings.train_speakers, settings.utterances_per_speaker),
        "dev": (settings.dev_speakers, settings.dev_utterances_per_speaker),
        "test": (settings.test_speakers, settings.utterances_per_speaker),
    }
    splits = [(split, utterances) for split, (speakers, utterances) in sizes.items() for _ in range(speakers)]
    speakers = draw_speakers(len(splits), settings.seed, settings.reverberation_max)
    return [_Part(speaker, *split) for speaker, split in zip(speakers, splits, strict=True)]


def _record(root: Path, part: _Part, settings: CommandsCorpusSettings) -> float:
    """Lets one speaker say all, and writes it. Returns the seconds."""
    rng = np.random.default_rng((*part.speaker.seed, 1))
    texts = COMMANDS.draw(rng, part.utterances)
    spoken, rate = speak(part.speaker.voice, texts)
    recorded = _recordings(part.speaker, spoken, rate, rng, settings)
    chapter = zip(texts, recorded, strict=True)
    return write_chapter(root, SUBSETS[part.split], part.speaker.id, CHAPTER, chapter, SAMPLE_RATE)


def _recordings(
    speaker: Speaker,
    spoken: list[npt.NDArray[np.float32]],
    rate: int,
    rng: np.random.Generator,
    settings: CommandsCorpusSettings,
) -> Iterator[npt.NDArray[np.int16]]:
    """Each utterance as the microphone hears it: another place in the acoustics, other noise, another level."""
    import soxr

    for dry in spoken:
        samples = acoustics.trim_silence(soxr.resample(dry, rate, SAMPLE_RATE), SAMPLE_RATE)
        samples = acoustics.reverberate(
            samples, acoustics.draw_impulse_response(rng, SAMPLE_RATE, speaker.reverberation)
        )
        background = acoustics.generate_noise(rng, speaker.noise, len(samples), SAMPLE_RATE)
        samples = acoustics.mix_at_snr(samples, background, rng.uniform(settings.snr_min, settings.snr_max))
        samples = acoustics.normalize_peak(samples, rng.uniform(-15, -3))
        yield np.rint(samples * 32767).astype(np.int16)


FIRST_SPEAKER = 1001


@dataclasses.dataclass(frozen=True, slots=True)
class _ListenerCorpusPart:
    """What one voice says in one split."""

    speaker: int
    voice: EspeakVoice
    split: str
    sentences: list[Sentence]


def write_round_trip_corpus(root: Path, settings: RoundTripCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into the folder `root`. Returns how many of what."""
    parts = _parts(settings)
    total = sum(len(part.sentences) for part in parts)
    print_status(f"generate: {1 + settings.others} voices say {total:,} {settings.sentences}")
    speakers = []
    for number, part in enumerate(parts):
        rng = np.random.default_rng((settings.seed, 4, number))
        spoken = record_sentences(part.voice, part.sentences, settings.sample_rate, workers)
        utterances = (
            (normalize_transcript(sentence.normalised), _heard(samples, rng, settings))
            for sentence, samples in zip(part.sentences, spoken, strict=True)
        )
        subset = SUBSETS[part.split]
        # A chapter a split: the same speaker is in all of them, and an utterance's id holds no split.
        chapter = 1 + list(SUBSETS).index(part.split)
        seconds = write_chapter(root, subset, part.speaker, chapter, utterances, settings.sample_rate)
        sex = "F" if part.voice.name.partition("+")[2] in FEMALE else "M"
        speakers.append(SpeakerRecord(part.speaker, sex, subset, seconds, part.voice.name))
    write_speakers(root, speakers)
    return {
        "utterances": total,
        "speakers": 1 + settings.others,
        "seconds": round(sum(line.seconds for line in speakers)),
        **{split: sum(len(part.sentences) for part in parts if part.split == split) for split in SUBSETS},
    }


def _parts(settings: RoundTripCorpusSettings) -> list[_ListenerCorpusPart]:
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
            parts.append(_ListenerCorpusPart(FIRST_SPEAKER + place, voice, split, dealt))
    return parts


def _heard(
    samples: npt.NDArray[np.float32], rng: np.random.Generator, settings: RoundTripCorpusSettings
) -> npt.NDArray[np.int16]:
    background = acoustics.generate_noise(rng, "white", len(samples), settings.sample_rate)
    mixed = acoustics.mix_at_snr(samples, background, rng.uniform(settings.snr_min, settings.snr_max))
    return to_int16(acoustics.normalize_peak(mixed, rng.uniform(-12, -3)))
