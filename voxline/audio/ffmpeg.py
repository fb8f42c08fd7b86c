"""Decoding what libsndfile cannot (AAC, WMA, WebM, some MP3s) with a static ffmpeg, block by block; and encoding.

Only containers that we recognize by their first bytes ever reach ffmpeg, and the demuxer is stated: left to
guess, it would open playlists, which name other files. What it complains about on stderr is kept: that is how it
reports damage and a cut end, with status 0.
"""

import contextlib
import os
import re
import resource
import shutil
import struct
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from voxline.audio.containers import Container
from voxline.errors import MissingPackageError, WorkError
from voxline.extras import missing_package
from voxline.rejects import BadAudioError, Reason
from voxline.store.files import atomic_write

BLOCK_BYTES = 1 << 20

DATA_BYTES = 256 * 10**6
ADDRESS_BYTES = 512 * 10**6
"""Memory of an ffmpeg, and its address space. A decode needs 100 MB and 250 MB, and 24 bytes for each packet of an MP4;
a table in a header of a few bytes may ask for gigabytes."""

CPU_SECONDS = 3_600
"""Processor time of an ffmpeg: some hundred hours of audio."""

_KEPT_MESSAGE_BYTES = 4_096
_SIGNS_OF_A_CUT = ("prematurely", "truncat", "partial file", "end of file")
_SIGNS_OF_DAMAGE = (
    "prematurely",
    "Error submitting packet to decoder",
    "Decoding error",
    "Error during demuxing",
    "invalid as first byte of an EBML number",
    "CRC mismatch",
    "orrupt",
)
"""What ffmpeg says of audio that it skips. Other messages are about pictures, tags and the like."""
_ADDRESS = re.compile(r" @ 0x[0-9a-f]+")
_NO_MEMORY = "Cannot allocate memory"


class FfmpegDecoder:
    """A running decoder of one file. As a context it ends its process, whether all was read or not.

    Attributes:
      sample_rate: Hz.
      channels: of the samples.
    """

    def __init__(self, path: Path, container: Container) -> None:
        """Starts decoding.

        Raises:
          BadAudioError: ffmpeg finds no audio in the file.
        """
        self._form = container.value
        self._messages = bytearray()
        self._process = subprocess.Popen(  # noqa: S603 -- a list of arguments; no shell
            [
                *(find_ffmpeg(), "-nostdin", "-hide_banner", "-v", "error", "-threads", "1"),
                *("-protocol_whitelist", "file", "-f", self._form, "-i", f"file:{path.absolute()}"),
                *("-vn", "-sn", "-dn", "-c:a", "pcm_s16le", "-fflags", "+bitexact", "-f", "wav", "pipe:1"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Else each of its threads reserves address space for an arena of its own.
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        )
        _limit(self._process.pid)

        # stderr has to be read all the while: a full pipe would stop ffmpeg.
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.channels, self.sample_rate = self._read_header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "FfmpegDecoder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def blocks(self) -> Iterator[npt.NDArray[np.int16]]:
        """The samples to the end of the file: int16 `[frames, channels]`.

        Raises:
          BadAudioError: after the last block, if ffmpeg failed.
        """
        # int16 of all channels; a block ends at a whole frame.
        width = 2 * self.channels
        while data := self._read(BLOCK_BYTES // width * width):
            yield np.frombuffer(data[: len(data) // width * width], "<i2").reshape(-1, self.channels)

        # Status 0 says nothing of damage: see `complaint`.
        if self._process.wait():
            self._listener.join()
            raise self._failure()

    def complaint(self, *, is_at_end: bool) -> BadAudioError | None:
        """The damage that ffmpeg has reported so far; of the whole file once that is read to its end."""
        if is_at_end:
            self._process.wait()
            self._listener.join()
        messages = self._messages.decode("utf-8", "replace")
        return self._failure() if any(sign in messages for sign in _SIGNS_OF_DAMAGE) else None

    def _read_header(self) -> tuple[int, int]:
        """Channels and rate, from the header of the WAV that ffmpeg writes; the samples follow."""
        # RIFF, size and WAVE; the size is a placeholder, since ffmpeg writes to a pipe.
        self._read(12)
        channels = 0
        rate = 0
        while len(chunk := self._read(8)) == 8:
            name, size = struct.unpack("<4sI", chunk)
            if name == b"data" and channels and rate:
                return channels, rate
            body = self._read(size + size % 2)
            if name == b"fmt ":
                channels, rate = struct.unpack_from("<2xHI", body)
        self._process.wait()
        self._listener.join()
        raise self._failure()

    def _read(self, count: int) -> bytes:
        assert self._process.stdout  # noqa: S101 -- it is a pipe
        return self._process.stdout.read(count)

    def _listen(self) -> None:
        assert self._process.stderr  # noqa: S101 -- it is a pipe
        while data := os.read(self._process.stderr.fileno(), _KEPT_MESSAGE_BYTES):
            # The first 4 KiB say what is wrong; a damaged file has millions of such messages.
            self._messages += data[: _KEPT_MESSAGE_BYTES - len(self._messages)]

    def _failure(self) -> BadAudioError:
        message = self._messages.decode("utf-8", "replace")
        if _NO_MEMORY in message:
            return BadAudioError(Reason.OUT_OF_MEMORY, f"ffmpeg needs more memory than it may have ({_NO_MEMORY})")

        # Addresses differ from run to run, and rejects must not.
        lines = [_ADDRESS.sub("", line).strip() for line in message.splitlines() if line.strip()]
        cut = [line for line in lines if any(sign in line.lower() for sign in _SIGNS_OF_A_CUT)]
        if cut:
            return BadAudioError(Reason.TRUNCATED, f"ffmpeg ({self._form}): {cut[0][:200]}")
        message = lines[-1][:200] if lines else f"ended with status {self._process.returncode}"
        return BadAudioError(Reason.UNREADABLE, f"ffmpeg cannot decode all of it as {self._form}: {message}")


ENCODINGS = {
    ".mp3": ("mp3", "libmp3lame"),
    ".m4a": ("ipod", "aac"),
    ".ogg": ("ogg", "libvorbis"),
    ".opus": ("opus", "libopus"),
    ".webm": ("webm", "libopus"),
    ".flac": ("flac", "flac"),
}
"""ffmpeg's format and codec for a file's extension."""


def write_encoded(path: Path, samples: npt.NDArray[np.int16], sample_rate: int) -> None:
    """Writes mono samples in the format of the path's extension, one of ENCODINGS, with pydub. The file appears whole.

    Args:
      samples: int16 `[samples]`.
      sample_rate: Hz. Opus has 48,000 of its own.

    Raises:
      WorkError: pydub or ffmpeg is not installed, or ffmpeg cannot encode it.
    """
    form, codec = ENCODINGS[path.suffix.lower()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydub warns if there is no ffmpeg on the PATH
        try:
            from pydub import AudioSegment
            from pydub.exceptions import CouldntEncodeError

            AudioSegment.converter = find_ffmpeg()
        except (ImportError, MissingPackageError) as missing:
            why = missing_package(missing.name or "pydub") if isinstance(missing, ImportError) else missing
            raise WorkError(f"{path}: {why}; a .wav needs neither ffmpeg nor pydub") from None

    pcm = np.ascontiguousarray(samples, "<i2").tobytes()
    segment = AudioSegment(pcm, sample_width=2, frame_rate=sample_rate, channels=1)
    try:
        with atomic_write(path) as file:
            segment.export(file, format=form, codec=codec)
    except CouldntEncodeError as error:
        raise WorkError(f"{path}: ffmpeg cannot encode it as {form}: {str(error).strip().splitlines()[-1]}") from None


def _limit(process: int) -> None:
    """Limits what a process that has just begun may take. Where the system is not Linux, `prlimit` is missing."""
    if not hasattr(resource, "prlimit"):
        return
    limits = (
        (resource.RLIMIT_DATA, DATA_BYTES),
        (resource.RLIMIT_AS, ADDRESS_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    )
    with contextlib.suppress(ProcessLookupError):  # it has ended
        for kind, limit in limits:
            # A limit that the caller already has is never raised.
            inherited = [value for value in resource.prlimit(process, kind) if value != resource.RLIM_INFINITY]
            least = min([limit, *inherited])
            resource.prlimit(process, kind, (least, least))


def find_ffmpeg() -> str:
    """The program: of the package imageio-ffmpeg (`IMAGEIO_FFMPEG_EXE` names another), else the one on the PATH.

    Raises:
      MissingPackageError: there is none.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    program = os.environ.get("IMAGEIO_FFMPEG_EXE") or shutil.which("ffmpeg")
    if not program:
        raise missing_package("imageio_ffmpeg")
    return program
