"""What became of each recording that was ever listened to, found in the pool's logs by the name of its WAV.

The logs stay on the disk: what is held is where a recording's line stands, and how long its WAV must be.
"""

import json
import os
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

from voxline.components.convert.jobs import RejectedRecording
from voxline.data.json_codec import encode_json
from voxline.errors import WorkError
from voxline.rejects import Reason
from voxline.store.hashing import DigestMap

_LOCATION = struct.Struct("<IQQ")
_unpack: Callable[[bytes], Any] = _LOCATION.unpack
REJECTED_SAMPLES = 2**64 - 1
"""What stands for the samples of a recording that was refused."""

_PLAIN_LINE = re.compile(
    rb'\{"wav": "([0-9a-f]{32})", "silence_db": (-?[0-9.]+), "samples": ([0-9]+), '
    rb'"measured": (\{(?:(?:, )?"[a-z_]+": (?:"[0-9a-f]*"|-?[0-9]+(?:\.[0-9]+(?:e-[0-9]+)?)?))*\})\}\n'
)
_NAME = re.compile("[0-9a-f]{32}")
MAX_OPEN_LOGS = 32


class DecodedRecording(NamedTuple):
    """A recording whose WAV was made.

    Attributes:
      wav: its name.
      measured: of it, as JSON.
    """

    wav: str
    samples: int
    measured: str


class DecodeLogs:
    """The lines of logs that hold for one `silence_db`."""

    def __init__(self, logs: Iterable[Path], silence_db: float) -> None:
        self._silence_db = silence_db
        self._digests = DigestMap(_LOCATION.size)
        self._logs: list[tuple[Path, int]] = []
        self._open: dict[int, IO[bytes]] = {}
        for log in logs:
            self._read(log)

    def place(self, name: str) -> tuple[int, int, int] | None:
        """Where the last line about a WAV stands: in which log, at which byte; and the WAV's samples, or REFUSED."""
        value = self._digests.find(bytes.fromhex(name))
        return _unpack(value) if value else None

    def at(self, log: int, offset: int) -> DecodedRecording | RejectedRecording:
        """What the line at such a place says.

        Raises:
          WorkError: somebody wrote the log anew meanwhile.
        """
        if log not in self._open:
            if len(self._open) == MAX_OPEN_LOGS:
                self.close()
            path, inode = self._logs[log]
            self._open[log] = open(path, "rb")  # noqa: SIM115 -- closed in `close`
            if os.fstat(self._open[log].fileno()).st_ino != inode:
                raise WorkError(f"{path}: was replaced while it was read, as by a purge; run this again")
        self._open[log].seek(offset)
        line = self._open[log].readline()
        # As we wrote it: to parse it once more costs as much as all else that is done for a known recording.
        if plain := _PLAIN_LINE.fullmatch(line):
            return DecodedRecording(plain[1].decode(), int(plain[3]), plain[4].decode())
        values = json.loads(line)
        if "reason" in values:
            return RejectedRecording(Reason(values["reason"]), values["detail"])
        return DecodedRecording(values["wav"], values["samples"], encode_json(values["measured"]))

    def add(self, log: Path, offset: int, name: str, samples: int | None) -> None:
        """Takes note of a line that was added to a log."""
        if not self._logs or self._logs[-1][0] != log:
            self._logs.append((log, log.stat().st_ino))
        self._put(name, offset, samples)

    def close(self) -> None:
        for log in self._open.values():
            log.close()
        self._open.clear()

    def _read(self, log: Path) -> None:
        offset = 0
        with open(log, "rb") as lines:
            self._logs.append((log, os.fstat(lines.fileno()).st_ino))
            for line in lines:
                if plain := _PLAIN_LINE.fullmatch(line):
                    if float(plain[2]) == self._silence_db:
                        self._put(plain[1].decode(), offset, int(plain[3]))
                elif (values := _parse_line(line)) and values["silence_db"] == self._silence_db:
                    self._put(values["wav"], offset, values.get("samples"))
                offset += len(line)

    def _put(self, name: str, offset: int, samples: int | None) -> None:
        place = _LOCATION.pack(len(self._logs) - 1, offset, REJECTED_SAMPLES if samples is None else samples)
        self._digests.put(bytes.fromhex(name), place)


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where a kill cut it short, or it is none of a pool's log."""
    try:
        values = json.loads(line)
    except ValueError:
        return None
    if not isinstance(values, dict) or "silence_db" not in values or not _NAME.fullmatch(str(values.get("wav"))):
        return None
    return values if values.keys() >= {"reason", "detail"} or values.keys() >= {"samples", "measured"} else None
