"""Generates corpora for ASR in LibriSpeech's layout.

commands     many speakers in their rooms give commands to a house; a manifest beside it names each command
words        many speakers, natives and others, say each of a few words
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus import acoustics
from voxline.components.demo_corpus.commands import COMMANDS, Commands
from voxline.components.demo_corpus.espeak import speak
from voxline.components.demo_corpus.layouts import (
    SUBSETS,
    SpeakerRecord,
    utterance_file,
    write_chapter,
    write_manifest_beside,
    write_speakers,
)
from voxline.components.demo_corpus.settings import LANGUAGES, CommandsCorpusSettings, WordsCorpusSettings
from voxline.components.demo_corpus.speakers import ACCENTS, MIN_REVERBERATION, Speaker, draw_speakers
from voxline.progress import Progress, print_status

SENTENCE_SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
"""Of the sentences of each template. No sentence is in two splits, so dev and test measure sentences never heard."""

SAMPLE_RATE = 16000
CHAPTER = 1


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

        yield acoustics.quantize_samples(acoustics.normalize_peak(samples, rng.uniform(-15, -3)))


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
        samples = soxr.resample(recording, rate, SAMPLE_RATE)
        samples = acoustics.trim_silence(samples, SAMPLE_RATE, keep=acoustics.MARGIN_SECONDS)
        yield acoustics.quantize_samples(acoustics.normalize_peak(samples, -6))
