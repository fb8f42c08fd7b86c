"""The logs of the WAV pool: what happened to each recording that was ever decoded, by the name of its WAV.

  <store>/wavs/log/<key>.jsonl    a line for each recording that the run <key> decoded:
    {"wav":"3f9a…","silence_db":-60.0,"samples":35200,"measured":{"peak_db":-3.1,…}}
    {"wav":"77b0…","silence_db":-60.0,"reason":"truncated","detail":"…"}
    {"wav":"01ab…","silence_db":-60.0,"reason":"too_long","detail":"…","longer_than":60.0}
    {"wav":"9c1f…","silence_db":-60.0,"samples":52800,"measured":{…,"f0_hz":121.3,…},"prosody":true}

Because of the logs, an unchanged recording costs a later run no audio work, even if it was rejected. Each run appends
to a log of its own, after the WAV has appeared. Readers skip a last line that a kill cut short, and that recording is
decoded again. In memory there is only the position of each line.
"""

import json
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from voxline.components.convert.jobs import Converted, RejectedRecording
from voxline.data.json_codec import encode_json
from voxline.errors import WorkError
from voxline.rejects import Reason
from voxline.store.hashing import DIGEST_BYTES, HASH_CHARACTERS, DigestMap
from voxline.store.size_limits import FILE_BUFFER

MAX_OPEN_LOGS = 32
PROSODY = ("onset_seconds", "offset_seconds", "speech_db", "voiced_share", "f0_hz", "f0_low_hz", "f0_high_hz")
"""What `summarize_prosody` measures; a run without prosody leaves it out of what one with it has logged."""

MAX_LOOKED_UP = 1_000
"""WAVs whose lines are searched for; for more, an index of all lines takes less time."""

_NAME_HEAD = b'{"wav":"'
_NAME_AT = slice(len(_NAME_HEAD), len(_NAME_HEAD) + HASH_CHARACTERS)
_LOCATION = struct.Struct("<QQ")
_OFFSET_BITS = 40
"""A location is the number of a log, and the byte offset of a line in these low bits."""
_NO_SAMPLES = 2**64 - 1


class _LogLine(msgspec.Struct):
    """A line of a log; `samples` and `measured`, or `reason` and `detail`, are set."""

    wav: str
    silence_db: float
    samples: int | None = None
    measured: msgspec.Raw = msgspec.Raw()
    reason: Reason | None = None
    detail: str = ""
    longer_than: float | None = None
    prosody: bool = False


_decode: Callable[[bytes], _LogLine] = msgspec.json.Decoder(_LogLine).decode


class DecodedRecording(NamedTuple):
    """A recording whose WAV was written.

    Attributes:
      wav: its name.
      measured: JSON.
    """

    wav: str
    samples: int
    measured: str


class LoggedRecording(NamedTuple):
    """The place of a recording's log line.

    Attributes:
      location: for `DecodeLogs.read`.
      samples: of its WAV; None: it was rejected.
    """

    location: int
    samples: int | None


class DecodeLogs:
    """The lines of all logs that were written with one `silence_db`, and with the prosody if that is wanted.

    Without those of recordings whose decoding stopped at a limit below `max_seconds`. For a few WAVs, only their lines
    are parsed: `look_up` names these before `find`.
    """

    def __init__(self, logs: Iterable[Path], silence_db: float, max_seconds: float, prosody: bool = False) -> None:
        self._silence_db = silence_db
        self._max_seconds = max_seconds
        self._prosody = prosody
        self._by_name = DigestMap(_LOCATION.size)
        self._logs = [(log, log.stat().st_ino) for log in logs]
        self._open: dict[int, IO[bytes]] = {}

        # Names whose lines are indexed, until all lines are.
        self._looked_up: set[bytes] = set()
        self._is_complete = False

    def look_up(self, names: Iterable[str]) -> None:
        """Indexes the lines about some WAVs; of many, all lines are indexed once."""
        if self._is_complete:
            return
        new = {name.encode() for name in names} - self._looked_up
        self._looked_up |= new
        if len(self._looked_up) > MAX_LOOKED_UP:
            self._index_all()
        elif new:
            self._index(new)

    def find(self, name: str) -> LoggedRecording | None:
        """The last line about a WAV."""
        if not self._is_complete and name.encode() not in self._looked_up:
            self._index_all()
        if (value := self._by_name.find(bytes.fromhex(name))) is None:
            return None
        location, samples = _LOCATION.unpack(value)
        return LoggedRecording(location, None if samples == _NO_SAMPLES else samples)

    def read(self, location: int) -> DecodedRecording | RejectedRecording:
        """Reads a line.

        Raises:
          WorkError: the log was replaced after it was indexed.
        """
        # Few logs are open at once: a store of many runs has more logs than a process may have open files.
        number = location >> _OFFSET_BITS
        offset = location & (1 << _OFFSET_BITS) - 1
        if number not in self._open:
            if len(self._open) == MAX_OPEN_LOGS:
                self.close()
            self._open[number] = self._opened(number)

        self._open[number].seek(offset)
        line = self._open[number].readline()
        values = _decode(line)

        if values.samples is None:
            assert values.reason  # noqa: S101 -- `_parse` let it pass
            return RejectedRecording(values.reason, values.detail, values.longer_than)

        # The manifest must not depend on which run decoded the recording, so prosody that is not wanted is left out.
        measured = bytes(values.measured).decode()
        if values.prosody and not self._prosody:
            measurements = {name: value for name, value in json.loads(measured).items() if name not in PROSODY}
            measured = encode_json(measurements)
        return DecodedRecording(values.wav, values.samples, measured)

    def add(self, log: Path, offset: int, name: str, samples: int | None) -> None:
        """Indexes a line that was appended to a log."""
        if not self._logs or self._logs[-1][0] != log:
            self._logs.append((log, log.stat().st_ino))
        if not self._is_complete:
            self._looked_up.add(name.encode())
        self._put(name, len(self._logs) - 1, offset, samples)

    def close(self) -> None:
        for log in self._open.values():
            log.close()
        self._open.clear()

    def _opened(self, number: int) -> IO[bytes]:
        """
        Raises:
          WorkError: the log was replaced after it was listed.
        """
        path, inode = self._logs[number]
        log = open(path, "rb", FILE_BUFFER)  # noqa: SIM115 -- closed by the caller
        if os.fstat(log.fileno()).st_ino != inode:
            log.close()
            raise WorkError(f"{path}: replaced while it was being read, probably by a purge; run this again")
        return log

    def _index_all(self) -> None:
        self._by_name = DigestMap(_LOCATION.size)
        self._looked_up.clear()
        self._is_complete = True
        self._index(None)

    def _index(self, names: set[bytes] | None) -> None:
        """Indexes the lines about some WAVs; None: all lines."""
        for number in range(len(self._logs)):
            offset = 0
            with self._opened(number) as lines:
                for line in lines:
                    # A line begins with its WAV's name, as the writer spells it.
                    is_new = names is None or line[_NAME_AT] in names or not line.startswith(_NAME_HEAD)
                    if is_new and (values := _parse(line)) and self._holds(values):
                        self._put(values.wav, number, offset, values.samples)
                    offset += len(line)

    def _holds(self, line: _LogLine) -> bool:
        # A recording that was longer than 60 s says nothing to a run that accepts 90 s. The share of silence, and which
        # recordings are silent, depend on `silence_db`.
        reached = line.longer_than is None or line.longer_than >= self._max_seconds
        measured = line.samples is None or line.prosody >= self._prosody
        return reached and measured and line.silence_db == self._silence_db

    def _put(self, name: str, log: int, offset: int, samples: int | None) -> None:
        # 16 bytes a recording in memory: its location and its samples. Later lines about a WAV replace earlier ones.
        location = log << _OFFSET_BITS | offset
        self._by_name.put(bytes.fromhex(name), _LOCATION.pack(location, _NO_SAMPLES if samples is None else samples))


class DecodeLogWriter:
    """Appends to the log of one run.

    Attributes:
      path: the log.
    """

    def __init__(self, path: Path, silence_db: float, prosody: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._silence_db = silence_db
        self._prosody = prosody
        self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115 -- closed in __exit__

        # A line that a kill cut short must not swallow the first one of this run.
        if _lacks_newline(path):
            self._file.write(b"\n")

    def __enter__(self) -> "DecodeLogWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, name: str, result: Converted | RejectedRecording) -> int:
        """Appends a line; returns its byte offset."""
        line: dict[str, Any] = {"wav": name, "silence_db": self._silence_db}
        if isinstance(result, RejectedRecording):
            line |= {"reason": str(result.reason), "detail": result.detail}
            line |= {} if result.longer_than is None else {"longer_than": result.longer_than}
        else:
            line |= {"samples": result.samples, "measured": result.measured}
            line |= {"prosody": True} if self._prosody else {}

        offset = self._file.tell()
        self._file.write(encode_json(line).encode() + b"\n")
        self._file.flush()  # this process reads the line back for the output, by a file of its own
        return offset


def _parse(line: bytes) -> _LogLine | None:
    """A line of a log; None if a kill cut it short, or it is damaged."""
    try:
        values = _decode(line)
        digest = bytes.fromhex(values.wav)
        whole = len(digest) == DIGEST_BYTES and digest.hex() == values.wav
    except ValueError:
        return None
    return values if whole and (values.reason if values.samples is None else values.measured) else None


def _lacks_newline(log: Path) -> bool:
    """Returns whether the last line was cut short."""
    with open(log, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
