"""The registry of corpus formats, a module each.

To add a format, write `corpora/<name>.py` with a function

    def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]

that yields every utterance that the corpus names, in a fixed order (`fsdd.py` is the shortest example), and list the
module in `FORMATS` below. The setting `corpus.format: <name>` then reads it, and the help and the reference of settings
list it. docs/extend/corpus-format.md walks through one.
"""

from collections.abc import Callable, Iterator

from voxline.components.ingest.corpora import csv, fsdd, kaldi, librispeech, ljspeech, manifest, thchs30
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.rejects import Reject

FORMATS = (librispeech, ljspeech, thchs30, fsdd, manifest, csv, kaldi)

CORPORA: dict[str, Callable[[Corpus], Iterator[CorpusEntry | Reject]]] = {
    module.__name__.rpartition(".")[2]: module.entries for module in FORMATS
}
"""The reader of each format, by the name that `corpus.format` accepts."""
