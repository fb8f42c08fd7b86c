"""The features of a corpus for TFDV: one example for each utterance.

| feature       | type   | what it is                                                                    |
| duration      | float  | seconds                                                                       |
| frames        | int    | of 10 ms, the usual hop; the stride of a model is not a property of data      |
| labels        | int    | characters of the transcript, spaces included                                 |
| speaker       | text   | absent if the corpus does not say                                             |
| split         | text   |                                                                               |
| level         | float  | root mean square, dB below full scale; absent if convert did not measure     |
| silence       | float  | share of the recording; absent if convert did not measure                    |
| speaking_rate | float  | characters a second, spaces and punctuation not counted                       |
| tokens        | texts  | the words of the transcript (in pinyin: its syllables), with repetitions      |
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.components.validate.columns import Codes, RowIndices, StringColumn
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.tally import transcript_words

FRAME_SECONDS = 0.01

Numbers = npt.NDArray[Any]
"""`[utterances]` integers, or floats with NaN for a missing value."""


@dataclasses.dataclass(frozen=True)
class Examples:
    """The features of a corpus, in columns.

    Attributes:
      numbers: by name.
      texts: by name; "" for a missing value.
      sentences: the transcripts, for `tokens`.
    """

    numbers: dict[str, Numbers]
    texts: dict[str, StringColumn]
    sentences: StringColumn

    @classmethod
    def of(cls, corpus: CheckedCorpus) -> "Examples":
        # Columns by the name of the feature, as the schema and the page have it.
        durations = corpus.durations
        lengths = np.array([len(text) for text in corpus.texts.names], dtype=np.int64)

        return cls(
            numbers={
                "duration": durations,
                "frames": np.floor(durations.astype(np.float64) / FRAME_SECONDS + 1e-6).astype(np.int64),
                "labels": lengths[corpus.texts.codes] if len(lengths) else lengths,
                "level": corpus.measured["rms_db"],
                "silence": corpus.measured["silence_share"],
                "speaking_rate": (corpus.characters / np.maximum(durations, 1e-3)).astype(np.float32),
            },
            texts={"speaker": corpus.speakers, "split": corpus.splits},
            sentences=corpus.texts,
        )

    def __len__(self) -> int:
        return len(self.sentences)

    def tokens(self, start: int, stop: int) -> tuple[list[str], Codes, RowIndices]:
        """The tokens of some rows, concatenated.

        Returns:
          The distinct tokens of the corpus; `[tokens]` the index of each token in them; `[stop - start + 1]` the
          offsets of the rows' tokens.
        """
        # Equal transcripts share their tokens, so that each is split once.
        distinct, by_sentence = self._tokenized
        rows = [by_sentence[code] for code in self.sentences.codes[start:stop].tolist()]

        # One empty array more, since NumPy cannot concatenate none.
        flat = np.concatenate([*rows, np.empty(0, dtype=np.int32)])
        return distinct, flat, np.cumsum([0, *map(len, rows)], dtype=np.int64)

    @functools.cached_property
    def _tokenized(self) -> tuple[list[str], Sequence[Codes]]:
        numbers: dict[str, int] = {}
        by_sentence = [
            np.array([numbers.setdefault(word, len(numbers)) for word in transcript_words(text)], dtype=np.int32)
            for text in self.sentences.names
        ]
        return list(numbers), by_sentence
