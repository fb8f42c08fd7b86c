"""dataset: opens a published version, in place of the steps that made it.

The version's folder is the output: train reads its features, and `read_utterances` its rows. Nothing is copied, so
nothing is left for a purge.

`latest` becomes a number here, once for all later steps, whose keys name the content. A run on this machine has the
number before it starts, for its config.
"""

import time
from pathlib import Path

from voxline.components.dataset.settings import VersionSettings
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.rows import ROWS_FILE
from voxline.data.versions import VERSION_FILE, PublishedVersion, find_version
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.layout import WAVS
from voxline.store.objects import open_store


def run(datasets: Path | str, settings: VersionSettings) -> PublishedVersion:
    """Opens a version.

    Args:
      datasets: holds a folder for each dataset: a folder or bucket URI.
      settings: `dataset` names the version: digits@7, or digits@latest.

    Raises:
      SettingsError: the version does not exist.
      WorkError: it is damaged, or lost its shards, or the WAVs of its dev and test splits.
    """
    start = time.monotonic()
    versions, number = find_version(datasets, settings.dataset)
    version = Dataset.read(versions.path(number), shards=False)
    _check_audio(version, f"{versions.name}@{number}")
    total = sum(version.counts.values())
    print_status(f"dataset: version {number:,} of {versions.name}, {total:,} utterances")

    # A version has the corpora of its rows, and none of the weights that its refresh gave them.
    corpora = sorted({str(row.extra["corpus"]) for row in version.rows() if row.extra.get("corpus")})
    if len(corpora) > 1:
        print_status(
            f"dataset: its utterances are of several corpora ({', '.join(corpora)}), each drawn once in an epoch "
            "unless train.corpus_weights gives it a weight"
        )

    # It is the work of the refresh that published it, so a run reports it as reused.
    output = PublishedVersion("dataset", version.folder, version.key, reused=True, version_uri=versions.uri_of(number))
    output.counts = {"version": number, "utterances": total, **version.counts}
    output.metrics = {f"{split}_hours": round(seconds / 3600, 4) for split, seconds in version.seconds.items()}
    output.outputs = {"dataset": DATASET_FILE, "rows": ROWS_FILE, "version": VERSION_FILE}
    output.seconds = time.monotonic() - start
    return output


def _check_audio(version: Dataset, name: str) -> None:
    """Refuses before a training what evaluate would refuse after it: training reads shards alone, evaluate WAVs."""
    if version.is_text:
        return
    pool = open_store(f"{version.shard_store()}/{WAVS}")
    judged = {row.audio_hash for row in version.rows() if row.split in ("dev", "test")}
    wavs = [f"{audio_hash[:2]}/{audio_hash}.wav" for audio_hash in sorted(judged)]
    missing = [wav for wav, info in zip(wavs, pool.map(pool.stat, wavs), strict=True) if info is None]
    if missing:
        raise WorkError(
            f"{name}: {len(missing):,} of {len(wavs):,} recordings of dev and test are gone, so no model could be "
            f"measured ({pool.uri_of(missing[0])}); refresh the corpus of that version with the same store, or name "
            "another version"
        )
