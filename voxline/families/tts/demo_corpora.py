"""Generates corpora for TTS: of the voice, and of the recognizer that judges it.

voice        one clean voice reads each sentence once, in the layout of LJSpeech or THCHS-30
round trip   that voice and others read sentences in LibriSpeech's layout, for the recognizer
"""

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus import acoustics
from voxline.components.demo_corpus.english import draw_digits, draw_phrases
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.components.demo_corpus.grammar import Sentence
from voxline.components.demo_corpus.layouts import (
    SUBSETS,
    SpeakerRecord,
    write_chapter,
    write_ljspeech,
    write_speakers,
    write_thchs30,
)
from voxline.components.demo_corpus.mandarin import draw_mandarin
from voxline.components.demo_corpus.settings import RoundTripCorpusSettings, SentenceKind, TtsCorpusSettings
from voxline.components.demo_corpus.speakers import FEMALE, draw_variants
from voxline.errors import SettingsError
from voxline.progress import Progress, print_status
from voxline.text.transcripts import normalize_transcript

BATCH = 50
"""Sentences of one espeak process. It is not a setting, since the samples depend on it (see espeak_process.py)."""
FIRST_SPEAKER = 1001

DRAW: dict[SentenceKind, Callable[..., list[Sentence]]] = {
    "digits": draw_digits,
    "phrases": draw_phrases,
    "mandarin": draw_mandarin,
}


def write_tts_corpus(root: Path, settings: TtsCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into the folder `root`. Returns counts."""
    # All sentences in one list, as espeak reads them in batches of the whole corpus.
    rng = np.random.default_rng((settings.seed, 2))
    sizes = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    splits = draw_sentences(settings.kind, rng, sizes, settings.long_sentences)
    in_order = [(split, sentence) for split, sentences in splits.items() for sentence in sentences]

    voice = settings.voice(settings.kind)
    print_status(f"demo corpus: {voice.name} reads {len(in_order):,} {settings.kind}")
    samples = record_sentences(voice, [sentence for _, sentence in in_order], settings.sample_rate, workers)

    # A generator: recordings are written as they come.
    recordings = (
        (split, sentence, acoustics.quantize_samples(recording))
        for (split, sentence), recording in zip(in_order, samples, strict=True)
    )

    write = write_thchs30 if settings.kind == "mandarin" else write_ljspeech
    seconds = write(root, recordings, settings.sample_rate)
    counts = {split: len(sentences) for split, sentences in splits.items()}
    return {"utterances": len(in_order), "speakers": 1, "seconds": round(seconds), **counts}


@dataclasses.dataclass(frozen=True, slots=True)
class _VoicePart:
    """The sentences of one voice in one split."""

    speaker: int
    voice: EspeakVoice
    split: str
    sentences: list[Sentence]


def write_round_trip_corpus(root: Path, settings: RoundTripCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus of a round-trip recognizer into the folder `root`. Returns counts."""
    parts = _assign_sentences(settings)
    total = sum(len(part.sentences) for part in parts)
    print_status(f"demo corpus: {1 + settings.other_voices} voices read {total:,} {settings.sentences}")

    # One part after the other: the sentences of a part are spoken by several processes at once.
    speakers = []
    for number, part in enumerate(parts):
        rng = np.random.default_rng((settings.seed, 4, number))
        recordings = record_sentences(part.voice, part.sentences, settings.sample_rate, workers)
        utterances = (
            (normalize_transcript(sentence.normalized), _add_noise(samples, rng, settings))
            for sentence, samples in zip(part.sentences, recordings, strict=True)
        )
        subset = SUBSETS[part.split]
        # One chapter for each split: a speaker is in all of them, and an utterance's id does not name its split.
        chapter = 1 + list(SUBSETS).index(part.split)
        seconds = write_chapter(root, subset, part.speaker, chapter, utterances, settings.sample_rate)
        sex = "F" if part.voice.name.partition("+")[2] in FEMALE else "M"
        speakers.append(SpeakerRecord(part.speaker, sex, subset, seconds, part.voice.name))

    write_speakers(root, speakers)
    return {
        "utterances": total,
        "speakers": 1 + settings.other_voices,
        "seconds": round(sum(speaker.seconds for speaker in speakers)),
        **{split: sum(len(part.sentences) for part in parts if part.split == split) for split in SUBSETS},
    }


def _assign_sentences(settings: RoundTripCorpusSettings) -> list[_VoicePart]:
    """Every voice is in every split, with sentences of its own; the TTS voice comes first."""
    rng = np.random.default_rng((settings.seed, 3))
    tts_voice = settings.voice(settings.sentences)
    variants = [variant for variant in draw_variants(rng) if variant != tts_voice.variant][: settings.other_voices]

    # The others differ from the TTS voice in variant, rate and pitch; the language is the same.
    other_voices = [
        dataclasses.replace(
            tts_voice, variant=variant, rate=int(rng.integers(140, 186)), pitch=int(rng.integers(30, 71))
        )
        for variant in variants
    ]

    voices = [tts_voice, *other_voices]
    weights = [settings.tts_voice_weight, *(1 for _ in other_voices)]

    # The TTS voice has a larger share of train alone: dev and test weigh all voices alike.
    sizes = {"train": settings.train * sum(weights), "dev": settings.dev * len(voices)}
    sizes["test"] = settings.test * len(voices)
    splits = draw_sentences(settings.sentences, rng, sizes, settings.long_sentences * len(voices))

    parts = []
    for split, sentences in splits.items():
        # Dealt in turn, so that each voice gets its share of every length.
        turns = weights if split == "train" else [1] * len(voices)
        dealers = [number for number, weight in enumerate(turns) for _ in range(weight)]

        for number, voice in enumerate(voices):
            dealt = [sentence for turn, sentence in enumerate(sentences) if dealers[turn % len(dealers)] == number]
            parts.append(_VoicePart(FIRST_SPEAKER + number, voice, split, dealt))
    return parts


def _add_noise(
    samples: npt.NDArray[np.float32], rng: np.random.Generator, settings: RoundTripCorpusSettings
) -> npt.NDArray[np.int16]:
    background = acoustics.generate_noise(rng, "white", len(samples), settings.sample_rate)
    mixed = acoustics.mix_at_snr(samples, background, rng.uniform(settings.min_snr, settings.max_snr))
    return acoustics.quantize_samples(acoustics.normalize_peak(mixed, rng.uniform(-12, -3)))


def draw_sentences(
    kind: SentenceKind, rng: np.random.Generator, sizes: dict[str, int], long_sentences: int
) -> dict[str, list[Sentence]]:
    """Draws the sentences of each split; none is in two splits. Test ends with sentences longer than any of train.

    Raises:
      SettingsError: there are not that many different sentences.
    """
    # Different over all splits. Long ones are drawn by themselves, as they are longer than any of these.
    sentences = _draw_different(kind, rng, sum(sizes.values()), long=False)
    splits = {}
    start = 0
    for split, size in sizes.items():
        splits[split] = sentences[start : start + size]
        start += size

    splits["test"] += _draw_different(kind, rng, long_sentences, long=True)
    return splits


def _draw_different(kind: SentenceKind, rng: np.random.Generator, count: int, *, long: bool) -> list[Sentence]:
    # A dictionary keeps the order of the draws. It gives up when fewer than 2% of a batch are new.
    drawn: dict[Sentence, None] = {}
    while len(drawn) < count:
        before = len(drawn)
        drawn |= dict.fromkeys(DRAW[kind](rng, max(count, 100), long=long))
        if len(drawn) - before < max(count, 100) // 50:
            raise SettingsError(
                f"demo corpus: cannot draw {count:,} different sentences of kind {kind!r}; after {len(drawn):,} hardly "
                "any new one comes; ask for fewer sentences or voices"
            )
    return list(drawn)[:count]


def record_sentences(
    voice: EspeakVoice, sentences: list[Sentence], sample_rate: int, workers: int
) -> Iterator[npt.NDArray[np.float32]]:
    """Yields the sentences in their order as float32 samples, with short silence at both ends."""
    # Batches do not depend on the number of workers, and `map` yields them in order, so neither do the samples.
    batches = [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]
    progress = Progress("sentences", len(sentences))

    with ThreadPoolExecutor(workers) as pool:
        for batch in pool.map(lambda batch: _record_batch(voice, batch, sample_rate), batches):
            yield from batch
            progress.advance(len(batch))


def _record_batch(voice: EspeakVoice, batch: list[Sentence], sample_rate: int) -> list[npt.NDArray[np.float32]]:
    import soxr

    recordings, rate = speak(voice, [sentence.normalized for sentence in batch])
    if rate != sample_rate:
        recordings = [soxr.resample(samples, rate, sample_rate) for samples in recordings]
    return [acoustics.trim_silence(samples, sample_rate, keep=acoustics.MARGIN_SECONDS) for samples in recordings]
