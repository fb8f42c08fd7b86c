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
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from components.convert.job import NOT_SHAPED, Converted, Refused, Shaping
from components.convert.sending import Sending
from components.speech.buckets import is_remote
from components.speech.errors import WorkError
from components.speech.mirror import Mirror, bring, folder_of
from components.speech.storage import clear_unfinished, hash_value
from components.speech.utterances import MANIFEST, Reason, Utterance
from components.speech.wav import HEADER_BYTES

REVISION = 2
"""Raised whenever a WAV or what is measured of it would come out otherwise, or a recording be refused that was not."""


class WavPool:
    """The WAVs of a store.

    Attributes:
      folder: `<store>/wavs` on this machine.
    """

    def __init__(self, store: Path | str, sample_rate: int, silence_db: float, shaping: Shaping = NOT_SHAPED) -> None:
        self.folder = folder_of(store) / "wavs"
        self._root = str(self.folder)
        self._mirror = Mirror.of(f"{store}/wavs") if is_remote(store) else None
        self._has_logs = False
        self._sample_rate, self._silence_db, self._shaping = sample_rate, silence_db, shaping

    def name(self, utterance: Utterance) -> str:
        """Names the WAV of an utterance by what goes into it: never by a path, an id or a text."""
        return hash_value(
            {
                "audio": utterance.audio_hash,
                "offset": float(utterance.offset),
                "duration": float(utterance.duration),
                "sample_rate": self._sample_rate,
                "revision": REVISION,
                **self._shaping.naming(),
            }
        )

    def path(self, name: str) -> Path:
        return Path(self.place(name))

    def place(self, name: str) -> str:
        """The path as text: to build one of parts costs more than all else that is done for a known recording."""
        return f"{self._root}/{name[:2]}/{name}.wav"

    def known(self, names: set[str]) -> dict[str, Converted | Refused]:
        """What earlier runs found out about these recordings, as far as their WAVs are still there, whole."""
        self._bring_logs()
        found: dict[str, Converted | Refused] = {}
        for line in self._lines():
            if line["wav"] not in names or line["silence_db"] != self._silence_db:
                continue
            if "reason" in line:
                found[line["wav"]] = Refused(Reason(line["reason"]), line["detail"])
            elif self._is_whole(line["wav"], line["samples"]):
                found[line["wav"]] = Converted(line["samples"], line["measured"], decoded=False)
        return found

    def check(self, folder: Path) -> None:
        """Sees that the WAVs of a converted manifest are there, whole.

        Raises:
          WorkError: some are not.
        """
        bring([folder / MANIFEST])
        gone = []
        with open(folder / MANIFEST, "rb") as lines:
            for line in lines:  # ours, so a parse is enough; what is no line of it makes it no manifest
                try:
                    name, samples = (values := json.loads(line))["audio_hash"], values["duration"] * self._sample_rate
                except (ValueError, KeyError, TypeError) as error:
                    raise WorkError(f"{folder / MANIFEST} is damaged ({error})") from None
                if not self._is_whole(name, round(samples)):
                    gone.append(name)
        if gone:
            raise WorkError(f"{len(gone):,} of its WAVs are gone or cut short, such as {self.place(gone[0])}")

    def log(self, key: str) -> "Log":
        return Log(self.folder / "log" / f"{key}.jsonl", self._silence_db)

    def sending(self, log: "Log") -> Sending:
        """What sends the WAVs that a conversion adds."""
        return Sending(self._mirror, log.path)

    def sweep(self) -> None:
        """Removes what killed processes left half written."""
        clear_unfinished(self.folder, "??/.*.part")

    def _is_whole(self, name: str, samples: int) -> bool:
        expected = HEADER_BYTES + 2 * samples
        if self._mirror:
            return self._sizes.get(self.path(name).relative_to(self.folder).as_posix()) == expected
        try:
            return os.stat(self.place(name)).st_size == expected  # noqa: PTH116 - no Path: see `place`
        except FileNotFoundError:
            return False

    def _bring_logs(self) -> None:
        if self._mirror and not self._has_logs:
            self._mirror.pull_below("log/")
            self._has_logs = True

    @functools.cached_property
    def _sizes(self) -> dict[str, int]:
        """Bytes of what is in the bucket; listed once, and before anything is added."""
        return {entry.name: entry.size for entry in self._mirror.bucket.list()} if self._mirror else {}

    def _lines(self) -> Iterator[dict[str, Any]]:
        for file in sorted((self.folder / "log").glob("*.jsonl")):
            with open(file, "rb") as lines:
                for line in lines:
                    try:
                        values = json.loads(line)
                    except ValueError:
                        continue  # cut short by a kill
                    if isinstance(values, dict) and values.keys() >= {"wav", "silence_db"}:  # else none of ours
                        yield values


class Log:
    """The log of one run, open for more.

    Attributes:
      path: the file.
    """

    def __init__(self, path: Path, silence_db: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._silence_db = silence_db
        cut_short = path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n")
        self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115 -- closed in __exit__
        if cut_short:
            self._file.write(b"\n")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, name: str, outcome: Converted | Refused) -> None:
        line: dict[str, Any] = {"wav": name, "silence_db": self._silence_db}
        if isinstance(outcome, Refused):
            line |= {"reason": str(outcome.reason), "detail": outcome.detail}
        else:
            line |= {"samples": outcome.samples, "measured": outcome.measured}
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
