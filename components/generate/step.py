"""The demo corpus: commands spoken by generated voices, in LibriSpeech's layout, whole or absent.

It is good for showing and testing that a pipeline works, and no ground for claims about real speech.
"""

import dataclasses
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.generate import room
from components.generate.finished import claimed, read_marker, take_place
from components.generate.grammar import draw_commands
from components.generate.librispeech import SUBSETS, SpeakerLine, write_chapter, write_speakers
from components.generate.settings import GenerateSettings
from components.generate.speakers import Speaker, draw_speakers
from components.generate.voice import speak
from components.speech.errors import WorkError
from components.speech.progress import Progress, say
from components.speech.storage import hash_value
from components.speech.work import Work

REVISION = 1
SAMPLE_RATE = 16000
CHAPTER = 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """What one speaker records, in which split."""

    speaker: Speaker
    split: str
    utterances: int


def run(folder: Path | str, settings: GenerateSettings, *, workers: int | None = None) -> Work:
    """Writes the corpus to `folder`/LibriSpeech, or finds it there.

    The files are the same, byte for byte, for the same settings on one machine, whatever `workers` is
    (processes that speak at a time; all cores if None).

    Raises:
      WorkError: the folder cannot be written, or holds something that is not a corpus of ours.
    """
    start = time.monotonic()
    folder = Path(os.path.realpath(folder))
    named_by = {"step": "generate", "revision": REVISION, "settings": settings.plain()}
    work = Work("generate", folder, hash_value(named_by), outputs={"corpus": "LibriSpeech"})
    try:
        with claimed(folder, work.key) as unfinished:
            if unfinished is None:
                work.reused = True
                say(f"generate: reused, {folder} holds this corpus already")
            else:
                work.counts = _write_corpus(unfinished / "LibriSpeech", settings, workers or os.cpu_count() or 1)
                take_place(unfinished, folder, {**named_by, "key": work.key, "counts": work.counts})
    except OSError as error:
        raise WorkError(
            f"{folder}: the corpus cannot be written there: {error}; name a folder on a disk with 50 MB free"
        ) from error
    work.counts = read_marker(folder)["counts"]
    work.seconds = time.monotonic() - start
    if not work.reused:
        counts = work.counts
        say(
            f"generate: {counts['utterances']:,} utterances of {counts['speakers']} speakers, "
            f"{counts['seconds'] / 60:.0f} minutes, in {folder} ({work.seconds:.0f} s)"
        )
    return work


def _write_corpus(root: Path, settings: GenerateSettings, workers: int) -> dict[str, int]:
    parts = _cast(settings)
    total = sum(part.utterances for part in parts)
    say(f"generate: {len(parts)} voices speak {total:,} commands")
    progress = Progress("utterances", total)
    speakers = []
    with ThreadPoolExecutor(workers) as pool:
        # Results come in the order of the parts, so that nothing depends on who is done first.
        for part, seconds in zip(parts, pool.map(lambda part: _record(root, part, settings), parts), strict=True):
            name = part.speaker.voice.name
            speakers.append(SpeakerLine(part.speaker.id, part.speaker.sex, SUBSETS[part.split], seconds, name))
            progress.advance(part.utterances, note=f"{name} is done")
    write_speakers(root, speakers)
    seconds = round(sum(speaker.seconds for speaker in speakers))
    return {
        "utterances": total,
        "speakers": len(parts),
        "seconds": seconds,
        **{split: sum(part.utterances for part in parts if part.split == split) for split in SUBSETS},
    }


def _cast(settings: GenerateSettings) -> list[_Part]:
    """Who is in which split; nobody is in two."""
    sizes = {
        "train": (settings.train_speakers, settings.utterances_per_speaker),
        "dev": (settings.dev_speakers, settings.dev_utterances_per_speaker),
        "test": (settings.test_speakers, settings.utterances_per_speaker),
    }
    splits = [(split, utterances) for split, (speakers, utterances) in sizes.items() for _ in range(speakers)]
    speakers = draw_speakers(len(splits), settings.seed, settings.reverberation_max)
    return [_Part(speaker, *split) for speaker, split in zip(speakers, splits, strict=True)]


def _record(root: Path, part: _Part, settings: GenerateSettings) -> float:
    """Lets one speaker say all, and writes it. Returns the seconds."""
    rng = np.random.default_rng((*part.speaker.seed, 1))
    texts = draw_commands(rng, part.utterances)
    spoken, rate = speak(part.speaker.voice, texts)
    recorded = _recordings(part.speaker, spoken, rate, rng, settings)
    chapter = zip(texts, recorded, strict=True)
    return write_chapter(root, SUBSETS[part.split], part.speaker.id, CHAPTER, chapter, SAMPLE_RATE)


def _recordings(
    speaker: Speaker,
    spoken: list[npt.NDArray[np.float32]],
    rate: int,
    rng: np.random.Generator,
    settings: GenerateSettings,
) -> Iterator[npt.NDArray[np.int16]]:
    """Each utterance as the microphone hears it: another place in the room, other noise, another level."""
    import soxr

    for dry in spoken:
        samples = room.trim_silence(soxr.resample(dry, rate, SAMPLE_RATE), SAMPLE_RATE)
        samples = room.reverberate(samples, room.impulse_response(rng, SAMPLE_RATE, speaker.reverberation))
        background = room.noise(rng, speaker.noise, len(samples), SAMPLE_RATE)
        samples = room.mix(samples, background, rng.uniform(settings.snr_min, settings.snr_max))
        samples = room.set_peak(samples, rng.uniform(-15, -3))
        yield np.rint(samples * 32767).astype(np.int16)
