"""The published datasets as the command shows them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from voxline.components.publish.diff import (
    ChangedUtterance,
    DatasetDiff,
    Line,
    count_word_changes,
    describe_comparability,
    diff_paths,
    feature_drift,
    format_word_diff,
)
from voxline.components.publish.garbage_collection import collect_garbage
from voxline.components.publish.purge.locations import PurgeLocations, open_locations
from voxline.components.publish.purge.old_generations import Retention
from voxline.components.publish.purge.purge import PurgeFindings, find_speaker, purge_speaker, record_files
from voxline.components.publish.step import lock_dataset, low_live_shards, publish_version
from voxline.components.publish.versions import DatasetVersions, VersionInfo, list_datasets
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.store.bucket_cache import uri_of


def format_datasets(root: str) -> list[str]:
    """A line for each dataset: its name, its latest version, what that holds."""
    lines = []
    for name in list_datasets(root):
        versions = DatasetVersions(root, name)
        if latest := versions.latest():
            lines.append(f"{name}  {_format_version(latest)}  (of {len(versions.numbers())} versions)")
    return lines or [f"{root}: no dataset was published here yet"]


def format_history(root: str, name: str) -> list[str]:
    """A line for each version, oldest first; the latest is marked."""
    versions = _open_versions(root, name)
    numbers = versions.numbers()
    return [f"{'▸' if number == numbers[-1] else ' '} {_format_version(versions.info(number))}" for number in numbers]


def format_dataset_version(root: str, name: str, number: int) -> list[str]:
    """All that is known of one version."""
    versions = _open_versions(root, name)
    folder = versions.path(number)
    published, dataset = versions.info(number), Dataset.read(folder, shards=False)
    live = sum(shard.live_bytes for shard in dataset.shards)
    size = sum(shard.bytes for shard in dataset.shards)
    shown = {
        "folder": uri_of(folder),
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


def format_rows(root: str, name: str, number: int | None) -> Iterator[str]:
    """A line for each utterance of a version, the latest where none is told: split, speaker, id, text, by tabs."""
    versions = _open_versions(root, name)
    dataset = Dataset.read(versions.path(number or versions.numbers()[-1]), shards=False)
    for row in dataset.rows():
        yield "\t".join((row.split, row.speaker, row.id, row.text))


def compact_latest(root: str, name: str, below: float) -> str:
    """Publishes the latest version once more, without what is mostly dead."""
    versions = _open_versions(root, name)
    with lock_dataset(versions.path(versions.numbers()[-1])) as dataset, versions.locked():
        latest = versions.numbers()[-1]
        if versions.info(latest).key != dataset.key:
            raise WorkError(f"{name}: version {latest} has just been published; compact that one")
        if not (dead := low_live_shards(dataset, below)):
            return f"{name}: no shard of version {latest} is less than {below:.0%} alive; nothing to do"
        store = uri_of(dataset.file(dataset.shards[0]).parents[3])
        note = f"version {latest}, compacted: {len(dead):,} of {len(dataset.shards):,} shards rewritten"
        folder = publish_version(dataset, store, versions, compact_below=below, note=note)
    return f"{name}: version {folder.name} has the content of version {latest}; {len(dead):,} shards were rewritten"


def format_garbage_collection(store: str, roots: list[str], grace_days: float, *, dry_run: bool) -> str:
    """Takes away shards that nothing leads to."""
    found = collect_garbage(store, roots, grace_days=grace_days, dry_run=dry_run)
    left = f"; {found.in_use:,} more are being read, and stay" if found.in_use else ""
    done = "would go" if dry_run else "are gone"
    return f"{store}: {found.shards:,} shards, {found.bytes / 1e6:,.1f} MB, {done}{left}"


def _open_versions(root: str, name: str) -> DatasetVersions:
    there = list_datasets(root)
    if name not in there:
        raise WorkError(f"{root}: no dataset {name!r} here; there: {', '.join(there) or 'none'}")
    return DatasetVersions(root, name)


def _format_version(published: VersionInfo) -> str:
    counts = ", ".join(f"{count:,} {split}" for split, count in published.counts.items())
    changes = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in published.changes.items() if count)
    counts += f"  ({changes})" if changes else ""
    return f"version {published.number}  {published.at}  {counts}" + (f"  {published.note}" if published.note else "")


def format_diff(before: str, after: str, limit: int) -> list[str]:
    """The lines of the comparison, at most `limit` utterances or speakers of each kind."""
    found = diff_paths(before, after)
    counts = found.counts()
    if not any(counts.values()) and not found.changed:
        return ["the same utterances, texts, audio, speakers and splits", *_changed_settings(found)]
    lines = [
        ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items()),
        *_changed_settings(found),
    ]
    lines += _changed_splits(found)
    lines += _format_items("added", found.added, _format_line, limit)
    lines += _format_items("removed", found.removed, _format_line, limit)
    lines += _format_items("text changed", found.text_changed, _format_text_change, limit)
    lines += _changed_words(found, limit)
    lines += _format_items("audio changed", found.audio_changed, _format_duration_change, limit)
    lines += _format_items(
        "split changed", found.split_changed, lambda one: f"{one.before['split']} → {one.after['split']}", limit
    )
    lines += _format_items("speaker changed", found.speaker_changed, lambda one: _format_change(one, "speaker"), limit)
    lines += _changed_speakers(found, limit)
    if drift := feature_drift(found.before, found.after):
        lines.append(f"features: {drift.describe()}")
    lines.append(f"{describe_comparability(found)[0].lower()}{describe_comparability(found)[1:]}")
    return lines


def _changed_settings(found: DatasetDiff) -> list[str]:
    """How features are made and texts spelled, where that is not the same."""
    pairs = {
        "features": (found.before.features.plain(), found.after.features.plain()),
        "alphabet": (found.before.alphabet.symbols, found.after.alphabet.symbols),
        "frontend": (found.before.frontend, found.after.frontend),
        "speeds": (found.before.speeds, found.after.speeds),
    }
    return [f"other {name}: {old} → {new}" for name, (old, new) in pairs.items() if old != new]


def _changed_splits(found: DatasetDiff) -> list[str]:
    lines = []
    for split in dict.fromkeys([*found.before.counts, *found.after.counts]):
        old, new = (dataset.counts.get(split, 0) for dataset in (found.before, found.after))
        hours = [dataset.seconds.get(split, 0.0) / 3600 for dataset in (found.before, found.after)]
        lines.append(f"{split:<8}{old:,} → {new:,} utterances, {hours[0]:.2f} → {hours[1]:.2f} h")
    return lines


def _format_items(
    kind: str, found: Sequence[ChangedUtterance] | Sequence[Line], say: Callable[[Any], str], limit: int
) -> list[str]:
    if not found:
        return []
    named = [f"  {one.id if isinstance(one, ChangedUtterance) else one['id']}  {say(one)}" for one in found[:limit]]
    return [f"{kind}: {len(found):,}", *named, *_omitted(len(found), limit)]


def _changed_words(found: DatasetDiff, limit: int) -> list[str]:
    changed: Counter[tuple[str, str]] = count_word_changes(found.text_changed)
    often = [(pair, count) for pair, count in changed.most_common(limit) if count > 1]
    return [f"  {count:,} × {old or 'nothing'} → {new or 'nothing'}" for (old, new), count in often]


def _changed_speakers(found: DatasetDiff, limit: int) -> list[str]:
    seconds = found.seconds_by_speaker()
    if not seconds:
        return []
    lines = [f"speakers: {len(seconds):,} speak for longer or shorter than before"]
    for speaker, (old, new) in list(seconds.items())[:limit]:
        note = "  new" if not old else "  gone" if not new else ""
        lines.append(f"  {speaker or '(not told)'}  {old:,.1f} → {new:,.1f} s{note}")
    return lines + _omitted(len(seconds), limit)


def _omitted(count: int, limit: int) -> list[str]:
    return [f"  … and {count - limit:,} more"] if count > limit else []


def _format_line(line: Line) -> str:
    return f"{line['split']}  {line['speaker']}  {line['text']}"


def _format_text_change(one: ChangedUtterance) -> str:
    return format_word_diff(one.before["text"], one.after["text"])


def _format_duration_change(one: ChangedUtterance) -> str:
    return f"{one.before['duration']:.2f} → {one.after['duration']:.2f} s"


def _format_change(one: ChangedUtterance, key: str) -> str:
    return f"{one.before[key]} → {one.after[key]}"


NOT_COVERED = (
    "not looked at: the corpus itself (a refresh brings back who is still in it), archives, backups, reports in "
    "folders of runs, a KFP server's artifacts, other stores"
)


def format_purge_lines(
    speaker: str, store: str, datasets: Sequence[str], registry: str | None, note: str, *, do: bool
) -> list[str]:
    """Lines that say what is left of a speaker, or what was removed."""
    if not speaker:
        raise SettingsError("--speaker is empty: that would remove everybody whose speaker is not told; give an id")
    with open_locations(store, datasets, registry, to_change=do) as places:
        found = purge_speaker(speaker, places, note) if do else find_speaker(speaker, places)
        return _format_purge(speaker, places, found, do=do)


def _format_purge(speaker: str, places: PurgeLocations, found: PurgeFindings, *, do: bool) -> list[str]:
    if not found.anything(places):
        return [
            f"nothing of {speaker!r} in {', '.join(_searched_locations(places))}",
            *_format_trained_models(found),
            *_format_retained(found),
            NOT_COVERED,
        ]
    done = "removed" if do else "would be removed"
    head = f"{done}: {found.bytes / 1e6:,.1f} MB of {len(found.traces.ids):,} utterances"
    lines = [head, *_format_findings(found), *_format_trained_models(found)]
    if found.traces.shared:
        lines.append(f"stay: {len(found.traces.shared):,} WAVs and clips that are told as another speaker's too")
    if found.unfinished:
        lines.append(
            f"not looked at: {found.unfinished:,} trainings that are not finished; remove what you do not need"
        )
    lines += _format_retained(found)
    lines.append(NOT_COVERED)
    if do:
        lines.append(f"written down in {', '.join(map(uri_of, record_files(places)))}")
    else:
        lines.append("nothing was changed; --yes removes it")
    return lines


def _format_findings(found: PurgeFindings) -> list[str]:
    counts = found.counts()
    lines = [
        f"  {rows:,} rows of version {folder.name} of {folder.parent.name}" for folder, rows in found.versions.items()
    ]
    lines += [f"  {counts['clips']:,} clips in {counts['shards']:,} shards, which are written anew"] * bool(
        found.shards
    )
    lines += [f"  {counts['wavs']:,} WAVs"] * bool(found.wavs)
    lines += [f"  {folder.parent.name}/{folder.name}, which lists or shows them" for folder in found.works]
    lines += [f"  {len(found.leftovers):,} folders that killed processes left among the shards"] * bool(found.leftovers)
    for training in found.trainings:
        if training.events or training.listed:
            lines.append(
                f"  train/{training.folder.name}: {len(training.events)} TensorBoard files, {training.listed:,} lines"
            )
    for one in found.served:
        if one.judged or one.listed or one.shown:
            lines.append(f"  model {one.name}: {one.listed:,} lines of its training, {one.judged:,} of its evaluation")
    return lines


def _format_trained_models(found: PurgeFindings) -> list[str]:
    """What was learned of them stays learned."""
    models = [f"  {one.name}" for one in found.served if one.saw]
    models += [f"  train/{training.folder.name}" for training in found.trainings]
    return ["models that have seen them, and stay: train anew where that must not be", *models] if models else []


def _format_retained(found: PurgeFindings) -> list[str]:
    """What buckets keep of what is deleted, and how it goes too."""
    lines = [line for kept in found.kept for line in _format_retained_in(kept)]
    if found.kept:
        lines.append(
            "other machines may hold copies of what was brought there: remove their mirrors (VOXLINE_MIRROR, else "
            "voxline-mirror where temporary files go; those of pods go with them)"
        )
    return lines


def _format_retained_in(kept: Retention) -> Iterator[str]:
    bucket = "gs://" + kept.place.split("/")[2]
    if not kept.known:
        yield (
            f"{kept.place}: what {bucket} does with what is deleted could not be asked (storage.buckets.get); look: "
            f"gcloud storage buckets describe {bucket} --format='default(versioning,soft_delete_policy)'"
        )
    if kept.removed:
        yield f"{kept.place}: {kept.removed:,} older generations of theirs are removed too"
    if kept.left:
        yield (
            f"{kept.place}: {kept.left:,} older generations of theirs STAY, they could not be deleted "
            "(storage.objects.delete, holds, retention); mend that, and remove them as noncurrent by a lifecycle rule"
        )
    if kept.others:
        yield (
            f"{kept.place}: {kept.others:,} older generations of other objects were not looked into; a lifecycle rule "
            "that deletes what is not live (isLive: false) removes them"
        )
    if kept.versioning and not kept.removed:
        yield f"{kept.place}: {bucket} keeps older generations (versioning); a purge removes those of what it removes"
    if kept.soft_until:
        yield (
            f"{kept.place}: {bucket} keeps what is deleted now until {kept.soft_until} (soft delete), and nobody can "
            f"remove it before; to have it gone at once, BEFORE a purge: gcloud storage buckets update {bucket} "
            "--clear-soft-delete"
        )


def _searched_locations(places: PurgeLocations) -> list[str]:
    return [uri_of(place) for place in (places.store, *places.datasets, places.registry) if place]
