"""The purge of a speaker, from the search to the record of it.

Each part may be done twice, in this order: the footprint is recorded; clips to keep are copied to new shards; versions
and datasets are pointed at these; old shards, step outputs and WAVs are removed; then the speaker's lines in lists of
training data and in the registry; the purge is recorded; and the footprint is removed. The same command completes a
purge that was killed anywhere.
"""

import contextlib
import dataclasses
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.manifest import MANIFEST_FILE
from voxline.data.shard_rewrite import RewrittenShard
from voxline.data.shards import ShardInfo
from voxline.errors import PreconditionError
from voxline.feedback.captures import RECORD_SUFFIX, TASKS_JSON, erase_recordings, find_recordings, mark_erased
from voxline.operations.purge import datasets, registry
from voxline.operations.purge.footprint import (
    AffectedTraining,
    Footprint,
    count_unfinished_trainings,
    find_footprint,
    find_outputs,
    find_run_files,
    find_trainings,
    find_wav_logs,
    find_wavs,
    purge_training,
    remove_line_caches,
    remove_wav_lines,
    step_output_files,
)
from voxline.operations.purge.locations import PurgeLocations, PurgeScope, open_locations
from voxline.operations.purge.registry import RegistryUse
from voxline.operations.purge.retention import Retention, delete_old_versions, retention_of
from voxline.progress import print_status
from voxline.registry.erasures import PURGES_FILE, salted_hash
from voxline.registry.journal import format_utc
from voxline.registry.registry import EVALUATION
from voxline.registry.training_data import TRAINED_ON
from voxline.store.files import remove_unfinished
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ABSENT
from voxline.store.store_locks import UNFINISHED_PURGE, record_purge


@dataclasses.dataclass
class PurgeFindings:
    """The findings of a purge's search for a speaker.

    Attributes:
      rows: of the speaker in each version, by `<dataset>/<number>`.
      shards: that hold clips of the speaker, each with the bytes of these.
      leftovers: folders that killed processes left among the shards.
      outputs, wavs: folders of step outputs, and WAVs.
      run_records: of the history of runs, whose reason names the speaker.
      unfinished: trainings whose data is not known yet.
      retention: what buckets keep of what is deleted; after a purge, what they still have.
      records: files in which purges are recorded.
      captures: recordings by location, captured or labeled.
      run_files: files in run folders that show the speaker, and stay.
      started: an unfinished purge of the speaker exists.
      bytes: of clips, outputs, WAVs and TensorBoard files.
    """

    footprint: Footprint
    rows: dict[str, int]
    shards: list[tuple[ShardInfo, int]]
    leftovers: list[Path]
    outputs: list[Path]
    wavs: list[Path]
    trainings: list[AffectedTraining]
    registry_uses: list[RegistryUse]
    run_records: list[Path]
    unfinished: int
    retention: list[Retention]
    records: list[str]
    run_files: list[Path]
    captures: dict[str, int]
    started: bool
    bytes: int = 0

    def __bool__(self) -> bool:
        """Returns whether there is anything to remove."""
        trainings = any(training.tensorboard or training.lines for training in self.trainings)
        uses = any(use.lines or use.evaluated or use.shown for use in self.registry_uses)
        removed = self.rows, self.shards, self.outputs, self.wavs, self.run_records, self.captures
        return bool(self.started or any(removed) or trainings or uses)

    def counts(self) -> dict[str, int]:
        clips = sum(clip in self.footprint.clips for info, _ in self.shards for clip in info.clips)
        return {
            "utterances": len(self.footprint.ids),
            "rows": sum(self.rows.values()),
            "shards": len(self.shards),
            "clips": clips,
            "wavs": len(self.wavs),
            "outputs": len(self.outputs),
            "trainings": len(self.trainings),
            "registry_versions": len(self.registry_uses),
            "captures": sum(self.captures.values()),
        }


def find_speaker(speaker: str, scope: PurgeScope) -> PurgeFindings:
    """Finds what there is of a speaker; changes nothing."""
    with open_locations(scope, to_change=False) as locations:
        return _find(speaker, locations)


def purge_speaker(speaker: str, scope: PurgeScope, note: str = "") -> PurgeFindings:
    """Removes what there is of a speaker, and records the purge.

    Args:
      note: for the record: who asked, and why.

    Returns:
      What there was.

    Raises:
      WorkError: a process works in the store or reads a shard that must be deleted; nothing was removed.
    """
    with open_locations(scope, to_change=True) as locations, contextlib.ExitStack() as stack:
        # Versions are locked before anything is read, and what a killed purge left is completed first.
        for versions in locations.versions_to_recover():
            stack.enter_context(versions.locked_here())
            datasets.recover_versions(versions, locations.workspace)

        remove_line_caches(locations.store)  # they may hold lines of a speaker of whom nothing else is left
        for uri in dict.fromkeys(scope.captures):
            mark_erased(uri, speaker)  # all that there is of a speaker may still wait in a server

        findings = _find(speaker, locations)
        if not findings:
            return findings

        # From here on something will be removed: all checks come before the first change.
        datasets.check_not_read((info for info, _ in findings.shards), locations.workspace)

        # A repeated purge keeps the record of its first start: the search finds less now.
        footprint = findings.footprint
        footprint.record = footprint.record or _describe(findings, note)
        footprint.changed_uris |= set(_changed_uris(findings, locations))

        # The last moment at which nothing has been removed; a lease that was lost ends the purge here.
        for lease in locations.leases:
            lease.check()

        # The footprint is on record before anything that it was found by is removed.
        _write_footprint(footprint, locations)
        _remove(findings, locations)
        _complete(findings, locations)
        return findings


def past_purges(speaker: str, roots: Sequence[Path | str]) -> list[dict[str, Any]]:
    """The records of earlier purges of a speaker.

    Args:
      roots: folders or bucket URIs to which datasets are published.
    """
    records = [json.loads(line) for root in roots for line in _read_records(root).splitlines()]
    return [record for record in records if record["speaker"] == salted_hash(speaker, record["salt"])]


def _find(speaker: str, locations: PurgeLocations) -> PurgeFindings:
    workspace = locations.workspace
    store = locations.store
    versions = [dataset.folder / str(number) for dataset in locations.versions() for number in dataset.numbers()]

    datasets.check_path_of_store(store, versions)

    # The footprint first: everything else is found by its ids, names of WAVs and clips.
    footprint = find_footprint(speaker, store, versions)
    trainings = find_trainings(store, footprint, workspace)
    rows = {f"{folder.parent.name}/{folder.name}": _count_rows(folder, speaker) for folder in versions}

    findings = PurgeFindings(
        footprint,
        {name: count for name, count in rows.items() if count},
        list(datasets.find_shards(store, footprint.clips)),
        datasets.find_leftovers(store, workspace),
        find_outputs(store, footprint, workspace),
        find_wavs(store, footprint, workspace),
        trainings,
        registry.find_registry_uses(workspace.uri_of(locations.registry), footprint) if locations.registry else [],
        [file for root in _history_roots(locations) for file in registry.find_run_records(root, footprint)],
        count_unfinished_trainings(store, workspace),
        [retention_of(uri) for uri in locations.bucket_uris()],
        [workspace.uri_of(file) for file in _record_files(locations)],
        find_run_files(locations.scope, footprint, trainings),
        _find_captures(locations.scope, speaker),
        footprint.file(store).is_file(),
    )

    tensorboard = (file for training in findings.trainings for file in training.tensorboard)
    findings.bytes = sum(size for _, size in findings.shards)
    findings.bytes += sum(map(workspace.size, (*findings.outputs, *findings.wavs, *tensorboard)))
    return findings


def _find_captures(scope: PurgeScope, speaker: str) -> dict[str, int]:
    counts = {
        str(uri): sum(not name.endswith(RECORD_SUFFIX) for name in find_recordings(uri, speaker))
        for uri in dict.fromkeys(scope.captures)
    }
    return {uri: count for uri, count in counts.items() if count}


def _count_rows(folder: Path, speaker: str) -> int:
    return datasets.count_rows(Dataset.read_header(folder), speaker)


def _remove(findings: PurgeFindings, locations: PurgeLocations) -> None:
    footprint = findings.footprint
    workspace = locations.workspace
    store = locations.store
    at = str(footprint.record["at"])

    # New shards first, then the versions that need them, then everything else.
    for folder in findings.leftovers:
        workspace.remove(folder)
    rewritten: dict[Path, RewrittenShard] = {}
    for info, _ in findings.shards:
        rewritten[info.folder] = datasets.rewrite_shard(info, footprint.clips, workspace)

    for versions in locations.versions():
        for number in versions.numbers():
            rows = datasets.purge_version(versions, number, footprint.speaker, rewritten, at, workspace)
            if rows:
                print_status(f"purge: removed {rows:,} rows from version {number} of {versions.name}")

    for file in step_output_files(store, "extract", DATASET_FILE):  # those that only share a shard with the speaker
        if not any(file.is_relative_to(output) for output in findings.outputs):
            datasets.remap_dataset(Dataset.read_header(file.parent), rewritten, workspace)

    # Nothing refers to these any more.
    for path in (*rewritten, *findings.outputs, *findings.wavs):
        workspace.remove(path)
    remove_wav_lines(store, footprint.wavs, workspace)

    for training in findings.trainings:
        purge_training(training, footprint.speaker, workspace)

    for use in findings.registry_uses:
        registry.purge_registry_use(locations.scope.registry or "", use, footprint, at, workspace)
    for file in findings.run_records:
        registry.purge_run_record(file, at, workspace)
    for uri in findings.captures:
        erase_recordings(uri, footprint.speaker)


def _complete(findings: PurgeFindings, locations: PurgeLocations) -> None:
    """Deletes older object versions as far as possible, records the purge, and removes the footprint."""
    footprint = findings.footprint
    locations.clear_usual_cache()
    findings.retention = [delete_old_versions(uri, footprint.changed_uris) for uri in locations.bucket_uris()]

    # Recorded once: a repeated purge finds fewer versions to delete.
    if findings.retention and "retention" not in footprint.record:
        footprint.record["retention"] = [retention.plain() for retention in findings.retention]
        _write_footprint(footprint, locations)

    line = json.dumps(footprint.record, ensure_ascii=False) + "\n"
    for file in _record_files(locations):
        _record(open_store(locations.workspace.uri_of(file.parent)), line)
        # Half-written records of killed processes hold the speaker's hash, too.
        for name in (UNFINISHED_PURGE, PURGES_FILE):
            remove_unfinished(file.parent, f".{name}*.part", older_than=0)
    remove_unfinished(locations.store, f".{UNFINISHED_PURGE}*.part", older_than=0)

    # Processes that began to read before now must not write what they have read.
    for lease in locations.leases:
        record_purge(lease)

    # Last: without the footprint the purge is complete.
    locations.workspace.remove(footprint.file(locations.store))


def _record(store: ObjectStore, line: str) -> None:
    """Adds a line to the record of purges, beside those that purges from other stores add to it meanwhile."""
    while True:
        info = store.stat(PURGES_FILE)
        records = store.read(PURGES_FILE).decode() if info else ""
        records += "\n" if records and not records.endswith("\n") else ""  # an editor may have taken it
        if line in records:  # the purge was killed after this
            return
        try:
            store.write(PURGES_FILE, (records + line).encode(), if_version=info.version if info else ABSENT)
        except PreconditionError:
            continue  # somebody else's line came between
        return


def _changed_uris(findings: PurgeFindings, locations: PurgeLocations) -> Iterator[str]:
    """URIs of what is removed or changed in buckets."""
    # Folders as well as files: older versions of all objects below them go.
    paths = (
        *(root / name for root in locations.datasets for name in findings.rows),
        *(info.folder for info, _ in findings.shards),
        *findings.leftovers,
        *findings.outputs,
        *findings.wavs,
        *find_wav_logs(locations.store, findings.footprint.wavs),
        *(file for training in findings.trainings for file in (*training.tensorboard, *training.lists)),
        *(use.folder / name for use in findings.registry_uses for name in (EVALUATION, TRAINED_ON)),
        *findings.run_records,
        findings.footprint.file(locations.store),
    )

    for uri in findings.captures:
        yield from find_recordings(uri, findings.footprint.speaker)
        yield from (open_store(uri).uri_of(name) for name in (MANIFEST_FILE, TASKS_JSON))

    workspace = locations.workspace
    yield from (workspace.uri_of(path) for path in paths if workspace.is_in_bucket(path))


def _write_footprint(footprint: Footprint, locations: PurgeLocations) -> None:
    footprint.write(locations.store)
    locations.workspace.upload(footprint.file(locations.store))


def _history_roots(locations: PurgeLocations) -> list[Path]:
    return [*locations.datasets, *([locations.registry] if locations.registry else [])]


def _record_files(locations: PurgeLocations) -> list[Path]:
    # The registry has it too: push asks whether a new model's list names an erased speaker.
    roots = [*(locations.datasets or (locations.store,)), *([locations.registry] if locations.registry else [])]
    return [root / PURGES_FILE for root in roots]


def _read_records(root: Path | str) -> str:
    try:
        return open_store(root).read(PURGES_FILE).decode()
    except FileNotFoundError:
        return ""


def _describe(findings: PurgeFindings, note: str) -> dict[str, Any]:
    """The record of a purge: one can ask it about a speaker, and cannot read the speaker from it."""
    # A salt for each record: equal speakers have other hashes, and a list of names cannot be hashed once for all.
    salt = secrets.token_hex(8)
    return {
        "at": format_utc(time.time()),
        "note": note,
        "salt": salt,
        "speaker": salted_hash(findings.footprint.speaker, salt),
        "bytes": findings.bytes,
        **findings.counts(),
        "versions": list(findings.rows),
        "models": [use.name for use in findings.registry_uses if use.trained or use.speaks],
        "trained": [training.folder.name for training in findings.trainings],
    }
