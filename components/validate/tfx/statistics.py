"""Statistics of a set of utterances, as keyed work: `<store>/statistics/<key>/statistics.pb`.

The key holds nothing but the utterances' fingerprint, so that whoever knows which utterances a model was trained on
finds their statistics, whatever schema or thresholds they were once held against.
"""

from pathlib import Path

from components.speech.buckets import Bucket, is_remote
from components.speech.mirror import local
from components.speech.settings import Settings
from components.speech.work import DONE, Work, keyed_work, named_work
from components.validate.tfx.examples import Examples

STEP = "statistics"
STATISTICS = "statistics.pb"
REVISION = 1
"""Raised when the features change in a way that makes old statistics no measure of new ones."""


def statistics_of(examples: Examples, utterances: str, store: Path | str) -> Work:
    """The statistics of these utterances, made if need be; output `statistics`."""
    with keyed_work(store, STEP, Settings(), {"utterances": utterances}, revision=REVISION) as work:
        if not work.reused:
            from components.validate.tfx.engine import write_statistics

            work.outputs = {"statistics": STATISTICS}
            work.counts = {"utterances": len(examples)}
            write_statistics(examples, work.path("statistics"))
    return work


def kept_statistics(store: Path | str, utterances: str) -> Path | None:
    """The statistics of the utterances of that fingerprint, where the store has them; brought, where it is a bucket.

    Raises:
      WorkError: the bucket cannot be asked, or may not be read.
    """
    _, folder = named_work(store, STEP, Settings(), {"utterances": utterances}, REVISION)
    if is_remote(store):
        place = f"{str(store).rstrip('/')}/{STEP}/{folder.name}"
        if Bucket(place).stat(DONE) is None:
            return None
        folder = local(place)
    elif not (folder / DONE).is_file():
        return None
    file = folder / STATISTICS
    return file if file.is_file() else None
