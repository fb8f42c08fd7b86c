"""Publish: a dataset becomes a version that has a number and never changes."""

import time
from pathlib import Path

from components.publish.settings import PublishSettings
from components.publish.versions import VERSION, Published, Versions
from components.speech.dataset import DATASET, Dataset
from components.speech.journal import utc
from components.speech.progress import say
from components.speech.rows import ROWS
from components.speech.work import Work


def run(dataset: Path | str, store: Path | str, datasets: Path | str, settings: PublishSettings) -> Work:
    """Publishes a dataset under the next number, unless the latest version has this very content.

    Args:
      dataset: the folder that extract wrote.
      store: holds the shards.
      datasets: holds a folder for each dataset.

    Raises:
      WorkError: the dataset is damaged, or `datasets` cannot be written.
    """
    start = time.monotonic()
    read = Dataset.read(dataset)
    versions = Versions(datasets, settings.name)
    with versions.locked():
        latest = versions.latest()
        if reused := latest is not None and latest.key == read.key:
            folder = versions.path(latest.number)
            say(f"publish: version {latest.number} of {settings.name} has this content already")
        else:
            number = versions.next_number()
            published = Published(number, read.key, utc(time.time()), latest.number if latest else None)
            folder = versions.publish(read.copy_to, published)
            say(f"publish: version {number} of {settings.name}")
    work = Work("publish", folder, read.key, reused=reused)
    work.counts = {"version": int(folder.name), "utterances": sum(read.counts.values()), **read.counts}
    work.outputs = {"dataset": DATASET, "rows": ROWS, "version": VERSION}
    work.seconds = time.monotonic() - start
    return work
