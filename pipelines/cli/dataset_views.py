"""What the commands of datasets print: versions, differences, garbage collection and purges."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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
from voxline.components.publish.step import lock_dataset, low_live_shards, publish_version
from voxline.data.dataset import Dataset
from voxline.data.versions import DatasetVersions, VersionInfo, list_datasets
from voxline.errors import SettingsError, WorkError
from voxline.operations.export import PURGE_LIST, export_dataset, find_exports
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import PurgeFindings, find_speaker, past_purges, purge_speaker
from voxline.operations.purge.retention import Retention
from voxline.operations.shard_gc import collect_garbage
from voxline.registry.journal import PRODUCTION


def format_datasets(root: str) -> list[str]:
    """A line for each dataset: its name, its latest version and its counts."""
    lines = []
    for name in list_datasets(root):
        versions = DatasetVersions(root, name)
        if latest := versions.latest():
            lines.append(f"{name}  {_format_version(latest)}  (of {len(versions.numbers())} versions)")
    return lines or [f"{root}: no dataset has been published here yet"]


def format_history(root: str, name: str) -> list[str]:
    """A line for each version, oldest first; the latest is marked."""
    versions = _open_versions(root, name)
    numbers = versions.numbers()
    return [f"{'▸' if number == numbers[-1] else ' '} {_format_version(versions.info(number))}" for number in numbers]


def format_dataset_version(root: str, name: str, number: int) -> list[str]:
    """The details of one version."""
    versions = _open_versions(root, name)
    folder = versions.path(number)
    published, dataset = versions.info(number), Dataset.read(folder, shards=False)
    live = sum(shard.live_bytes for shard in dataset.shards)
    size = sum(shard.bytes for shard in dataset.shards)
    shown = {
        "folder": versions.uri_of(number),
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
        "shards": f"{len(dataset.shards):,}, {size / 1e6:,.1f} MB, {live / max(size, 1):.0%} live",
    }
    return [f"{key:<13}{value}" for key, value in shown.items() if value]


def format_rows(root: str, name: str, number: int | None) -> Iterator[str]:
    """A line for each utterance of a version, by default the latest: split, speaker, id, text, tab-separated."""
    versions = _open_versions(root, name)
    dataset = Dataset.read(versions.path(number or versions.numbers()[-1]), shards=False)
    for row in dataset.rows():
        yield "\t".join((row.split, row.speaker, row.id, row.text))


def compact_latest(root: str, name: str, below: float) -> str:
    """Publishes the latest version again, after compaction."""
    versions = _open_versions(root, name)
    with lock_dataset(versions.path(versions.numbers()[-1])) as dataset, versions.locked():
        latest = versions.numbers()[-1]
        if versions.info(latest).key != dataset.key:
            raise WorkError(f"{name}: version {latest} has just been published; compact that one")
        if not (low := low_live_shards(dataset, below)):
            return f"{name}: every shard of version {latest} is at least {below:.0%} live; nothing to do"
        store = dataset.shard_store()
        note = f"version {latest}, compacted: {len(low):,} of {len(dataset.shards):,} shards rewritten"
        folder = publish_version(dataset, store, versions, compact_below=below, note=note)
    return f"{name}: version {folder.name} has the content of version {latest}; {len(low):,} shards were rewritten"


def format_garbage_collection(store: str, roots: list[str], grace_days: float, *, dry_run: bool) -> str:
    """Deletes shards that nothing references."""
    found = collect_garbage(store, roots, grace_days=grace_days, dry_run=dry_run)
    left = f"; {found.in_use:,} more are in use and stay" if found.in_use else ""
    done = "would be deleted" if dry_run else "deleted"
    return f"{store}: {found.shards:,} shards, {found.bytes / 1e6:,.1f} MB, {done}{left}"


def format_export(root: str, version: str, to: str, output: Path | None) -> list[str]:
    """Exports a version; says where it is and what a purge needs to know.

    Args:
      version: NAME, or NAME@NUMBER.
    """
    name, _, number = version.partition("@")
    if number and not (number.isdecimal() and number.isascii() and len(number) < 19):
        raise SettingsError(f"{version}: {number!r} is not the number of a version; accepted: NAME, or NAME@7")
    versions = _open_versions(root, name)
    chosen = int(number) if number else versions.numbers()[-1]
    output = output or Path(f"{name}-{chosen}-{to}")
    made = export_dataset(root, name, chosen, to, output)
    counts = ", ".join(f"{count:,} {split}" for split, count in made["counts"].items())
    return [
        f"{output}: version {chosen} of {name} for {to}: {counts}",
        f"{output / PURGE_LIST} lists what to delete there when a speaker is withdrawn",
    ]


def _open_versions(root: str, name: str) -> DatasetVersions:
    names = list_datasets(root)
    if name not in names:
        raise WorkError(f"{root}: no dataset {name!r} here; the datasets are: {', '.join(names) or 'none'}")
    return DatasetVersions(root, name)


def _format_version(published: VersionInfo) -> str:
    counts = ", ".join(f"{count:,} {split}" for split, count in published.counts.items())
    changes = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in published.changes.items() if count)
    counts += f"  ({changes})" if changes else ""
    return f"version {published.number}  {published.at}  {counts}" + (f"  {published.note}" if published.note else "")


def format_diff(before: str, after: str, limit: int) -> list[str]:
    """The differences of two datasets, with at most `limit` utterances or speakers of each kind."""
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
    """Settings of features and texts that differ."""
    pairs = {
        "features": (found.before.features.plain(), found.after.features.plain()),
        "alphabet": (found.before.alphabet.symbols, found.after.alphabet.symbols),
        "frontend": (found.before.frontend, found.after.frontend),
        "speeds": (found.before.speeds, found.after.speeds),
    }
    return [f"{name} changed: {old} → {new}" for name, (old, new) in pairs.items() if old != new]


def _changed_splits(found: DatasetDiff) -> list[str]:
    lines = []
    for split in dict.fromkeys([*found.before.counts, *found.after.counts]):
        old, new = (dataset.counts.get(split, 0) for dataset in (found.before, found.after))
        hours = [dataset.seconds.get(split, 0.0) / 3600 for dataset in (found.before, found.after)]
        lines.append(f"{split:<8}{old:,} → {new:,} utterances, {hours[0]:.2f} → {hours[1]:.2f} h")
    return lines


def _format_items(
    kind: str, found: Sequence[ChangedUtterance] | Sequence[Line], describe: Callable[[Any], str], limit: int
) -> list[str]:
    if not found:
        return []
    named = [
        f"  {one.id if isinstance(one, ChangedUtterance) else one['id']}  {describe(one)}" for one in found[:limit]
    ]
    return [f"{kind}: {len(found):,}", *named, *_omitted(len(found), limit)]


def _changed_words(found: DatasetDiff, limit: int) -> list[str]:
    changed: Counter[tuple[str, str]] = count_word_changes(found.text_changed)
    often = [(pair, count) for pair, count in changed.most_common(limit) if count > 1]
    return [f"  {count:,} × {old or 'nothing'} → {new or 'nothing'}" for (old, new), count in often]


def _changed_speakers(found: DatasetDiff, limit: int) -> list[str]:
    seconds = found.seconds_by_speaker()
    if not seconds:
        return []
    lines = [f"speakers: {len(seconds):,} have more or less speech than before"]
    for speaker, (old, new) in list(seconds.items())[:limit]:
        note = "  new" if not old else "  gone" if not new else ""
        lines.append(f"  {speaker or '(no speaker)'}  {old:,.1f} → {new:,.1f} s{note}")
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
    "not touched: the corpus itself (a refresh brings back speakers who are still in it), weights of models, reports "
    "in run folders, histories of runs elsewhere (notify.history), artifacts of a KFP server, archives, "
    "backups, other stores"
)


def format_purge_lines(speaker: str, scope: PurgeScope, note: str, *, do: bool) -> list[str]:
    """Lines that say what there is of a speaker, or what was removed.

    Args:
      do: removes it.
    """
    if not speaker:
        raise SettingsError("--speaker is empty: that would remove all utterances without a speaker; give an id")
    findings = purge_speaker(speaker, scope, note) if do else find_speaker(speaker, scope)
    full_names = sorted(findings.footprint.of_corpora)
    exports = _format_exports(speaker, scope)
    stays = [
        *(f"not searched for: {name}, whom one of several corpora calls {speaker!r}" for name in full_names),
        *_format_trained_models(findings),
        *_format_run_files(findings),
        *exports,
        *_format_retained(findings),
        NOT_COVERED,
    ]
    if not findings:
        missing = f"nothing of {speaker!r} in {', '.join(scope.uris)}"
        if do and not past_purges(speaker, scope.datasets or (scope.store,)):
            raise WorkError(
                f"{missing}, so nothing was removed; check the id (`voxline datasets show NAME --rows` lists the "
                "speakers) and the locations" + (f"; did you mean {' or '.join(full_names)}?" if full_names else "")
            )
        return [f"{missing}, except:" if len(stays) > 1 else missing, *stays]
    done = "removed" if do else "would be removed"
    lines = [f"{done}: {findings.bytes / 1e6:,.1f} MB of {len(findings.footprint.ids):,} utterances"]
    lines += _format_purge_findings(findings)
    if findings.footprint.shared:
        lines.append(f"kept: {len(findings.footprint.shared):,} WAVs and clips that another speaker has too")
    if findings.unfinished:
        lines.append(f"not searched: {findings.unfinished:,} unfinished trainings; remove those that you do not need")
    lines += stays
    if do:
        lines.append(f"recorded in {', '.join(findings.records)}")
    else:
        lines.append("nothing was changed; --yes removes it")
    return lines


def _format_purge_findings(findings: PurgeFindings) -> list[str]:
    counts = findings.counts()
    lines = []
    for name, rows in findings.rows.items():
        dataset, _, number = name.rpartition("/")
        lines.append(f"  {rows:,} rows of version {number} of {dataset}")
    if findings.shards:
        lines.append(f"  {counts['clips']:,} clips in {counts['shards']:,} shards, which are rewritten")
    if findings.wavs:
        lines.append(f"  {counts['wavs']:,} WAVs")
    lines += [f"  {folder.parent.name}/{folder.name}, which lists or shows them" for folder in findings.outputs]
    if findings.leftovers:
        lines.append(f"  {len(findings.leftovers):,} folders that killed processes left among the shards")
    for training in findings.trainings:
        if training.tensorboard or training.lines:
            files = len(training.tensorboard)
            lines.append(f"  train/{training.folder.name}: {files} TensorBoard files, {training.lines:,} lines")
    for use in findings.registry_uses:
        if use.evaluated or use.lines or use.shown:
            lines.append(
                f"  model {use.name}: {use.lines:,} lines of its training data, {use.evaluated:,} of its evaluation"
            )
    lines += [f"  {count:,} recordings in {location}" for location, count in findings.captures.items()]
    if findings.run_records:
        lines.append(f"  {len(findings.run_records):,} reasons in the history of runs")
    return lines


def _format_trained_models(findings: PurgeFindings) -> list[str]:
    """Models that were trained on the speaker, and stay."""
    trained = [use for use in findings.registry_uses if use.trained]
    models = [f"  {use.name}" + (f", in {use.alias}" if use.alias == PRODUCTION else "") for use in trained]
    models += [f"  train/{training.folder.name}" for training in findings.trainings]
    return [f"models trained on them, which keep their weights: {len(models)}; train again", *models] if models else []


def _format_run_files(findings: PurgeFindings) -> list[str]:
    """Files of run folders that show or play the speaker; a person removes those."""
    files = [f"  {file}" for file in findings.run_files]
    return [f"files of runs that show them, which stay: {len(files)}; delete them", *files] if files else []


def _format_exports(speaker: str, scope: PurgeScope) -> list[str]:
    """Exports that hold the speaker, and what is to be deleted there."""
    lines = []
    for made, held in find_exports(speaker, scope.datasets):
        what = f"  {made['output']} (version {made['version']} of {made['dataset']} for {made['format']}): "
        if held is None:
            lines.append(f"{what}not on this machine, or gone; search {PURGE_LIST} there")
            continue
        lines.append(
            f"{what}{len(held.ids):,} utterances; {len(held.files):,} files to delete; to write again without them: "
            f"{', '.join(held.shared)}"
        )
    note = f"exports that hold them, which stay: {len(lines)}; their {PURGE_LIST} has the ids and files"
    return [note, *lines] if lines else []


def _format_retained(findings: PurgeFindings) -> list[str]:
    """What buckets keep of deleted objects, and how to have it removed."""
    lines = [line for retention in findings.retention for line in _format_retained_in(retention)]
    if findings.retention:
        lines.append(
            "other machines may hold copies: delete their bucket caches (VOXLINE_BUCKET_CACHE, else "
            "voxline-bucket-cache in the folder of temporary files; that of a pod goes with the pod)"
        )
    return lines


def _format_retained_in(retention: Retention) -> Iterator[str]:
    uri = retention.place
    bucket = "/".join(uri.split("/")[:3])
    google = uri.startswith("gs://")
    if not retention.known:
        look = (
            f"(storage.buckets.get); look: gcloud storage buckets describe {bucket} "
            "--format='default(versioning,soft_delete_policy)'"
            if google
            else f"(s3:GetBucketVersioning); look: aws s3api get-bucket-versioning --bucket {bucket.partition('//')[2]}"
        )
        yield f"{uri}: the policy of {bucket} for deleted objects could not be read {look}"
    if retention.removed:
        yield f"{uri}: {retention.removed:,} older versions of their objects are deleted too"
    if retention.left:
        permission = "storage.objects.delete" if google else "s3:DeleteObjectVersion"
        yield (
            f"{uri}: {retention.left:,} older versions of their objects REMAIN, they could not be deleted "
            f"({permission}, holds, retention); fix that, and delete noncurrent versions by a lifecycle rule"
        )
    if retention.others:
        rule = "that deletes what is not live (isLive: false)" if google else "with NoncurrentVersionExpiration"
        yield (
            f"{uri}: {retention.others:,} older versions of other objects were not searched; a lifecycle rule {rule} "
            "deletes them"
        )
    if retention.versioning and not retention.removed:
        yield f"{uri}: {bucket} keeps older versions; a purge deletes those of the objects that it removes"
    if retention.soft_until:
        yield (
            f"{uri}: {bucket} keeps deleted objects until {retention.soft_until} (soft delete), and nobody can remove "
            f"them earlier; to avoid that, BEFORE a purge: gcloud storage buckets update {bucket} --clear-soft-delete"
        )
