"""Generates a corpus for TTS: one clean voice that reads each sentence once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus import acoustics
from voxline.components.demo_corpus.english import draw_digits, draw_phrases
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.components.demo_corpus.grammar import Sentence
from voxline.components.demo_corpus.layouts import write_ljspeech, write_thchs30
from voxline.components.demo_corpus.mandarin import draw_mandarin
from voxline.components.demo_corpus.settings import SentenceKind, TtsCorpusSettings
from voxline.errors import SettingsError
from voxline.progress import Progress, print_status

BATCH = 50
"""Sentences of one espeak process. It is not a setting, since the samples depend on it (see espeak_process.py)."""
MARGIN_SECONDS = 0.05

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
        (split, sentence, quantize_samples(recording))
        for (split, sentence), recording in zip(in_order, samples, strict=True)
    )

    write = write_thchs30 if settings.kind == "mandarin" else write_ljspeech
    seconds = write(root, recordings, settings.sample_rate)
    counts = {split: len(sentences) for split, sentences in splits.items()}
    return {"utterances": len(in_order), "speakers": 1, "seconds": round(seconds), **counts}


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


def quantize_samples(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """Scales samples in [-1, 1] to 16-bit numbers."""
    return np.rint(samples * 32767).astype(np.int16)


def _record_batch(voice: EspeakVoice, batch: list[Sentence], sample_rate: int) -> list[npt.NDArray[np.float32]]:
    import soxr

    recordings, rate = speak(voice, [sentence.normalized for sentence in batch])
    if rate != sample_rate:
        recordings = [soxr.resample(samples, rate, sample_rate) for samples in recordings]
    return [acoustics.trim_silence(samples, sample_rate, keep=MARGIN_SECONDS) for samples in recordings]
