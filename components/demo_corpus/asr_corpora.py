"""Generates corpora for ASR in LibriSpeech's layout.

commands     many speakers in their rooms give commands to a house; a manifest beside it names each command
words        many speakers, natives and others, say each of a few words
round trip   the TTS voice and others read sentences, for the recognizer that judges synthesized speech
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus import acoustics
from voxline.components.demo_corpus.commands import COMMANDS, Commands
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.components.demo_corpus.grammar import Sentence
from voxline.components.demo_corpus.layouts import (
    SUBSETS,
    SpeakerRecord,
    utterance_file,
    write_chapter,
    write_manifest_beside,
    write_speakers,
)
from voxline.components.demo_corpus.settings import (
    LANGUAGES,
    CommandsCorpusSettings,
    RoundTripCorpusSettings,
    WordsCorpusSettings,
)
from voxline.components.demo_corpus.speakers import (
    ACCENTS,
    FEMALE,
    MIN_REVERBERATION,
    Speaker,
    draw_speakers,
    draw_variants,
)
from voxline.components.demo_corpus.tts_corpora import (
    MARGIN_SECONDS,
    draw_sentences,
    quantize_samples,
    record_sentences,
)
from voxline.progress import Progress, print_status
from voxline.text.alphabet import normalize_transcript

SENTENCE_SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
"""Of the sentences of each template. No sentence is in two splits, so dev and test measure sentences never heard."""

SAMPLE_RATE = 16000
CHAPTER = 1
FIRST_SPEAKER = 1001


@dataclasses.dataclass(frozen=True, slots=True)
class _SpeakerPart:
    """The utterances of one speaker, all in one split."""

    speaker: Speaker
    split: str
    utterances: int


def write_commands_corpus(root: Path, settings: CommandsCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus of commands into the folder `root`, and a manifest beside it. Returns counts."""
    # Sentences are dealt to the splits before anything is spoken, so that none of test is in train.
    parts = _assign_speakers(settings)
    commands = COMMANDS[settings.language]
    sentences = commands.grammar.split(np.random.default_rng((settings.seed, 5)), SENTENCE_SHARES)

    total = sum(part.utterances for part in parts)
    print_status(f"demo corpus: {len(parts)} voices speak {total:,} commands")
    progress = Progress("utterances", total)

    speakers = []
    lines: list[dict[str, str]] = []

    # A thread waits for its espeak process, which does the work.
    with ThreadPoolExecutor(workers) as pool:
        # Results come in the order of the parts, so the corpus does not depend on which thread is first.
        recorded = pool.map(lambda part: _record_part(root, part, commands, sentences[part.split], settings), parts)
        for part, (seconds, texts) in zip(parts, recorded, strict=True):
            name = part.speaker.voice.name
            speakers.append(SpeakerRecord(part.speaker.id, part.speaker.sex, SUBSETS[part.split], seconds, name))
            lines += _manifest_lines(root, part, commands, texts)
            progress.advance(part.utterances, note=f"{name} is done")

    write_speakers(root, speakers)
    write_manifest_beside(root.parent, lines)
    seconds = round(sum(speaker.seconds for speaker in speakers))
    return {
        "utterances": total,
        "speakers": len(parts),
        "seconds": seconds,
        **{split: sum(part.utterances for part in parts if part.split == split) for split in SUBSETS},
    }


def _assign_speakers(settings: CommandsCorpusSettings) -> list[_SpeakerPart]:
    """Assigns each speaker to one split."""
    sizes = {
        "train": (settings.train_speakers, settings.utterances_per_speaker),
        "dev": (settings.dev_speakers, settings.dev_utterances_per_speaker),
        "test": (settings.test_speakers, settings.utterances_per_speaker),
    }

    # A speaker is in one split alone, so that test has voices which train does not.
    splits = [(split, utterances) for split, (speakers, utterances) in sizes.items() for _ in range(speakers)]
    accents = ACCENTS if settings.language == "english" else (LANGUAGES["mandarin"],)
    speakers = draw_speakers(len(splits), settings.seed, settings.max_reverberation, accents)
    return [_SpeakerPart(speaker, *split) for speaker, split in zip(speakers, splits, strict=True)]


def _record_part(
    root: Path, part: _SpeakerPart, commands: Commands, sentences: set[str], settings: CommandsCorpusSettings
) -> tuple[float, list[str]]:
    """Generates and writes the utterances of one speaker. Returns their seconds, and their sentences."""
    # The speaker's own generator, so that a part sounds the same whatever other parts there are.
    rng = np.random.default_rng((*part.speaker.seed, 1))
    drawn = commands.grammar.draw(rng, part.utterances, sentences)

    dry, rate = speak(part.speaker.voice, [commands.spoken(sentence) for sentence in drawn])
    recordings = _record_in_room(part.speaker, dry, rate, rng, settings)

    chapter = zip(map(commands.written, drawn), recordings, strict=True)
    return write_chapter(root, SUBSETS[part.split], part.speaker.id, CHAPTER, chapter, SAMPLE_RATE), drawn


def _manifest_lines(
    root: Path, part: _SpeakerPart, commands: Commands, sentences: Sequence[str]
) -> Iterator[dict[str, str]]:
    """The name of each utterance's command, for which the layout of LibriSpeech has no place."""
    for number, sentence in enumerate(sentences):
        file = utterance_file(root, SUBSETS[part.split], part.speaker.id, CHAPTER, number)
        yield {
            "id": file.stem,
            "audio_filepath": file.relative_to(root.parent).as_posix(),
            "text": commands.written(sentence),
            "speaker": str(part.speaker.id),
            "split": part.split,
            "command": commands.names[sentence],
        }


def _record_in_room(
    speaker: Speaker,
    dry: list[npt.NDArray[np.float32]],
    rate: int,
    rng: np.random.Generator,
    settings: CommandsCorpusSettings,
) -> Iterator[npt.NDArray[np.int16]]:
    """Adds the room's reverberation, noise and a level, drawn for each utterance."""
    import soxr

    # The order of the draws is part of the corpus: response, noise, signal-to-noise ratio, level.
    for recording in dry:
        samples = acoustics.trim_silence(soxr.resample(recording, rate, SAMPLE_RATE), SAMPLE_RATE)

        response = acoustics.draw_impulse_response(rng, SAMPLE_RATE, speaker.reverberation)
        samples = acoustics.reverberate(samples, response)

        background = acoustics.generate_noise(rng, speaker.noise, len(samples), SAMPLE_RATE)
        samples = acoustics.mix_at_snr(samples, background, rng.uniform(settings.min_snr, settings.max_snr))

        yield quantize_samples(acoustics.normalize_peak(samples, rng.uniform(-15, -3)))


def write_words_corpus(root: Path, settings: WordsCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus of words into the folder `root`. Returns counts."""
    # An accent of another language reads the words in that language's spelling.
    spoken = settings.spoken
    speakers = draw_speakers(settings.speakers, settings.seed, MIN_REVERBERATION, list(spoken))
    total = len(speakers) * len(settings.words)
    print_status(f"demo corpus: {len(speakers)} voices say {len(settings.words)} words each")

    progress = Progress("utterances", total)
    subset = SUBSETS["train"]
    records = []

    def record(speaker: Speaker) -> float:
        dry, rate = speak(speaker.voice, spoken[speaker.voice.language])
        chapter = zip(settings.words, _record_closely(dry, rate), strict=True)
        return write_chapter(root, subset, speaker.id, CHAPTER, chapter, SAMPLE_RATE)

    with ThreadPoolExecutor(workers) as pool:
        for speaker, seconds in zip(speakers, pool.map(record, speakers), strict=True):
            records.append(SpeakerRecord(speaker.id, speaker.sex, subset, seconds, speaker.voice.name))
            progress.advance(len(settings.words), note=f"{speaker.voice.name} is done")

    write_speakers(root, records)
    seconds = round(sum(item.seconds for item in records))
    return {"utterances": total, "speakers": len(speakers), "seconds": seconds, "train": total}


def _record_closely(dry: Iterable[npt.NDArray[np.float32]], rate: int) -> Iterator[npt.NDArray[np.int16]]:
    """Recordings of one level without a room, cut closely."""
    import soxr

    for recording in dry:
        samples = acoustics.trim_silence(soxr.resample(recording, rate, SAMPLE_RATE), SAMPLE_RATE, keep=MARGIN_SECONDS)
        yield quantize_samples(acoustics.normalize_peak(samples, -6))


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
    return quantize_samples(acoustics.normalize_peak(mixed, rng.uniform(-12, -3)))
