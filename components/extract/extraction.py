"""One extraction: scans the manifest, writes the clips that no shard has, and builds the dataset."""

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import read_header
from voxline.components.extract.clip_features import crashed_clips, note_clips
from voxline.components.extract.manifest_scan import ScannedManifest, clip_of_line, scan_manifest
from voxline.components.extract.normalization import compute_normalization
from voxline.components.extract.plan import ATTEMPTS_FOLDER, plan_shards, split_rank
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.shard_index import DamagedShardError, PoolIndex
from voxline.components.extract.write_shard import FailedClip, write_shards
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.manifest import REJECTS_FILE, check_reject_share, write_rejects
from voxline.data.record_locations import RecordLocations, write_record_locations
from voxline.data.rows import ROWS_FILE
from voxline.errors import SettingsError, WorkError
from voxline.progress import print_status
from voxline.rejects import BadAudioError, Reason, Reject
from voxline.store.hashing import hash_file
from voxline.store.step_cache import INCOMPLETE, StepOutput
from voxline.text.alphabet import Alphabet

_WAV_FAULTS = (Reason.MISSING_FILE, Reason.TRUNCATED, Reason.EMPTY_AUDIO)
"""Faults of a WAV's file, not of the recording: convert wrote it whole, and will again."""

PROBED_RECORDINGS = 8
"""Recordings whose header is read before any work."""


class Extraction:
    """The work of one extraction.

    Args:
      manifest: the manifest's file.
      check_manifest: raises a WorkError if the manifest has changed since it was named.
      fingerprint: of the manifest.
      store: holds the pool of shards.
      output: of the step.
    """

    def __init__(
        self,
        manifest: Path,
        check_manifest: Callable[[], None],
        fingerprint: str,
        store: str,
        settings: ExtractSettings,
        output: StepOutput,
    ) -> None:
        self._manifest = manifest
        self._check_manifest = check_manifest
        self._fingerprint = fingerprint
        self._store = store
        self._settings = settings
        self._output = output

        # The column of `clips` and `locations` with the original speed. Without that clip an utterance is a reject.
        self._original = settings.speeds.index(1.0)

        # Cleared first, since the scan writes its rows there.
        self._unfinished = _clear_unfinished(output.folder)
        self._scan = self._scan_manifest()
        self._pool = PoolIndex(store, settings.features)

    def run(self) -> None:
        """Writes the missing clips and the dataset.

        Raises:
          SettingsError: the recordings have another sample rate than `features.sample_rate`.
          WorkError: too many recordings failed, or the manifest changed.
        """
        scan = self._scan
        output = self._output
        extracted = 0

        # Again where a shard of the pool turns out to be damaged: without it, its clips are missing.
        while True:
            locations, failed, records = self._write_missing()
            extracted += records
            usable = locations["shard"][:, self._original] >= 0

            rejects = scan.rejects + self._reject_failed(usable, failed)
            rejects_file = output.folder / REJECTS_FILE
            write_rejects(rejects_file, rejects)
            check_reject_share(len(rejects), scan.total, self._settings.max_reject_share, "extract", rejects_file)

            # Its statistics read the sums of every shard, which no check before has done.
            try:
                dataset = self._build_dataset(locations[usable], usable)
                break
            except DamagedShardError as damage:
                self._pool.set_aside(damage)

        # An utterance can do without its copies at other speeds, but the next run should try again to make them.
        lost = int(((scan.clips != b"") & (locations["shard"] < 0))[usable].any(axis=1).sum())
        if lost:
            print_status(f"extract: no copies at other speeds of {lost:,} utterances, whose files changed meanwhile")

        if incomplete := lost + sum(reject.reason in _WAV_FAULTS for reject in rejects):
            output.counts[INCOMPLETE] = incomplete

        # The notes of crashed clips go too: all that are not rejects were written.
        shutil.rmtree(self._unfinished)
        output.counts.update(
            utterances=sum(dataset.counts.values()),
            rejects=len(rejects),
            **dataset.counts,
            extracted=extracted,
            shards=len(dataset.shards),
            examples=int((locations["shard"][usable] >= 0).sum()),
        )

        hours = {f"{split}_hours": round(seconds / 3600, 4) for split, seconds in dataset.seconds.items()}
        output.metrics.update(hours)
        output.outputs.update(dataset=DATASET_FILE, rows=ROWS_FILE, rejects=REJECTS_FILE)
        print_status(
            f"extract: {output.counts['utterances']:,} utterances in {len(dataset.shards):,} shards, "
            f"{extracted:,} clips new, {len(rejects):,} rejects"
        )

    def _scan_manifest(self) -> ScannedManifest:
        try:
            return scan_manifest(self._manifest, self._settings, self._unfinished, self._store)
        except (WorkError, ValueError):
            self._check_manifest()  # if it changed, that is why
            raise

    def _write_missing(self) -> tuple[RecordLocations, dict[str, FailedClip], int]:
        """Writes the clips that no shard has.

        Returns:
          The location of every clip, the clips that failed, and the number of clips that were written.
        """
        scan = self._scan
        pool = self._pool

        # [utterances, speeds]; a clip that is not wanted is empty, and is never missing.
        locations = pool.find(scan.clips)
        missing = (scan.clips != b"") & (locations["shard"] < 0)

        tasks = plan_shards(scan, missing, self._settings, self._unfinished)
        self._check_manifest()  # the manifest is not read after this
        if not tasks:
            return locations, {}, 0

        self._check_sample_rate(missing)
        clips = sum(task.utterances for task in tasks)
        print_status(f"extract: {clips:,} new clips of {len(scan.ids):,} utterances, into {len(tasks):,} shards")

        failures = write_shards(tasks, self._settings, self._store, self._unfinished)
        failed = {failure.clip: failure for failure in failures}

        # Other processes may have written some of the clips too; the index takes whatever the pool has now.
        pool.refresh()
        return pool.find(scan.clips), failed, clips - len(failed)

    def _check_sample_rate(self, missing: npt.NDArray[np.bool_]) -> None:
        """Refuses a corpus of another rate at once, not as thousands of rejects."""
        expected = self._settings.features.sample_rate
        attempts = self._unfinished / ATTEMPTS_FOLDER
        rates = set()
        new = np.flatnonzero(missing.any(axis=1))[:PROBED_RECORDINGS].tolist()

        # A header can crash the decoder as well, so that this is noted like the work on a shard.
        crashed = crashed_clips(attempts)
        with note_clips(attempts, "rates") as note:
            for utterance in self._scan.utterances(new):
                if (clip := clip_of_line(utterance.as_line(), 1.0)) in crashed:
                    continue  # it will be tried in a process of its own
                note(clip)
                with contextlib.suppress(BadAudioError):  # it becomes a reject when its shard is written
                    rates.add(read_header(utterance.audio_filepath).sample_rate)

        # A few of another rate are rejects; if all are, the setting is wrong.
        if rates and expected not in rates:
            raise SettingsError(
                f"extract: 'features.sample_rate' is {expected} Hz and the recordings have {rates.pop()} Hz; "
                "give it the value of convert's sample_rate"
            )

    def _reject_failed(self, usable: npt.NDArray[np.bool_], failed: dict[str, FailedClip]) -> list[Reject]:
        """A reject for each utterance whose clip failed, also where several share one."""
        rejects = []
        for number in np.flatnonzero(~usable).tolist():
            utterance = self._scan.ids[number]
            clip = self._scan.clip(number, self._original)
            if clip not in failed:
                raise WorkError(f"extract: {utterance} is in no shard, though its shard was written; run it again")
            rejects.append(Reject(utterance, Reason(failed[clip].reason), failed[clip].detail))
        return rejects

    def _build_dataset(self, locations: RecordLocations, usable: npt.NDArray[np.bool_]) -> Dataset:
        """Writes the dataset of the usable utterances.

        Args:
          locations: the locations of their clips.

        Raises:
          DamagedShardError: the sums of a shard are damaged.
        """
        scan = self._scan
        settings = self._settings
        folder = self._output.folder

        # Features are normalized by the training split alone, without copies: dev and test must not shape what they
        # judge.
        splits = np.array(scan.splits)[usable]
        seconds = scan.seconds[usable]
        train = locations[splits == "train", self._original]
        mean, deviation = compute_normalization(self._pool, train, settings.features.bins)

        counted = Counter(splits.tolist())
        counts = Counter({split: counted[split] for split in sorted(counted, key=split_rank)})
        if not counts["train"]:
            print_status("extract: the split train is empty, so there are no statistics to normalize features with")

        # dataset.json is written last, since a dataset without it is not one.
        shards, listed = self._pool.list_shards(locations, folder)
        scan.write_rows(folder / ROWS_FILE, usable)
        self._output.hashes[ROWS_FILE] = hash_file(folder / ROWS_FILE)
        dataset = Dataset(
            key=self._output.key,
            fingerprint=self._fingerprint,
            features=settings.features,
            alphabet=Alphabet.from_name(settings.alphabet),
            frontend=settings.frontend.plain(),
            mean=mean,
            deviation=deviation,
            counts=dict(counts),
            seconds={split: round(float(seconds[splits == split].sum()), 3) for split in counts},
            speeds=settings.speeds,
            shards=shards,
            rows_hash=self._output.hashes[ROWS_FILE],
            record_locations_file=write_record_locations(folder, listed),
            folder=folder,
        )

        dataset.write(folder)
        return dataset


def _clear_unfinished(folder: Path) -> Path:
    """The folder for unfinished work. Of an earlier run, only the notes of crashed clips stay."""
    unfinished = folder / "unfinished"
    unfinished.mkdir(exist_ok=True)
    for path in unfinished.iterdir():
        if path.name != ATTEMPTS_FOLDER:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return unfinished
