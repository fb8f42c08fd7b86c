"""convert: any audio → 16-bit mono WAV at one rate, in a pool that all versions of a corpus share.

Each recording is decoded once, whatever happens to its transcript, its id or its path. A recording that cannot be used
becomes a reject with a reason. Memory holds a few numbers per utterance; the manifest is read as often as needed.
"""

import contextlib
import heapq
import json
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from voxline.audio.containers import shares_one_decode
from voxline.audio.process_pool import WorkerCrashed
from voxline.components.convert.decode_log import DecodeLogWriter
from voxline.components.convert.jobs import (
    ConversionJob,
    ConversionResult,
    JobGroup,
    RejectedRecording,
    SourceChanged,
    channel_of,
    convert_in_processes,
    raw_format_of,
)
from voxline.components.convert.manifest_scan import KEPT_REVISION, ManifestScan
from voxline.components.convert.output import (
    OutputBuilder,
    check_length,
    prepare_transcript,
    write_output,
    wrote_last,
)
from voxline.components.convert.settings import PROCESSES, ConvertSettings
from voxline.components.convert.wav_pool import WAV_REVISION, WavPool, WavUploader
from voxline.data.line_cache import LineCache, cache_file
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.progress import Progress
from voxline.rejects import Reason, Reject
from voxline.store.files import atomic_write
from voxline.store.hashing import DIGEST_BYTES, DigestMap
from voxline.store.step_cache import StepOutput, cached_step, local_inputs
from voxline.text.alphabet import Alphabet
from voxline.text.frontend import frontend_version

REVISION = 7

MAX_GROUP = 1_000
"""Segments that are cut from one decode. More are another job: each has the time limit of one."""

MEMORY_LIMIT_FILE = "memory_limit.json"
"""Beside the manifest, where some rejects are `out_of_memory`."""

MAX_EXAMPLES = 3
"""Changed recordings that a message names."""


@local_inputs("manifest")
def run(manifest: Path | str, store: Path | str, settings: ConvertSettings) -> StepOutput:
    """Converts the recordings of a manifest.

    Args:
      manifest: ingest's folder, or a manifest file.
      store: the folder or bucket URI of all steps' outputs; WAVs go to `<store>/wavs`.

    Returns:
      Outputs: manifest, rejects. Counts: utterances, rejects, decoded.

    Raises:
      WorkError: too many rejects, a recording that is no longer what the manifest says, or a full disk.
    """
    with open_scan(Path(manifest), store, settings) as scan:
        return convert_scanned(scan, store, settings)


@contextlib.contextmanager
def open_scan(manifest: Path, store: Path | str, settings: ConvertSettings) -> Iterator[ManifestScan]:
    """Scans a manifest with the pool and the line cache of a store, which are open until the block ends."""
    frontend = frontend_version(settings.frontend)  # a later version of a dictionary may read a text differently
    revisions = [REVISION, WAV_REVISION, KEPT_REVISION]
    made_from = {"settings": settings.key_values(), "frontend": frontend, "revisions": revisions}

    # The line cache is one of the same settings and revisions: its lines are outputs of exactly this work.
    with (
        WavPool(
            store, settings.sample_rate, settings.silence_db, settings.shaping, settings.max_seconds, settings.prosody
        ) as pool,
        LineCache(cache_file(store, "convert", made_from)) as cache,
    ):
        yield ManifestScan(manifest, pool, cache)


def convert_scanned(scan: ManifestScan, store: Path | str, settings: ConvertSettings) -> StepOutput:
    """Runs like `run`, after the scan."""
    pool = scan.pool
    cache = scan.cache
    inputs: dict[str, object] = {"utterances": scan.fingerprint}

    # A missing file has no content, so its absence is part of the key: its reject must not outlive its return.
    if scan.missing:
        inputs["missing"] = sorted(set(scan.missing.values()))
    if frontend := frontend_version(settings.frontend):
        inputs["frontend"] = frontend

    def check(folder: Path) -> None:
        if not (scan.unchanged and wrote_last(cache, folder)):  # if so, the scan has just checked its WAVs
            pool.check(folder)
        _check_memory_limit(folder, settings.worker_memory_megabytes)

    with cached_step(store, "convert", settings, inputs, revision=REVISION, check=check) as work:
        if not work.reused:
            cache.check()  # now that the output is locked, nobody can be purged any more
            crashed = decode_new(scan, pool, settings, work)
            _note_memory_limit(work.folder, crashed.values(), settings.worker_memory_megabytes)
            builder = OutputBuilder(work.folder, scan, pool, settings, crashed)
            write_output(scan, cache, builder, settings, work, store)
    return work


def _note_memory_limit(folder: Path, crashed: Iterable[RejectedRecording], megabytes: float) -> None:
    """Writes down under which limit recordings needed too much memory, which is not part of the key."""
    (folder / MEMORY_LIMIT_FILE).unlink(missing_ok=True)  # of an output that is made again
    if any(crash.reason is Reason.OUT_OF_MEMORY for crash in crashed):
        with atomic_write(folder / MEMORY_LIMIT_FILE, "w") as out:
            json.dump({"worker_memory_megabytes": megabytes}, out)


def _check_memory_limit(folder: Path, megabytes: float) -> None:
    """Refuses an output with `out_of_memory` rejects that another limit may spare.

    Raises:
      WorkError: the limit was lower then, so these recordings are tried again.
    """
    file = folder / MEMORY_LIMIT_FILE
    if not file.is_file():
        return
    limit = json.loads(file.read_text(encoding="utf-8"))["worker_memory_megabytes"]
    if limit and (not megabytes or megabytes > limit):
        raise WorkError(f"some recordings needed more than {limit:g} MB, and more is allowed now")


def decode_new(
    scan: ManifestScan, pool: WavPool, settings: ConvertSettings, work: StepOutput
) -> dict[str, RejectedRecording]:
    """Converts each NEW recording once, and logs the result in the pool.

    Returns:
      Recordings that crashed the process that read them, by the name of their WAV. They are not logged: the machine may
      have been the cause, so a later run tries again.

    Raises:
      WorkError: a recording is no longer what the manifest says, or a WAV cannot be written.
    """
    work.counts["decoded"] = 0

    to_decode = _lines_to_decode(scan, pool, settings) if scan.to_decode else _Lines()
    if not len(to_decode):
        return {}

    pool.sweep()
    decoding = _Decoding(scan, pool, settings, work)
    try:
        decoding.run(to_decode)

        # One sync for all WAVs, before anything names them. An fsync for each would cost more than the decoding where
        # others write too (10 ms and 2 ms).
        os.sync()
    except OSError as error:
        raise WorkError(
            f"convert: cannot write to {pool.folder}: {error.strerror or error}; make room or fix the permissions, "
            "and start again: what is converted stays"
        ) from error

    if decoding.changed:
        # Not a reject: the recording may be fine. The manifest is out of date, perhaps elsewhere too.
        raise WorkError(
            f"convert: {decoding.changed:,} recordings changed after they were ingested; run ingest again, then "
            f"convert (what is converted stays): {'; '.join(decoding.examples)}"
            + "; …"
            * (decoding.changed > MAX_EXAMPLES)
        )

    work.counts["decoded"] = decoding.decoded
    return decoding.crashed


def _lines_to_decode(scan: ManifestScan, pool: WavPool, settings: ConvertSettings) -> "_Lines":
    """The lines whose recordings are decoded, each recording once.

    What is cheap comes first: a recording without a usable transcript is not decoded.
    """
    alphabet = Alphabet.from_name(settings.alphabet)
    lines = _Lines()

    # Two lines with the same audio and segment have one WAV, whatever their ids and texts.
    names = DigestMap(0)
    for offset, utterance in zip(scan.to_decode, scan.utterances_at(scan.to_decode), strict=True):
        if isinstance(prepare_transcript(utterance, settings, alphabet), Reject):
            continue

        name = bytes.fromhex(pool.name(utterance))
        if not check_length(utterance, utterance.duration, settings) and names.find(name) is None:
            names.put(name)
            lines.add(offset, utterance)
    lines.gather(scan)
    return lines


class _Lines:
    """Byte offsets of lines of the manifest, those apart whose recordings should be decoded once for all of them.

    Attributes:
      alone: lines that are decoded one by one.
      groups: lines with segments of one recording each.
    """

    def __init__(self) -> None:
        self.alone = array("Q")
        self.groups: list[array[int]] = []
        self._segments: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self.alone) + sum(map(len, self.groups))

    def add(self, offset: int, utterance: Utterance) -> None:
        if utterance.offset:
            self._segments.setdefault(utterance.audio_filepath, array("Q")).append(offset)
        else:
            self.alone.append(offset)

    def gather(self, scan: ManifestScan) -> None:
        """Makes groups, when all lines are there."""
        if not self._segments:
            return

        # Formats that are decoded from the start anyway, such as MP3, are decoded once. In others a segment is reached
        # by a seek.
        shared = {path for path in self._segments if shares_one_decode(path)}
        alone = array("Q")
        for offset, utterance in zip(self.alone, scan.utterances_at(self.alone) if shared else (), strict=False):
            together = self._segments[utterance.audio_filepath] if utterance.audio_filepath in shared else alone
            together.append(offset)
        self.alone = alone if shared else self.alone

        for path, offsets in self._segments.items():
            if path not in shared:
                self.alone.extend(offsets)
                continue

            # In the order of time, so that one pass through the recording meets all segments.
            starts = {offset: item.offset for offset, item in zip(offsets, scan.utterances_at(offsets), strict=True)}
            ordered = array("Q", sorted(offsets, key=starts.__getitem__))
            self.groups += [ordered[at : at + MAX_GROUP] for at in range(0, len(ordered), MAX_GROUP)]
        self._segments.clear()


class _Decoding:
    """The conversion of the new recordings.

    Attributes:
      decoded: number of recordings that were decoded.
      changed: number that are not what the manifest says, and `examples` of them.
      crashed: see `decode_new`.
    """

    def __init__(self, scan: ManifestScan, pool: WavPool, settings: ConvertSettings, work: StepOutput) -> None:
        self._scan = scan
        self._pool = pool
        self._settings = settings
        self._work = work

        # Digests of the WAVs in the order of the jobs, one after the other, and the number of each group's first job.
        # Groups are numbered as they are taken, so that a result finds the name of its WAV by its place.
        self._names = bytearray()
        self._firsts = array("Q")
        self.decoded = 0
        self.changed = 0
        self.examples: list[str] = []
        self.crashed: dict[str, RejectedRecording] = {}

    def run(self, lines: _Lines) -> None:
        progress = Progress("recordings", total=len(lines))
        with self._pool.open_log(self._work.key) as log, self._pool.open_uploader(log) as uploader:
            for group, results in self._results(self._groups(lines)):
                for number, result in enumerate(results, start=self._firsts[group]):
                    progress.advance()
                    name = self._names[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES].hex()
                    self._take(name, result, log, uploader)

    def _take(self, name: str, result: ConversionResult, log: DecodeLogWriter, uploader: WavUploader) -> None:
        """Logs what happened to the recording of a WAV."""
        if isinstance(result, SourceChanged):
            # The smallest few, so that the message does not depend on the order of the results.
            self.changed += 1
            self.examples = heapq.nsmallest(MAX_EXAMPLES, [*self.examples, result.detail])
        elif isinstance(result, WorkerCrashed):
            self.crashed[name] = self._reject_crash(result)
        else:
            # Logged after the WAV was written: readers take a line as proof of its WAV.
            self.decoded += isinstance(result, RejectedRecording) or result.decoded
            samples = None if isinstance(result, RejectedRecording) else result.samples
            self._pool.logs.add(log.path, log.add(name, result), name, samples)
            uploader.add(self._pool.path(name), result)

    def _reject_crash(self, crash: WorkerCrashed) -> RejectedRecording:
        if not crash.out_of_memory:
            return RejectedRecording(Reason.UNREADABLE, crash.detail)
        limit = self._settings.worker_memory_megabytes
        allowed = f"; convert.worker_memory_megabytes allows {limit:g} MB" if limit else ""
        return RejectedRecording(Reason.OUT_OF_MEMORY, crash.detail + allowed)

    def _results(self, groups: Iterator[JobGroup]) -> Iterator[tuple[int, list[ConversionResult]]]:
        settings = self._settings
        if settings.runner == PROCESSES:
            limits = settings.decode_seconds, settings.worker_memory_megabytes
            return convert_in_processes(groups, settings.workers, *limits)
        from voxline.components.convert.beam import convert_groups

        return convert_groups(groups, settings, self._pool.folder, self._work.folder / "unfinished")

    def _groups(self, lines: _Lines) -> Iterator[JobGroup]:
        """The jobs; the longest first, so that no worker begins one when the others are done."""
        for offsets in lines.groups:
            self._firsts.append(len(self._names) // DIGEST_BYTES)
            yield tuple(self._jobs(offsets))

        for job in self._jobs(lines.alone):
            self._firsts.append(len(self._names) // DIGEST_BYTES - 1)
            yield (job,)

    def _jobs(self, offsets: "array[int]") -> Iterator[ConversionJob]:
        for utterance in self._scan.utterances_at(offsets):
            name = self._pool.name(utterance)
            self._names += bytes.fromhex(name)
            yield self._job(utterance, name)

    def _job(self, utterance: Utterance, name: str) -> ConversionJob:
        return ConversionJob(
            source=utterance.audio_filepath,
            audio_hash=utterance.audio_hash,
            offset=utterance.offset,
            duration=utterance.duration or None,
            wav=self._pool.path(name),
            sample_rate=self._settings.sample_rate,
            silence_db=self._settings.silence_db,
            shaping=self._settings.shaping,
            max_seconds=self._settings.max_seconds,
            raw=raw_format_of(utterance),
            channel=channel_of(utterance),
            prosody=self._settings.prosody,
            measured=self._pool.find_measured(name) if self._settings.prosody else "",
        )
