"""The published datasets as the command shows them."""

from collections.abc import Iterator

from components.publish.collection import collect
from components.publish.step import held_dataset, mostly_dead, publish_version
from components.publish.versions import Published, Versions, names
from components.speech.dataset import Dataset
from components.speech.errors import WorkError
from components.speech.mirror import address_of


def table_of_datasets(root: str) -> list[str]:
    """A line for each dataset: its name, its latest version, what that holds."""
    lines = []
    for name in names(root):
        versions = Versions(root, name)
        if latest := versions.latest():
            lines.append(f"{name}  {_told(latest)}  (of {len(versions.numbers())} versions)")
    return lines or [f"{root}: no dataset was published here yet"]


def history_of(root: str, name: str) -> list[str]:
    """A line for each version, oldest first; the latest is marked."""
    versions = _known(root, name)
    numbers = versions.numbers()
    return [f"{'▸' if number == numbers[-1] else ' '} {_told(versions.published(number))}" for number in numbers]


def details_of(root: str, name: str, number: int) -> list[str]:
    """All that is known of one version."""
    versions = _known(root, name)
    folder = versions.path(number)
    published, dataset = versions.published(number), Dataset.read(folder, shards=False)
    live = sum(shard.live_bytes for shard in dataset.shards)
    size = sum(shard.bytes for shard in dataset.shards)
    shown = {
        "folder": address_of(folder),
        "published": published.at,
        "replaces": f"version {published.replaces}" if published.replaces else "nothing",
        "note": published.note,
        "key": dataset.key,
        "fingerprint": dataset.fingerprint,
        "features": f"{dataset.features.kind}, {dataset.features.bins} bins, {dataset.features.sample_rate} Hz",
        "speeds": ", ".join(map(str, dataset.speeds)),
        **{
            split: f"{count:,} utterances, {dataset.seconds[split] / 3600:,.2f} h"
            for split, count in dataset.counts.items()
        },
        "shards": f"{len(dataset.shards):,}, {size / 1e6:,.1f} MB, of which {live / max(size, 1):.0%} are alive",
    }
    return [f"{key:<13}{value}" for key, value in shown.items() if value]


def rows_of(root: str, name: str, number: int | None) -> Iterator[str]:
    """A line for each utterance of a version, the latest where none is told: split, speaker, id, text, by tabs."""
    versions = _known(root, name)
    dataset = Dataset.read(versions.path(number or versions.numbers()[-1]), shards=False)
    for row in dataset.rows():
        yield "\t".join((row.split, row.speaker, row.id, row.text))


def compact_latest(root: str, name: str, below: float) -> str:
    """Publishes the latest version once more, without what is mostly dead."""
    versions = _known(root, name)
    with held_dataset(versions.path(versions.numbers()[-1])) as dataset, versions.locked():
        latest = versions.numbers()[-1]
        if versions.published(latest).key != dataset.key:
            raise WorkError(f"{name}: version {latest} has just been published; compact that one")
        if not (dead := mostly_dead(dataset, below)):
            return f"{name}: no shard of version {latest} is less than {below:.0%} alive; nothing to do"
        store = address_of(dataset.file(dataset.shards[0]).parents[3])
        note = f"version {latest}, compacted: {len(dead):,} of {len(dataset.shards):,} shards rewritten"
        folder = publish_version(dataset, store, versions, compact_below=below, note=note)
    return f"{name}: version {folder.name} has the content of version {latest}; {len(dead):,} shards were rewritten"


def collect_unused(store: str, roots: list[str], grace_days: float, *, look_only: bool) -> str:
    """Takes away shards that nothing leads to."""
    found = collect(store, roots, grace_days=grace_days, look_only=look_only)
    left = f"; {found.in_use:,} more are being read, and stay" if found.in_use else ""
    done = "would go" if look_only else "are gone"
    return f"{store}: {found.shards:,} shards, {found.bytes / 1e6:,.1f} MB, {done}{left}"


def _known(root: str, name: str) -> Versions:
    there = names(root)
    if name not in there:
        raise WorkError(f"{root}: no dataset {name!r} here; there: {', '.join(there) or 'none'}")
    return Versions(root, name)


def _told(published: Published) -> str:
    counts = ", ".join(f"{count:,} {split}" for split, count in published.counts.items())
    changes = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in published.changes.items() if count)
    counts += f"  ({changes})" if changes else ""
    return f"version {published.number}  {published.at}  {counts}" + (f"  {published.note}" if published.note else "")
