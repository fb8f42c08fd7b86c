"""The demo corpus of recognition: commands spoken by generated voices in their rooms, in LibriSpeech's layout."""

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.generate import room
from components.generate.commands import COMMANDS
from components.generate.librispeech import SUBSETS, SpeakerLine, write_chapter, write_speakers
from components.generate.settings import CommandsSettings
from components.generate.speakers import Speaker, draw_speakers
from components.generate.voice import speak
from components.speech.progress import Progress, say

SAMPLE_RATE = 16000
CHAPTER = 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """What one speaker records, in which split."""

    speaker: Speaker
    split: str
    utterances: int


def write_commands(root: Path, settings: CommandsSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into the folder `root`. Returns how many of what."""
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


def _cast(settings: CommandsSettings) -> list[_Part]:
    """Who is in which split; nobody is in two."""
    sizes = {
        "train": (settings.train_speakers, settings.utterances_per_speaker),
        "dev": (settings.dev_speakers, settings.dev_utterances_per_speaker),
        "test": (settings.test_speakers, settings.utterances_per_speaker),
    }
    splits = [(split, utterances) for split, (speakers, utterances) in sizes.items() for _ in range(speakers)]
    speakers = draw_speakers(len(splits), settings.seed, settings.reverberation_max)
    return [_Part(speaker, *split) for speaker, split in zip(speakers, splits, strict=True)]


def _record(root: Path, part: _Part, settings: CommandsSettings) -> float:
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
    settings: CommandsSettings,
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
