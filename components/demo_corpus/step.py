"""A generated corpus in a publisher's layout, whole or absent.

It is good for showing and testing that a pipeline works, and no ground for claims about real speech.
"""

import os
import time
from pathlib import Path

from voxline.components.demo_corpus.output_folder import commit_output, exclusive_output, read_marker
from voxline.components.demo_corpus.settings import (
    CommandsCorpusSettings,
    DemoCorpusSettings,
    RoundTripCorpusSettings,
    TtsCorpusSettings,
)
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput

REVISION = 1


def run(folder: Path | str, settings: DemoCorpusSettings, *, workers: int | None = None) -> StepOutput:
    """Writes the corpus to `folder`, or finds it there: LibriSpeech, LJSpeech or data_thchs30, by its kind.

    The files are the same, byte for byte, for the same settings on one machine, whatever `workers` is
    (processes that speak at a time; all cores if None).

    Raises:
      WorkError: the folder cannot be written, or holds something that is not a corpus of ours.
    """
    start = time.monotonic()
    folder = Path(os.path.realpath(folder))
    named_by = {"step": "generate", "revision": REVISION, "settings": settings.plain()}
    work = StepOutput("generate", folder, hash_value(named_by), outputs={"corpus": _layout(settings)})
    try:
        with exclusive_output(folder, work.key) as unfinished:
            if unfinished is None:
                work.reused = True
                print_status(f"generate: reused, {folder} holds this corpus already")
            else:
                work.counts = _write(unfinished / work.outputs["corpus"], settings, workers or os.cpu_count() or 1)
                commit_output(unfinished, folder, {**named_by, "key": work.key, "counts": work.counts})
    except OSError as error:
        raise WorkError(
            f"{folder}: the corpus cannot be written there: {error}; name a folder on a disk with 50 MB free"
        ) from error
    work.counts = read_marker(folder)["counts"]
    work.seconds = time.monotonic() - start
    if not work.reused:
        counts = work.counts
        print_status(
            f"generate: {counts['utterances']:,} utterances of {counts['speakers']} speakers, "
            f"{counts['seconds'] / 60:.0f} minutes, in {folder} ({work.seconds:.0f} s)"
        )
    return work


def _layout(settings: DemoCorpusSettings) -> str:
    """The publisher's name of the corpus' folder."""
    if isinstance(settings, TtsCorpusSettings):
        return "data_thchs30" if settings.kind == "mandarin" else "LJSpeech"
    return "LibriSpeech"


def _write(root: Path, settings: DemoCorpusSettings, workers: int) -> dict[str, int]:
    """Writes the corpus into a folder that is there. Returns how many of what."""
    if isinstance(settings, TtsCorpusSettings):
        from voxline.components.demo_corpus.tts_corpora import write_tts_corpus

        return write_tts_corpus(root, settings, workers)
    if isinstance(settings, RoundTripCorpusSettings):
        from voxline.components.demo_corpus.asr_corpora import write_round_trip_corpus

        return write_round_trip_corpus(root, settings, workers)
    from voxline.components.demo_corpus.asr_corpora import write_commands_corpus

    return write_commands_corpus(root, CommandsCorpusSettings.of(settings.plain()), workers)
