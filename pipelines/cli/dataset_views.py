"""Lines that the commands of datasets print: versions, differences, garbage collection and purges."""

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
from voxline.data.licences import NOT_STATED, count_licences, describe_licences
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
    published = versions.info(number)
    dataset = Dataset.read(versions.path(number), shards=False)

    # Versions share shards: those bytes are live that this version's rows point to.
    live = sum(shard.live_bytes for shard in dataset.shards)
    size = sum(shard.bytes for shard in dataset.shards)

    # In the order of the lines; what is empty has none.
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
        "licences": describe_licences(count_licences(dataset.rows(), dataset.counts)) or NOT_STATED,
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
        # A refresh may have published between the look at the numbers and the lock.
        latest = versions.numbers()[-1]
        if versions.info(latest).key != dataset.key:
            raise WorkError(f"{name}: version {latest} has just been published; compact that one")
        if not (low := low_live_shards(dataset, below)):
            return f"{name}: every shard of version {latest} is at least {below:.0%} live; nothing to do"

        # The content is the same, so only the note tells this version from the one before.
        store = dataset.shard_store()
        note = f"version {latest}, compacted: {len(low):,} of {len(dataset.shards):,} shards rewritten"
        folder = publish_version(dataset, store, versions, compact_below=below, note=note)
    return f"{name}: version {folder.name} has the content of version {latest}; {len(low):,} shards were rewritten"


def format_garbage_collection(store: str, roots: list[str], grace_days: float, *, dry_run: bool) -> str:
    """Deletes shards that nothing references."""
    garbage = collect_garbage(store, roots, grace_days=grace_days, dry_run=dry_run)
    in_use = f"; {garbage.in_use:,} more are in use and stay" if garbage.in_use else ""
    done = "would be deleted" if dry_run else "deleted"
    return f"{store}: {garbage.shards:,} shards, {garbage.bytes / 1e6:,.1f} MB, {done}{in_use}"


def format_export(root: str, version: str, to: str, output: Path | None) -> list[str]:
    """Exports a version; says where it is and what a purge needs to know.

    Args:
      version: NAME, or NAME@NUMBER.
    """
    # `isdecimal` alone accepts digits of other scripts.
    name, _, number = version.partition("@")
    if number and not (number.isdecimal() and number.isascii() and len(number) < 19):
        raise SettingsError(f"{version}: {number!r} is not the number of a version; accepted: NAME, or NAME@7")

    versions = _open_versions(root, name)
    exported_version = int(number) if number else versions.numbers()[-1]
    output = output or Path(f"{name}-{exported_version}-{to}")
    export = export_dataset(root, name, exported_version, to, output)
    counts = ", ".join(f"{count:,} {split}" for split, count in export["counts"].items())
    return [
        f"{output}: version {exported_version} of {name} for {to}: {counts}",
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
    diff = diff_paths(before, after)
    # Nothing of the content differs, but its preparation may: other features, another alphabet.
    counts = diff.counts()
    if not any(counts.values()) and not diff.changed:
        return ["the same utterances, texts, audio, speakers and splits", *_changed_settings(diff)]
    lines = [
        ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items()),
        *_changed_settings(diff),
    ]

    # From the whole to its parts: splits, utterances by kind of change, speakers, features.
    lines += _changed_splits(diff)
    lines += _format_items("added", diff.added, _format_line, limit)
    lines += _format_items("removed", diff.removed, _format_line, limit)
    lines += _format_items("text changed", diff.text_changed, _format_text_change, limit)
    lines += _changed_words(diff, limit)
    lines += _format_items("audio changed", diff.audio_changed, _format_duration_change, limit)
    lines += _format_items(
        "split changed", diff.split_changed, lambda change: f"{change.before['split']} → {change.after['split']}", limit
    )
    lines += _format_items(
        "speaker changed", diff.speaker_changed, lambda change: _format_change(change, "speaker"), limit
    )
    lines += _changed_speakers(diff, limit)
    if drift := feature_drift(diff.before, diff.after):
        lines.append(f"features: {drift.describe()}")

    # The conclusion: whether error rates on the two test splits may be compared.
    lines.append(f"{describe_comparability(diff)[0].lower()}{describe_comparability(diff)[1:]}")
    return lines


def _changed_settings(diff: DatasetDiff) -> list[str]:
    """Settings of features and texts that differ."""
    pairs = {
        "features": (diff.before.features.plain(), diff.after.features.plain()),
        "alphabet": (diff.before.alphabet.symbols, diff.after.alphabet.symbols),
        "frontend": (diff.before.frontend, diff.after.frontend),
        "speeds": (diff.before.speeds, diff.after.speeds),
    }
    return [f"{name} changed: {before} → {after}" for name, (before, after) in pairs.items() if before != after]


def _changed_splits(diff: DatasetDiff) -> list[str]:
    lines = []
    for split in dict.fromkeys([*diff.before.counts, *diff.after.counts]):  # one of them may lack a split
        counts = [dataset.counts.get(split, 0) for dataset in (diff.before, diff.after)]
        hours = [dataset.seconds.get(split, 0.0) / 3600 for dataset in (diff.before, diff.after)]
        lines.append(f"{split:<8}{counts[0]:,} → {counts[1]:,} utterances, {hours[0]:.2f} → {hours[1]:.2f} h")
    return lines


def _format_items(
    kind: str, items: Sequence[ChangedUtterance] | Sequence[Line], describe: Callable[[Any], str], limit: int
) -> list[str]:
    """The number of utterances with a kind of change, and a line for each of the first."""
    if not items:
        return []
    described = [
        f"  {item.id if isinstance(item, ChangedUtterance) else item['id']}  {describe(item)}" for item in items[:limit]
    ]
    return [f"{kind}: {len(items):,}", *described, *_omitted(len(items), limit)]


def _changed_words(diff: DatasetDiff, limit: int) -> list[str]:
    """The words that were replaced most often: a corrected spelling, or a fault of a new frontend."""
    changed: Counter[tuple[str, str]] = count_word_changes(diff.text_changed)
    often = [(pair, count) for pair, count in changed.most_common(limit) if count > 1]
    return [f"  {count:,} × {before or 'nothing'} → {after or 'nothing'}" for (before, after), count in often]


def _changed_speakers(diff: DatasetDiff, limit: int) -> list[str]:
    seconds = diff.seconds_by_speaker()
    if not seconds:
        return []
    lines = [f"speakers: {len(seconds):,} have more or less speech than before"]
    for speaker, (before, after) in list(seconds.items())[:limit]:
        note = "  new" if not before else "  gone" if not after else ""
        lines.append(f"  {speaker or '(no speaker)'}  {before:,.1f} → {after:,.1f} s{note}")
    return lines + _omitted(len(seconds), limit)


def _omitted(count: int, limit: int) -> list[str]:
    return [f"  … and {count - limit:,} more"] if count > limit else []


def _format_line(line: Line) -> str:
    return f"{line['split']}  {line['speaker']}  {line['text']}"


def _format_text_change(change: ChangedUtterance) -> str:
    return format_word_diff(change.before["text"], change.after["text"])


def _format_duration_change(change: ChangedUtterance) -> str:
    return f"{change.before['duration']:.2f} → {change.after['duration']:.2f} s"


def _format_change(change: ChangedUtterance, key: str) -> str:
    return f"{change.before[key]} → {change.after[key]}"


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

    # What a purge does not remove is said every time, so that nobody takes it for removed.
    stays = [
        *(f"not searched for: {name}, whom one of several corpora calls {speaker!r}" for name in full_names),
        *_format_trained_models(findings),
        *_format_run_files(findings),
        *exports,
        *_format_retained(findings),
        NOT_COVERED,
    ]
    # Finding nothing is an error only for a purge that was never done: a typing mistake must not look like an erasure.
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

    # A purge leaves a record with every dataset or store that it searched, for the person who asked.
    if do:
        lines.append(f"recorded in {', '.join(findings.records)}")
    else:
        lines.append("nothing was changed; --yes removes it")
    return lines


def _format_purge_findings(findings: PurgeFindings) -> list[str]:
    """A line for each place that has something of the speaker, indented under the heading."""
    counts = findings.counts()
    lines = []

    # Datasets and the store.
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

    # Of trainings and models only files that show the utterances go; weights stay, see `_format_trained_models`.
    for training in findings.trainings:
        if training.tensorboard or training.lines:
            files = len(training.tensorboard)
            lines.append(f"  train/{training.folder.name}: {files} TensorBoard files, {training.lines:,} lines")
    for use in findings.registry_uses:
        if use.evaluated or use.lines or use.shown:
            lines.append(
                f"  model {use.name}: {use.lines:,} lines of its training data, {use.evaluated:,} of its evaluation"
            )

    # Outside of stores and registries.
    lines += [f"  {count:,} recordings in {location}" for location, count in findings.captures.items()]
    if findings.run_records:
        lines.append(f"  {len(findings.run_records):,} reasons in the history of runs")
    return lines


def _format_trained_models(findings: PurgeFindings) -> list[str]:
    """Models that were trained on the speaker, and stay."""
    trained = [use for use in findings.registry_uses if use.trained or use.speaks]
    models = [
        f"  {use.name}"
        + (f", in {use.alias}" if use.alias == PRODUCTION else "")
        + (", which speaks as them and has their name in model.json and model_card.md" if use.speaks else "")
        for use in trained
    ]
    models += [f"  train/{training.folder.name}" for training in findings.trainings]
    return [f"models trained on them, which keep their weights: {len(models)}; train again", *models] if models else []


def _format_run_files(findings: PurgeFindings) -> list[str]:
    """Files of run folders that show or play the speaker; a person removes those."""
    files = [f"  {file}" for file in findings.run_files]
    return [f"files of runs that show them, which stay: {len(files)}; delete them", *files] if files else []


def _format_exports(speaker: str, scope: PurgeScope) -> list[str]:
    """Exports that hold the speaker, and what is to be deleted there."""
    lines = []
    for export, held in find_exports(speaker, scope.datasets):
        heading = f"  {export['output']} (version {export['version']} of {export['dataset']} for {export['format']}): "
        if held is None:  # on another machine, or deleted by a person
            lines.append(f"{heading}not on this machine, or gone; search {PURGE_LIST} there")
            continue
        lines.append(
            f"{heading}{len(held.ids):,} utterances; {len(held.files):,} files to delete; to write again without them: "
            f"{', '.join(held.shared)}"
        )
    note = f"exports that hold them, which stay: {len(lines)}; their {PURGE_LIST} has the ids and files"
    return [note, *lines] if lines else []


def _format_retained(findings: PurgeFindings) -> list[str]:
    """Deleted objects that buckets keep, and how to have them removed."""
    lines = [line for retention in findings.retention for line in _format_retained_in(retention)]
    if findings.retention:
        lines.append(
            "other machines may hold copies: delete their bucket caches (VOXLINE_BUCKET_CACHE, else "
            "voxline-bucket-cache in the folder of temporary files; that of a pod goes with the pod)"
        )
    return lines


def _format_retained_in(retention: Retention) -> Iterator[str]:
    """A line for each rule of a bucket that keeps deleted objects, with the cloud's own command."""
    uri = retention.place
    bucket = "/".join(uri.split("/")[:3])  # gs://bucket
    google = uri.startswith("gs://")

    # Without the permission to read the policy, the person must look.
    if not retention.known:
        look = (
            f"(storage.buckets.get); look: gcloud storage buckets describe {bucket} "
            "--format='default(versioning,soft_delete_policy)'"
            if google
            else f"(s3:GetBucketVersioning); look: aws s3api get-bucket-versioning --bucket {bucket.partition('//')[2]}"
        )
        yield f"{uri}: the policy of {bucket} for deleted objects could not be read {look}"

    # Versioning: a deleted object stays as a noncurrent version, which a purge deletes for the speaker's objects alone.
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

    # Soft delete: Google Cloud Storage keeps every deleted object for some days.
    if retention.soft_until:
        yield (
            f"{uri}: {bucket} keeps deleted objects until {retention.soft_until} (soft delete), and nobody can remove "
            f"them earlier; to avoid that, BEFORE a purge: gcloud storage buckets update {bucket} --clear-soft-delete"
        )
