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
from voxline.progress import print_status


def run(datasets: Path | str, settings: VersionSettings) -> PublishedVersion:
    """Opens a version.

    Args:
      datasets: holds a folder for each dataset: a folder or bucket URI.
      settings: `dataset` names the version: digits@7, or digits@latest.

    Raises:
      SettingsError: the version does not exist.
      WorkError: it is damaged, or lost its shards.
    """
    start = time.monotonic()
    versions, number = find_version(datasets, settings.dataset)
    version = Dataset.read(versions.path(number), shards=False)
    total = sum(version.counts.values())
    print_status(f"dataset: version {number:,} of {versions.name}, {total:,} utterances")

    # It is the work of the refresh that published it, so a run reports it as reused.
    output = PublishedVersion("dataset", version.folder, version.key, reused=True, version_uri=versions.uri_of(number))
    output.counts = {"version": number, "utterances": total, **version.counts}
    output.metrics = {f"{split}_hours": round(seconds / 3600, 4) for split, seconds in version.seconds.items()}
    output.outputs = {"dataset": DATASET_FILE, "rows": ROWS_FILE, "version": VERSION_FILE}
    output.seconds = time.monotonic() - start
    return output
