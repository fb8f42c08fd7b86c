"""A corpus for synthesis: one generated voice that says each sentence once, with nothing but the voice to be heard."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus import acoustics
from voxline.components.demo_corpus.grammar import Sentence
from voxline.components.demo_corpus.layouts import write_ljspeech, write_thchs30
from voxline.components.demo_corpus.sentences import draw_sentences
from voxline.components.demo_corpus.settings import TtsCorpusSettings
from voxline.components.demo_corpus.speech import EspeakVoice, speak
from voxline.progress import Progress, print_status

BATCH = 50
"""Sentences that one process says: what they sound like depends on it (see espeak.py), so it is no setting."""
MARGIN_SECONDS = 0.05


def write_tts_corpus(root: Path, settings: TtsCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into the folder `root`. Returns how many of what."""
    rng = np.random.default_rng((settings.seed, 2))
    sizes = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    splits = draw_sentences(settings.kind, rng, sizes, settings.longer)
    told = [(split, sentence) for split, sentences in splits.items() for sentence in sentences]
    voice = settings.voice(settings.kind)
    print_status(f"generate: {voice.name} says {len(told):,} {settings.kind}")
    spoken = record_sentences(voice, [sentence for _, sentence in told], settings.sample_rate, workers)
    recordings = ((split, sentence, to_int16(samples)) for (split, sentence), samples in zip(told, spoken, strict=True))
    write = write_thchs30 if settings.kind == "mandarin" else write_ljspeech
    seconds = write(root, recordings, settings.sample_rate)
    counts = {split: len(sentences) for split, sentences in splits.items()}
    return {"utterances": len(told), "speakers": 1, "seconds": round(seconds), **counts}


def record_sentences(
    voice: EspeakVoice, sentences: list[Sentence], sample_rate: int, workers: int
) -> Iterator[npt.NDArray[np.float32]]:
    """The sentences as float32 samples in their order, with short silence at both ends."""
    batches = [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]
    progress = Progress("sentences", len(sentences))
    with ThreadPoolExecutor(workers) as pool:
        for batch in pool.map(lambda batch: _say(voice, batch, sample_rate), batches):
            yield from batch
            progress.advance(len(batch))


def to_int16(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """As 16-bit numbers, [samples]."""
    return np.rint(samples * 32767).astype(np.int16)


def _say(voice: EspeakVoice, batch: list[Sentence], sample_rate: int) -> list[npt.NDArray[np.float32]]:
    import soxr

    spoken, rate = speak(voice, [sentence.normalised for sentence in batch])
    if rate != sample_rate:
        spoken = [soxr.resample(samples, rate, sample_rate) for samples in spoken]
    return [acoustics.trim_silence(samples, sample_rate, keep=MARGIN_SECONDS) for samples in spoken]
