"""The WAVs that all versions of a corpus share, and the log of what became of each recording.

  <store>/wavs/3f/3f9a….wav     named by the source's content, the segment and the conversion
  <store>/wavs/log/<key>.jsonl  a line for each recording that the run <key> had to touch:
    {"wav": "3f9a…", "silence_db": -60.0, "samples": 35200, "measured": {"peak_db": -3.1, …}}
    {"wav": "77b0…", "silence_db": -60.0, "reason": "truncated", "detail": "…"}

The log is why an unchanged recording costs a later run no audio work, not even where it was rejected. It is
appended to after its WAV has appeared; a last line that a kill cut short is passed over, and that recording is
looked at again. Each run has a log of its own, and its key is claimed, so no two processes write to one.

Of a pool in a bucket, the logs are brought and the WAVs are not: their list says which of them are there. New ones are
sent while others are still being converted. What two machines write to one log is lost but for the later's, which costs
a second look at those recordings.
"""

import functools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from voxline.audio.wav import HEADER_BYTES
from voxline.components.convert.decode_log import REJECTED_SAMPLES, DecodeLogs
from voxline.components.convert.jobs import NO_SHAPING, Converted, RejectedRecording, Shaping
from voxline.data.json_codec import encode_json, encode_number, encode_string, iter_lines, parse_json
from voxline.data.manifest import MANIFEST_FILE, Utterance
from voxline.errors import WorkError
from voxline.store.bucket_cache import BucketCache, ensure_local, local_path
from voxline.store.files import remove_unfinished
from voxline.store.hashing import hash_bytes, hash_value
from voxline.store.objects import is_remote

FIRST_UPLOAD = 500
"""Each further batch is twice as large: whatever is in the pool is listed once for each, to send nothing twice."""


class WavUploader:
    """What one conversion sends.

    Args:
      mirror: of the pool; None: it is a folder, and there is nothing to send.
      log: the conversion's, which grows meanwhile. That it may tell of WAVs which are still to be sent does no harm: a
        line counts where the WAV is there.
    """

    def __init__(self, mirror: BucketCache | None, log: Path) -> None:
        self._mirror, self._log = mirror, log
        self._waiting: list[str] = []
        self._batch = FIRST_UPLOAD
        self._on_the_way: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> "WavUploader":
        return self

    def add(self, wav: Path, outcome: Converted | RejectedRecording) -> None:
        """Takes note of a recording that is done with.

        Raises:
          WorkError: what was sent before did not arrive.
        """
        if self._mirror is None:
            return
        if isinstance(outcome, Converted):
            self._waiting.append(wav.relative_to(self._mirror.root).as_posix())
        if len(self._waiting) >= self._batch and (self._on_the_way is None or self._on_the_way.done()):
            self._send(self._mirror)
            self._batch *= 2

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._mirror and kind is None:
                self._send(self._mirror)
                self._arrived()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def _send(self, mirror: BucketCache) -> None:
        self._arrived()
        names, self._waiting = self._waiting, []
        self._on_the_way = self._thread.submit(self._deliver, mirror, names)

    def _arrived(self) -> None:
        if self._on_the_way:
            self._on_the_way.result()

    def _deliver(self, mirror: BucketCache, names: list[str]) -> None:
        mirror.push(names, absent_only=True)
        if not self._log.stat().st_size:
            return
        log = self._log.relative_to(mirror.root).as_posix()
        mirror.bucket.write(log, self._log.read_bytes())


WAV_REVISION = 2
"""Raised whenever a WAV or what is measured of it would come out otherwise, or a recording be refused that was not."""


class WavPool:
    """The WAVs of a store.

    Attributes:
      folder: `<store>/wavs` on this machine.
    """

    def __init__(self, store: Path | str, sample_rate: int, silence_db: float, shaping: Shaping = NO_SHAPING) -> None:
        self.folder = local_path(store) / "wavs"
        self._root = str(self.folder)
        self._mirror = BucketCache.of(f"{store}/wavs") if is_remote(store) else None
        self._sample_rate, self._silence_db, self._naming = sample_rate, silence_db, shaping.naming()

    def __enter__(self) -> "WavPool":
        return self

    def __exit__(self, *_: object) -> None:
        if "outcomes" in vars(self):  # nobody asked for them where nothing was new
            self.outcomes.close()

    def name(self, utterance: Utterance) -> str:
        """Names the WAV of an utterance by what goes into it: never by a path, an id or a text."""
        audio, duration, offset = utterance.audio_hash, float(utterance.duration), float(utterance.offset)
        if not self._naming:  # as below, in a third of the time
            return hash_bytes(
                f'{{"audio":{encode_string(audio)},"duration":{encode_number(duration)},"offset":{encode_number(offset)},'
                f'"revision":{WAV_REVISION},"sample_rate":{self._sample_rate}}}'.encode()
            )
        names = {"audio": audio, "offset": offset, "duration": duration, "sample_rate": self._sample_rate}
        return hash_value({**names, "revision": WAV_REVISION, **self._naming})

    def path(self, name: str) -> Path:
        return Path(self.place(name))

    def place(self, name: str) -> str:
        """The path as text: to build one of parts costs more than all else that is done for a known recording."""
        return f"{self._root}/{name[:2]}/{name}.wav"

    @functools.cached_property
    def outcomes(self) -> DecodeLogs:
        """What earlier runs found out about recordings, whether their WAVs are still there or not."""
        if self._mirror:
            self._mirror.pull_below("log/")
        return DecodeLogs(sorted((self.folder / "log").glob("*.jsonl")), self._silence_db)

    def whole_outcome(self, name: str) -> tuple[int, int, int] | None:
        """Where it stands what became of a recording (see `DecodeLogs.place`), unless its WAV is gone or cut short."""
        place = self.outcomes.place(name)
        return place if place and (place[2] == REJECTED_SAMPLES or self.is_whole(name, place[2])) else None

    def check(self, folder: Path) -> None:
        """Sees that the WAVs of a converted manifest are there, whole.

        Raises:
          WorkError: some are not.
        """
        ensure_local([folder / MANIFEST_FILE])
        gone, first = 0, ""
        for _, line in iter_lines(
            folder / MANIFEST_FILE
        ):  # ours, so a parse is enough; what is no line makes it no manifest
            try:
                name, samples = (
                    (values := parse_json(line.decode()))["audio_hash"],
                    values["duration"] * self._sample_rate,
                )
            except (ValueError, KeyError, TypeError) as error:
                raise WorkError(f"{folder / MANIFEST_FILE} is damaged ({error})") from None
            if not self.is_whole(name, round(samples)):
                gone, first = gone + 1, first or name
        if gone:
            raise WorkError(f"{gone:,} of its WAVs are gone or cut short, such as {self.place(first)}")

    def log(self, key: str) -> "DecodeLogWriter":
        return DecodeLogWriter(self.folder / "log" / f"{key}.jsonl", self._silence_db)

    def sending(self, log: "DecodeLogWriter") -> "WavUploader":
        """What sends the WAVs that a conversion adds."""

        return WavUploader(self._mirror, log.path)

    def sweep(self) -> None:
        """Removes what killed processes left half written."""
        remove_unfinished(self.folder, "??/.*.part")

    def is_whole(self, name: str, samples: int) -> bool:
        """Whether a WAV is there, as long as it must be."""
        expected = HEADER_BYTES + 2 * samples
        if self._mirror:
            return self._sizes.get(f"{name[:2]}/{name}.wav") == expected
        try:
            return os.stat(f"{self._root}/{name[:2]}/{name}.wav").st_size == expected  # noqa: PTH116 - no Path: see `place`
        except FileNotFoundError:
            return False

    @functools.cached_property
    def _sizes(self) -> dict[str, int]:
        """Bytes of what is in the bucket; listed once, and before anything is added."""
        return {entry.name: entry.size for entry in self._mirror.bucket.list()} if self._mirror else {}


class DecodeLogWriter:
    """The log of one run, open for more.

    Attributes:
      path: the file.
    """

    def __init__(self, path: Path, silence_db: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._silence_db = silence_db
        self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115 -- closed in __exit__
        if _lacks_newline(path):
            self._file.write(b"\n")

    def __enter__(self) -> "DecodeLogWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, name: str, outcome: Converted | RejectedRecording) -> int:
        """Adds a line; returns at which byte it stands."""
        line: dict[str, Any] = {"wav": name, "silence_db": self._silence_db}
        if isinstance(outcome, RejectedRecording):
            line |= {"reason": str(outcome.reason), "detail": outcome.detail}
        else:
            line |= {"samples": outcome.samples, "measured": outcome.measured}
        at = self._file.tell()
        self._file.write(encode_json(line).encode() + b"\n")
        self._file.flush()
        return at


def _lacks_newline(log: Path) -> bool:
    """Whether its last line has no end."""
    with open(log, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
