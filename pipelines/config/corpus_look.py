"""What is in a folder of recordings, as `voxline config init` sees it: its format, its utterances, their files."""

import contextlib
import dataclasses
import io
import itertools
import tempfile
from collections import Counter
from pathlib import Path

from voxline.components.ingest.corpora import format_names, load_format
from voxline.components.ingest.corpus import Corpus, CorpusEntry, UnusableEntryError
from voxline.components.ingest.settings import SplitNames
from voxline.components.ingest.splits import split_patterns_cover
from voxline.errors import SettingsError, VoxlineError
from voxline.rejects import Reject
from voxline.store.scratch import scratch_root

ENTRIES_READ = 5_000
"""Utterances looked at; of a larger corpus, the first ones."""
FROM_FILE_NAMES = "fsdd"
"""The format without transcripts, which any other one is preferred to."""
ARCHIVES = (".parquet", ".arrow", ".tar", ".tar.gz", ".tgz")
UNPACKED_BYTES = 1_000_000_000
"""Archives of more bytes in all are not unpacked."""


@dataclasses.dataclass(frozen=True)
class CorpusLook:
    """The utterances that one format reads in a folder.

    Attributes:
      complete: False if the folder has more than `ENTRIES_READ`, so that counts are lower bounds.
      sample_rate: of most recordings in Hz, at most 16,000.
    """

    format: str
    entries: list[CorpusEntry]
    rejects: list[Reject]
    complete: bool
    sample_rate: int

    @property
    def texts(self) -> list[str]:
        return [entry.text for entry in self.entries]

    @property
    def speakers(self) -> int:
        return len({entry.speaker for entry in self.entries}) if all(entry.speaker for entry in self.entries) else 0

    @property
    def has_test(self) -> bool:
        """True if the corpus' own splits include train and test, and every one of them is known."""
        names = {entry.split for entry in self.entries}
        return split_patterns_cover(names, SplitNames())


def look_at_corpus(folder: Path) -> CorpusLook:
    """Archives in the folder are unpacked to look into them, unless they are large."""
    archives = Corpus(folder).find(*ARCHIVES)
    small = sum((folder / archive).stat().st_size for archive in archives) <= UNPACKED_BYTES
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        return _look_at(folder, Corpus(folder, exclude=scratch if small else None))


def _look_at(folder: Path, corpus: Corpus) -> CorpusLook:
    # Every format tries the folder: files of one may look like those of another, and only the counts tell.
    candidates: list[tuple[tuple[int, bool], CorpusLook]] = []
    for format in format_names():
        entries: list[CorpusEntry] = []
        rejects: list[Reject] = []
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # what they print is about other formats' files
                read = list(itertools.islice(load_format(format)(corpus), ENTRIES_READ + 1))
        except (VoxlineError, OSError, ValueError):
            continue  # not of this format

        for entry in read:
            if isinstance(entry, Reject):
                rejects.append(entry)
            else:
                entries.append(entry)
        rank = (len(entries) - len(rejects), format != FROM_FILE_NAMES)
        candidates.append((rank, CorpusLook(format, entries, rejects, len(read) <= ENTRIES_READ, sample_rate=0)))

    # The first of equal ones, in the order of the formats.
    best = max(candidates, key=lambda candidate: candidate[0])[1] if candidates else None
    if best is None or not best.entries:
        if archive := next(corpus.find(*ARCHIVES), None):
            raise SettingsError(
                f"{folder}: {archive} may hold the recordings; none was found in it, or it was not unpacked, because "
                f"the archives have more than {UNPACKED_BYTES / 1e9:g} GB; write a config with "
                "corpus.format huggingface, webdataset or nemo_tarred (docs/corpora.md)"
            )

        audio = sum(1 for _ in corpus.find_audio())
        raise SettingsError(
            f"{folder}: {audio:,} recordings, and no format of {', '.join(format_names())} finds a transcript; write a "
            'manifest.jsonl with a line such as {"audio_filepath": "clips/1.wav", "text": "good morning"} for each'
        )

    return dataclasses.replace(best, sample_rate=_sample_rate(corpus, best.entries))


def _sample_rate(corpus: Corpus, entries: list[CorpusEntry]) -> int:
    """The rate of most of the first recordings, at most 16 kHz: speech has little above 8 kHz."""
    import soundfile

    # Twenty recordings from all over the list: a corpus is often sorted by source.
    rates: Counter[int] = Counter()
    for entry in entries[:: max(1, len(entries) // 20)][:20]:
        try:
            rates[soundfile.info(corpus.root / corpus.locate(entry.audio, entry.relative_to)[0]).samplerate] += 1
        except (UnusableEntryError, OSError, RuntimeError):
            continue
    return min(16_000, max(4_000, rates.most_common(1)[0][0])) if rates else 16_000
