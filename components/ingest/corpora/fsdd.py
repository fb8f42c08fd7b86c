"""The Free Spoken Digit Dataset: English digits, one a recording, 8 kHz, six speakers × 50 × 10.

By Zohar Jackson and others, https://github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0.
Its official test split is the recordings with an index of 0 to 4 (10%); it has no dev split.
"""

import re
from collections.abc import Iterator

from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.rejects import Reason, Reject

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEST_INDICES = range(5)

# {digit}_{speaker}_{index}.wav:
#   7_jackson_32.wav
_NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[^_]+)_(?P<index>\d+)")


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every recording, in any folder below the root (`recordings/` in the publisher's layout)."""
    for path in corpus.find_audio():
        name = _NAME.fullmatch(path.stem)
        if name is None:
            yield Reject(
                str(path), Reason.BAD_ENTRY, f"{path}: the name of the file is not {{digit}}_{{speaker}}_{{index}}"
            )
            continue

        # The name of the file is all that the corpus says of a recording.
        yield CorpusEntry(
            id=path.stem,
            audio=str(path),
            text=WORDS[int(name["digit"])],
            speaker=name["speaker"],
            split="test" if int(name["index"]) in TEST_INDICES else "train",
            source=str(path),
        )
