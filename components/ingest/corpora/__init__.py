"""The corpora that Voxline reads, a module each.

To add one: write `corpora/<name>.py` with a function

    def entries(corpus: Corpus) -> Iterator[Entry | Reject]

that yields every utterance which the corpus names, in a fixed order (`fsdd.py` is the shortest to learn
from), and name it here. Then `corpus.format: <name>` reads it.
"""

from collections.abc import Callable, Iterator

from voxline.components.ingest.corpora import csv, fsdd, kaldi, librispeech, ljspeech, manifest, thchs30
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.rejects import Reject

CORPORA: dict[str, Callable[[Corpus], Iterator[CorpusEntry | Reject]]] = {
    "librispeech": librispeech.entries,
    "ljspeech": ljspeech.entries,
    "thchs30": thchs30.entries,
    "fsdd": fsdd.entries,
    "manifest": manifest.entries,
    "csv": csv.entries,
    "kaldi": kaldi.entries,
}
"""By the name that `corpus.format` takes."""
