"""Publish: a dataset becomes a version that has a number and never changes."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from components.publish.settings import PublishSettings
from components.publish.versions import VERSION, Published, Versions
from components.speech.claim import told_of_the_disk
from components.speech.dataset import DATASET, Dataset
from components.speech.journal import utc
from components.speech.mirror import local
from components.speech.progress import say
from components.speech.rows import ROWS
from components.speech.shards import pool_held
from components.speech.work import Work


@dataclasses.dataclass
class PublishedWork(Work):
    """The folder of a version: where it lies is told by the versions, and not by keyed work."""

    address: str = ""

    @property
    def place(self) -> str:
        return self.address


def run(dataset: Path | str, store: Path | str, datasets: Path | str, settings: PublishSettings) -> Work:
    """Publishes a dataset under the next number, unless the latest version has this very content.

    Args:
      dataset: the folder that extract wrote, or gs://…
      store: holds the shards.
      datasets: holds a folder for each dataset; a folder, or gs://…

    Raises:
      WorkError: the dataset is damaged, or `datasets` cannot be written.
    """
    start = time.monotonic()
    folder = local(dataset)
    versions = Versions(datasets, settings.name)
    with told_of_the_disk("publish", versions.folder), held_dataset(folder) as read, versions.locked():
        latest = versions.latest()
        if reused := latest is not None and latest.key == read.key:
            folder = versions.path(latest.number)
            say(f"publish: version {latest.number} of {settings.name} has this content already")
        else:
            folder = publish_version(read, store, versions, compact_below=settings.compact_below)
    work = PublishedWork("publish", folder, read.key, reused=reused, address=f"{versions.place}/{folder.name}")
    work.counts = {"version": int(folder.name), "utterances": sum(read.counts.values()), **read.counts}
    work.outputs = {"dataset": DATASET, "rows": ROWS, "version": VERSION}
    work.seconds = time.monotonic() - start
    return work


@contextlib.contextmanager
def held_dataset(folder: Path) -> Iterator[Dataset]:
    """A dataset whose shards nobody takes away meanwhile."""
    dataset = Dataset.read(folder, shards=False)
    pools = {file.parent.parent for file in dataset.files() if file.parent.parent.is_dir()}
    with contextlib.ExitStack() as held:
        for pool in sorted(pools):
            held.enter_context(pool_held(pool))
        yield Dataset.read(folder, shards=False)  # what was there a moment ago may have gone in between


def publish_version(
    dataset: Dataset, store: Path | str, versions: Versions, *, compact_below: float, note: str = ""
) -> Path:
    """Publishes a dataset as a new version, with what is mostly dead of its shards left behind.

    To be called with the lock of the versions held.
    """
    from components.publish.compaction import compact, mostly_dead
    from components.publish.difference import count_changes
    from components.speech.places import save_places

    latest = versions.latest()
    changes: dict[str, int] = {}
    if latest:
        changes = count_changes(Dataset.listed(versions.path(latest.number)), dataset)

    def write(folder: Path, target: Path) -> None:
        if not (dead := mostly_dead(dataset, compact_below)):
            dataset.copy_to(folder, target)
            return
        compacted = compact(dataset, store, target, dead)
        dataset.copy_rows(folder)
        places = save_places(folder, compacted.places)
        dataclasses.replace(dataset, shards=compacted.shards, places=places).write(folder)
        say(
            f"publish: {compacted.rewritten:,} shards were mostly dead: {compacted.bytes_alive / 1e6:,.1f} MB copied, "
            f"{compacted.bytes_dead / 1e6:,.1f} MB left behind"
        )

    def described(number: int) -> Published:
        replaces = latest.number if latest else None
        return Published(number, dataset.key, utc(time.time()), replaces, note, dict(dataset.counts), changes)

    folder = versions.publish(write, described)
    told = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in changes.items() if count)
    say(
        f"publish: version {folder.name} of {versions.name}, {sum(dataset.counts.values()):,} utterances"
        + (f"; since version {latest.number}: {told}" if latest and told else "")
    )
    return folder
