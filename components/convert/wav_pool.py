"""The WAVs that all versions of a corpus share.

  <store>/wavs/3f/3f9a….wav    named by the source's content, the segment and the conversion

The logs of the pool (decode_log.py) say what is in each WAV.

If the store is a bucket, the logs are downloaded and the WAVs are not: a listing of the bucket says which exist. New
WAVs are uploaded while others are still being converted. Of two machines that write the same log, the later one wins,
and the recordings that only the other had logged are decoded once more.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from voxline.audio.wav import HEADER_BYTES
from voxline.components.convert.decode_log import DecodedRecording, DecodeLogs, DecodeLogWriter
from voxline.components.convert.jobs import NO_SHAPING, Converted, RejectedRecording, Shaping, channel_of, raw_format_of
from voxline.data.json_codec import iter_lines, parse_json
from voxline.data.manifest import MANIFEST_FILE, Utterance
from voxline.errors import WorkError
from voxline.store.files import remove_unfinished
from voxline.store.hashing import canonical_json, hash_bytes, hash_value
from voxline.store.objects import ObjectStore, open_store

WAV_REVISION = 8
"""Raise it whenever a WAV or its measurements would come out differently, or another recording would be rejected."""

FIRST_UPLOAD = 500
"""WAVs of the first upload. Each further one has twice as many, since each lists the pool to skip what is there."""


class WavPool:
    """The WAVs of a store.

    Attributes:
      folder: `<store>/wavs` on this machine.
    """

    def __init__(
        self,
        store: Path | str,
        sample_rate: int,
        silence_db: float,
        shaping: Shaping = NO_SHAPING,
        max_seconds: float = 0.0,
        prosody: bool = False,
    ) -> None:
        # Of a bucket, the folder in the bucket cache: new WAVs are written there, and uploaded.
        self._store = open_store(store) / "wavs"
        self.folder = self._store.local_path()
        self._root = str(self.folder)
        self._descriptor: int | None = None  # of the folder, once a WAV was looked for

        # Rate and shaping are in the name of a WAV; the others only decide which lines of the logs count.
        self._sample_rate = sample_rate
        self._silence_db = silence_db
        self._shaping = shaping.key_values()
        self._max_seconds = max_seconds
        self._prosody = prosody

    def __enter__(self) -> "WavPool":
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("logs", "_plain_logs"):
            if name in vars(self):  # they are read only if a line is new
                getattr(self, name).close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def name(self, utterance: Utterance) -> str:
        """Names the WAV of an utterance by what goes into it: never by a path, an id or a text."""
        audio = utterance.audio_hash
        duration = float(utterance.duration)
        offset = float(utterance.offset)
        raw = raw_format_of(utterance) if utterance.extra else None
        channel = channel_of(utterance) if utterance.extra else None

        if not self._shaping and not raw and channel is None:  # the same name as below, in a third of the time
            return hash_bytes(
                f'{{"audio":{canonical_json(audio)},"duration":{duration!r},'
                f'"offset":{offset!r},"revision":{WAV_REVISION},"sample_rate":{self._sample_rate}}}'.encode()
            )

        # Settings that change nothing are left out, so that the names of a store made before they existed still hold.
        names = {"audio": audio, "offset": offset, "duration": duration, "sample_rate": self._sample_rate}
        stated = {"raw": dataclasses.asdict(raw)} if raw else {}
        side = {} if channel is None else {"channel": channel}
        return hash_value({**names, "revision": WAV_REVISION, **self._shaping, **stated, **side})

    def path(self, name: str) -> Path:
        return Path(self.path_text(name))

    def path_text(self, name: str) -> str:
        """The path as text. To build a `Path` costs more than all other work on a known recording."""
        return f"{self._root}/{name[:2]}/{name}.wav"

    @functools.cached_property
    def logs(self) -> DecodeLogs:
        """Returns what earlier runs logged of recordings, whether their WAVs exist or not."""
        return self._read_logs(self._prosody)

    @functools.cached_property
    def _plain_logs(self) -> DecodeLogs:
        return self._read_logs(prosody=False)

    def _read_logs(self, prosody: bool) -> DecodeLogs:
        # In the order of their names, on every machine: of two lines about a WAV the last one counts.
        self._store.pull(self._store.list("log/"))
        logs = sorted((self.folder / "log").glob("*.jsonl"))
        return DecodeLogs(logs, self._silence_db, self._max_seconds, prosody)

    def find_decoded(self, name: str) -> int | None:
        """The location of a recording's log line in `logs`; None if it was not logged or its WAV is not whole."""
        logged = self.logs.find(name)
        if logged and (logged.samples is None or self.is_whole(name, logged.samples)):
            return logged.location
        return None

    def find_measured(self, name: str) -> str:
        """Returns the measurements of a WAV by earlier runs, without its prosody, as JSON; "" if there are none."""
        logged = self._plain_logs.find(name)
        if not logged or logged.samples is None or not self.is_whole(name, logged.samples):
            return ""
        recording = self._plain_logs.read(logged.location)
        return recording.measured if isinstance(recording, DecodedRecording) else ""

    def check(self, folder: Path) -> None:
        """Checks that the WAVs of a converted manifest exist and are whole.

        Raises:
          WorkError: some are not.
        """
        # Counted to the end, so that the message says how many; a pool that lost one WAV may have lost them all.
        missing = 0
        first = ""
        for _, line in iter_lines(folder / MANIFEST_FILE):  # convert wrote it, so the lines need no full check
            try:
                values = parse_json(line)
                name = values["audio_hash"]
                samples = values["duration"] * self._sample_rate
            except (ValueError, KeyError, TypeError) as error:
                raise WorkError(f"{folder / MANIFEST_FILE} is damaged ({error})") from None

            if not self.is_whole(name, round(samples)):
                missing = missing + 1
                first = first or name

        if missing:
            raise WorkError(f"{missing:,} of its WAVs are gone or cut short, such as {self.path_text(first)}")

    def open_log(self, key: str) -> DecodeLogWriter:
        """The log of the run with a key."""
        return DecodeLogWriter(self.folder / "log" / f"{key}.jsonl", self._silence_db, self._prosody)

    def open_uploader(self, log: DecodeLogWriter) -> "WavUploader":
        """Uploads the WAVs that a run adds, and its log."""
        return WavUploader(self._store, log.path)

    def sweep(self) -> None:
        """Removes what killed processes left half written."""
        # To match the names of all WAVs takes ten times as long as to list them.
        for folder in sorted(self.folder.glob("??")):
            if folder.is_dir() and any(name[0] == "." for name in os.listdir(folder)):  # noqa: PTH208 - as text
                remove_unfinished(folder)

    def is_whole(self, name: str, samples: int) -> bool:
        """Returns whether a WAV exists and has the size of so many samples."""
        # By the size: a WAV is renamed into place once, and to hash all of them would take as long as to read them.
        expected = HEADER_BYTES + 2 * samples
        if self._store.is_remote:
            return self._bucket_sizes.get(f"{name[:2]}/{name}.wav") == expected
        # Relative to the folder: of a long path, the system would look up each part for each of millions of WAVs.
        try:
            return os.stat(f"{name[:2]}/{name}.wav", dir_fd=self._opened_folder()).st_size == expected
        except FileNotFoundError:
            return False

    def are_whole(self, names: Sequence[str], samples: Sequence[int]) -> bool:
        """Returns whether all of some WAVs are; no WAV is needed where the name is empty."""
        if self._store.is_remote:
            return all(not name or self.is_whole(name, count) for name, count in zip(names, samples, strict=True))
        # As `is_whole`, without its call for each of them.
        try:
            folder = self._opened_folder() if any(names) else -1
            return all(
                not name or os.stat(f"{name[:2]}/{name}.wav", dir_fd=folder).st_size == HEADER_BYTES + 2 * count
                for name, count in zip(names, samples, strict=True)
            )
        except FileNotFoundError:
            return False

    def _opened_folder(self) -> int:
        """A descriptor of the folder."""
        if self._descriptor is None:
            self._descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        return self._descriptor

    @functools.cached_property
    def _bucket_sizes(self) -> dict[str, int]:
        """Bytes of the pool's objects; listed once, before anything is added."""
        return {entry.name: entry.size for entry in self._store.list()}


class WavUploader:
    """Uploads what one conversion adds to the pool.

    Args:
      store: the pool; nothing is uploaded if it is a folder.
      log: of the conversion, which grows meanwhile. It may be uploaded before the WAVs that it names: readers ignore a
        line whose WAV does not exist.
      first: number of WAVs of the first upload.
    """

    def __init__(self, store: ObjectStore, log: Path, first: int = FIRST_UPLOAD) -> None:
        self._store = store
        self._log = log
        self._root = store.local_path()
        self._waiting: list[str] = []
        self._batch = first
        self._upload: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> "WavUploader":
        return self

    def add(self, wav: Path, result: Converted | RejectedRecording) -> None:
        """Adds a recording that is done.

        Raises:
          WorkError: an earlier upload failed.
        """
        if not self._store.is_remote:
            return

        if isinstance(result, Converted):
            self._waiting.append(wav.relative_to(self._root).as_posix())
        if len(self._waiting) >= self._batch and (self._upload is None or self._upload.done()):
            self._start()
            self._batch *= 2

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            # An error ends the step at once; what was uploaded before is in the pool.
            if self._store.is_remote and kind is None:
                self._start()
                self._finish()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def _start(self) -> None:
        self._finish()
        names = self._waiting
        self._waiting = []
        self._upload = self._thread.submit(self._run, names)

    def _finish(self) -> None:
        if self._upload:
            self._upload.result()

    def _run(self, names: list[str]) -> None:
        # The pool's names are hashes of the content, so that a WAV which is there already needs no upload.
        self._store.push(names, absent_only=True)
        if not self._log.stat().st_size:
            return

        log = self._log.relative_to(self._root).as_posix()
        self._store.write(log, self._log.read_bytes())
