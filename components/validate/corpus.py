"""The manifest as columns: small enough in memory for hundreds of thousands of utterances."""

import array
import collections
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.speech.storage import hash_value
from components.speech.utterances import REJECTS, Utterance, each_utterance, fingerprint, manifest_file, read_rejects
from components.validate.settings import SPLITS
from components.validate.units import characters_in, words_in

Rows = npt.NDArray[np.int64]
"""Places of utterances in the manifest, from 0."""

Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
MEASURED = ("peak_db", "rms_db", "clipped_share", "silence_share")


class Strings:
    """A column of strings in which many are alike: each stands once, a row holds its number.

    Attributes:
      names: the distinct strings, in order of appearance.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._codes = array.array("i")

    def append(self, name: str) -> None:
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self.names):
            self.names.append(name)
        self._codes.append(number)

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, row: int) -> str:
        return self.names[self._codes[row]]

    @functools.cached_property
    def codes(self) -> Codes:
        """[utterances] the number of each row's string; for reading once all rows are in."""
        return np.array(self._codes, dtype=np.int32)

    def number(self, name: str) -> int:
        """The number of a string, -1 if no row has it."""
        return self._numbers.get(name, -1)


@dataclasses.dataclass
class Corpus:
    """The columns.

    Attributes:
      recordings: what names the samples: their hash where convert measured it, else the source's hash and the
        segment; empty where neither is known.
      measured: by name, [utterances]; NaN where the step before did not measure.
      rejects: codes of the step before and how often; None where there is no list of them.
      key_of_rejects: names them.
      names_all: whether every utterance names its recording by content.
    """

    ids: list[str] = dataclasses.field(default_factory=list)
    paths: list[str] = dataclasses.field(default_factory=list)
    texts: Strings = dataclasses.field(default_factory=Strings)
    speakers: Strings = dataclasses.field(default_factory=Strings)
    recordings: Strings = dataclasses.field(default_factory=Strings)
    splits: Strings = dataclasses.field(default_factory=Strings)
    _durations: "array.array[float]" = dataclasses.field(default_factory=lambda: array.array("f"))
    _offsets: "array.array[float]" = dataclasses.field(default_factory=lambda: array.array("d"))
    _measured: "dict[str, array.array[float]]" = dataclasses.field(
        default_factory=lambda: {name: array.array("f") for name in MEASURED}
    )
    rejects: dict[str, int] | None = None
    key_of_rejects: str = ""
    names_all: bool = True

    @classmethod
    def read(cls, manifest: Path, known: str = "") -> tuple["Corpus", str]:
        """Reads a manifest and the rejects beside it. Returns the columns, and what names the utterances.

        Args:
          known: that name, where it is known already.
        """
        corpus = cls()
        utterances = corpus._taking(each_utterance(manifest))
        if known:
            collections.deque(utterances, maxlen=0)
        named = known or fingerprint(utterances)
        corpus.rejects, corpus.key_of_rejects = rejects_beside(manifest)
        return corpus, named

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, *splits: str) -> Rows:
        """The rows of these splits, in the manifest's order."""
        return np.flatnonzero(np.isin(self.splits.codes, [self.splits.number(split) for split in splits]))

    @functools.cached_property
    def durations(self) -> Floats:
        """[utterances] seconds."""
        return np.array(self._durations, dtype=np.float32)

    @functools.cached_property
    def measured(self) -> dict[str, Floats]:
        return {name: np.array(values, dtype=np.float32) for name, values in self._measured.items()}

    @functools.cached_property
    def characters(self) -> Codes:
        """[utterances] characters in the transcript, spaces and punctuation not counted."""
        lengths = np.array([characters_in(text) for text in self.texts.names], dtype=np.int32)
        return lengths[self.texts.codes] if len(lengths) else lengths

    @functools.cached_property
    def words(self) -> Codes:
        """[utterances] words in the transcript."""
        lengths = np.array([len(words_in(text)) for text in self.texts.names], dtype=np.int32)
        return lengths[self.texts.codes] if len(lengths) else lengths

    def offset(self, row: int) -> float:
        """Seconds into the file at which an utterance begins."""
        return self._offsets[row]

    def present_splits(self) -> list[str]:
        """The splits that have utterances; train, dev and test first."""
        return sorted(self.splits.names, key=lambda split: (SPLITS.index(split) if split in SPLITS else 9, split))

    def _taking(self, utterances: Iterable[Utterance]) -> Iterator[Utterance]:
        """Hands utterances on, and keeps what the checks need of each."""
        for utterance in utterances:
            self.ids.append(utterance.id)
            self.paths.append(utterance.audio_filepath)
            self.texts.append(utterance.text)
            self.speakers.append(utterance.speaker)
            self.splits.append(utterance.split)
            self.recordings.append(_recording(utterance))
            self._durations.append(utterance.duration)
            self._offsets.append(utterance.offset)
            self.names_all = self.names_all and utterance.audio_hash != ""
            for name, values in self._measured.items():
                value = utterance.measured.get(name)
                values.append(float("nan") if value is None else float(value))
            yield utterance


def rejects_beside(manifest: Path) -> tuple[dict[str, int] | None, str]:
    """What stands in the list of rejects beside a manifest: how many of each code, and what names them."""
    beside = manifest_file(manifest).parent / REJECTS
    if not beside.is_file():
        return None, ""
    rejects = read_rejects(beside)
    codes = collections.Counter(str(reject.reason) for reject in rejects).most_common()
    return dict(codes), hash_value(sorted([reject.id, str(reject.reason)] for reject in rejects))


def _recording(utterance: Utterance) -> str:
    if utterance.measured.get("pcm_hash"):
        return str(utterance.measured["pcm_hash"])
    if not utterance.audio_hash:
        return ""
    return f"{utterance.audio_hash} {utterance.offset:.3f} {utterance.duration:.3f}"
