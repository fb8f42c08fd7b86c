"""Decodes recordings of strangers in processes of their own, with limits on samples, memory and time.

with DecodePool(DecodeLimits(max_seconds=600)) as decoders:
    samples = decoders.load_audio("upload.m4a", 16_000)      # float32 [samples], mono, in [-1, 1]

A decoder's fault, or a file that was made to exhaust it, ends a worker and the ffmpeg that it started; the next
recording has another worker. Workers stay, as a start takes 0.2 s of computing. Requests and answers are JSON, and
samples follow as bytes: a worker that a file controls can send no object.
"""

import contextlib
import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.worker_process import (
    WorkerProcess,
    end_with_pipe,
    ignore_interrupts,
    limit_cpu,
    limit_memory,
    reserved_memory,
)
from voxline.cancellation import check_cancelled, ends_early
from voxline.errors import MissingPackageError, WorkError
from voxline.extras import missing_package
from voxline.garbage import collect_rarely
from voxline.rejects import DURATION_TOLERANCE_SECONDS, MAX_SECONDS, SAMPLES_A_SECOND, BadAudioError, Reason

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

START_SECONDS = 60.0
"""In which a worker must have started, on a busy machine."""

_BASE_MEGABYTES, _BYTES_A_SAMPLE = 128.0, 12
"""What a decoder needs for any recording, and for each sample of the result: as decoded, joined, as floats."""
_NO_FFMPEG = "no_ffmpeg"
_FRAME_BYTES = 1 << 20
_MAX_MESSAGE_BYTES = 1 << 16
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}
"""Else each thread reserves address space for an arena of its own, which the limit of memory counts."""


@dataclasses.dataclass(frozen=True)
class DecodeLimits:
    """What one recording may take.

    Attributes:
      max_seconds: of the recording, or of the part of it that is read.
      decode_seconds: until the decoder's next answer, of wall time and of processor time.
    """

    max_seconds: float = MAX_SECONDS
    decode_seconds: float = 300.0

    @property
    def max_samples(self) -> int:
        """Of all channels together."""
        return round(self.max_seconds * SAMPLES_A_SECOND)

    def megabytes(self, sample_rate: int) -> float:
        """Memory that a worker may take beyond what it has when it starts."""
        return _BASE_MEGABYTES + self.max_seconds * sample_rate * _BYTES_A_SAMPLE / 1e6


class DecodePool:
    """Workers that decode, and stay for the next recording.

    Args:
      size: recordings that are decoded at a time; further ones wait.
    """

    # `_lock` guards the list of idle workers; `_free` counts how many recordings may be decoded at a time.
    def __init__(self, limits: DecodeLimits | None = None, size: int = 1) -> None:
        self.limits = limits or DecodeLimits()
        self._idle: list[_Decoder] = []
        self._lock, self._free = threading.Lock(), threading.Semaphore(size)
        self._size, self._closed = size, False

    def __enter__(self) -> "DecodePool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, workers: int | None = None) -> None:
        """Starts workers before the first recordings need them; does not wait for them."""
        with self._lock:
            missing = (self._size if workers is None else workers) - len(self._idle)
            self._idle += [_Decoder() for _ in range(missing)]

    def close(self) -> None:
        """Ends the workers; a recording that is being decoded fails."""
        with self._lock:
            self._closed = True
            # Taken out under the lock, so that no other thread can be given one of them.
            idle, self._idle = self._idle, []
        for decoder in idle:
            decoder.kill()
        # All are killed first: waiting for each before the next would add up.
        for decoder in idle:
            decoder.end_unless_idle()

    def load_audio(
        self, path: Path | str, sample_rate: int, offset: float = 0.0, duration: float | None = None
    ) -> "npt.NDArray[np.float32]":
        """Reads a recording, or a segment of it, as `voxline.audio.decoding.load_audio` does.

        Raises:
          BadAudioError: it is damaged, no audio, or exceeds a limit.
          WorkError: no worker could start.
          WorkCancelledError: the work of this thread was cancelled; the decoder has been ended.
        """
        [(_, decoded)] = self.decode_segments(path, [(offset, duration)], sample_rate)
        if isinstance(decoded, BadAudioError):
            raise decoded
        return decoded

    def decode_segments(
        self, path: Path | str, segments: Sequence[tuple[float, float | None]], sample_rate: int
    ) -> "Iterator[tuple[int, npt.NDArray[np.float32] | BadAudioError]]":
        """Reads segments of a recording as `voxline.audio.decoding.decode_segments` does, as float32 `[samples]`.

        Raises:
          BadAudioError, WorkError, WorkCancelledError: as `load_audio`.
        """
        # JSON alone: unpickling an answer would run what a hijacked worker sends.
        request = {
            "path": str(path),
            "segments": [list(segment) for segment in segments],
            "sample_rate": sample_rate,
            "max_seconds": self.limits.max_seconds,
            "max_samples": self.limits.max_samples,
            "cpu_seconds": self.limits.decode_seconds,
            "megabytes": self.limits.megabytes(sample_rate),
        }
        with self._decoder() as decoder:
            yield from decoder.decode(request, len(segments), self.limits)

    def read_seconds(self, path: Path | str) -> float:
        """The length of a recording in seconds, for which it is decoded if no header states it.

        Raises:
          BadAudioError, WorkError, WorkCancelledError: as `load_audio`.
        """
        request = {
            "path": str(path),
            "header": True,
            "cpu_seconds": self.limits.decode_seconds,
            "megabytes": _BASE_MEGABYTES,
        }
        with self._decoder() as decoder:
            return decoder.read_seconds(request, self.limits)

    @contextlib.contextmanager
    def _decoder(self) -> "Generator[_Decoder, None, None]":
        """A worker for one recording. Who leaves it in the middle of an answer ends it."""
        # Short waits, so that cancelled work leaves the queue.
        while not self._free.acquire(timeout=0.1):
            check_cancelled()
        try:
            check_cancelled()
            decoder = self._take()
            try:
                # A cancelled request kills its worker at once, from the thread that cancels.
                with ends_early(decoder.kill):
                    yield decoder
            except BaseException:
                decoder.end_unless_idle()
                raise
            finally:
                # Only a worker that has answered to the end is returned to the idle ones.
                self._return(decoder)
        finally:
            self._free.release()

    def _take(self) -> "_Decoder":
        """A worker that waits, or a new one."""
        with self._lock:
            while self._idle:
                decoder = self._idle.pop()
                if not decoder.has_ended:
                    return decoder
                # It was killed from outside, such as by the kernel for memory.
                decoder.kill()
                decoder.end_unless_idle()
        return _Decoder()

    # Half an answer may be in the pipe: such a worker can never be used again.
    def _return(self, decoder: "_Decoder") -> None:
        if not decoder.is_idle:
            decoder.end_unless_idle()
            return
        with self._lock:
            if not self._closed:
                self._idle.append(decoder)
                return

        # The pool was closed meanwhile.
        decoder.kill()
        decoder.end_unless_idle()


class _Decoder:
    """A worker.

    Attributes:
      is_idle: whether it waits for a request, and can have one.
    """

    def __init__(self) -> None:
        self._process = WorkerProcess(__name__, environment=_ENVIRONMENT)
        self._pipe = self._process.pipe
        self._is_up, self.is_idle = False, True

    @property
    def has_ended(self) -> bool:
        """Whether it was ended from outside while it waited."""
        return self._process.has_ended

    def kill(self) -> None:
        """Ends it and its ffmpeg at once; callers that wait for its answer get an error."""
        self._process.kill()
        self.is_idle = False

    def end_unless_idle(self) -> None:
        """Ends a worker whose answer nobody reads to its end."""
        if not self.is_idle:
            self._process.abandon()

    def decode(
        self, request: dict[str, Any], segments: int, limits: DecodeLimits
    ) -> "Iterator[tuple[int, npt.NDArray[np.float32] | BadAudioError]]":
        import numpy as np

        # A hostile worker may state any number: no more memory than the limits allow is taken for it.
        most = round((limits.max_seconds + DURATION_TOLERANCE_SECONDS + 1) * request["sample_rate"])
        self._send(request)
        answered: set[int] = set()
        while "end" not in (answer := self._receive(limits.decode_seconds)):
            index = int(answer["index"])
            # Each segment has one answer; without this a worker could go on for ever.
            if not 0 <= index < segments or index in answered:
                raise self._broken()
            answered.add(index)
            if "reason" in answer:
                yield index, _bad_audio(answer)
                continue
            count = int(answer["samples"])
            if not 0 < count <= most:
                raise self._broken()
            samples = np.empty(count, np.float32)
            view = samples.data.cast("B")
            # In frames of 1 MiB, so that no more than one of them is held beside the array.
            for at in range(0, len(view), _FRAME_BYTES):
                frame = view[at : at + _FRAME_BYTES]
                if self._read(limits.decode_seconds, len(frame), frame) != len(frame):
                    raise self._broken()
            yield index, samples
        self.is_idle = True

    def read_seconds(self, request: dict[str, Any], limits: DecodeLimits) -> float:
        self._send(request)
        seconds = float(self._receive(limits.decode_seconds)["end"])
        self.is_idle = True
        return seconds

    def _send(self, request: dict[str, Any]) -> None:
        # The first message says that the worker is up; it is awaited when the worker is first used.
        if not self._is_up:
            try:
                self._receive(START_SECONDS)
            except BadAudioError as fault:
                message = f"a decoder could not start ({fault.detail}); its own message is above"
                raise WorkError(message) from None
            self._is_up = True
        self.is_idle = False
        with contextlib.suppress(ConnectionError):  # it has died, which shows when its answer is read
            self._pipe.send_bytes(json.dumps(request).encode())

    def _receive(self, seconds: float) -> dict[str, Any]:
        """The next message.

        Raises:
          BadAudioError: it is the fault of the recording.
          MissingPackageError: ffmpeg is not there.
        """
        # One message at most: a longer one is not a worker's, and `_read` refuses it.
        buffer = bytearray(_MAX_MESSAGE_BYTES)
        count = self._read(seconds, _MAX_MESSAGE_BYTES, memoryview(buffer))
        try:
            answer = json.loads(buffer[:count])
        except ValueError:
            raise self._broken() from None
        if not isinstance(answer, dict):
            raise self._broken()
        if "fault" in answer:
            self.is_idle = True
            # Not the fault of the recording; a worker says no more than that it lacks ffmpeg.
            if answer["reason"] == _NO_FFMPEG:
                raise missing_package("imageio_ffmpeg")
            raise _bad_audio(answer)
        return answer

    def _read(self, seconds: float, size: int, into: memoryview) -> int:
        """Reads one frame of at most `size` bytes; ends a worker that sends none in time.

        Raises:
          BadAudioError: it sent none.
        """
        try:
            # A worker that hangs is killed, and not waited for: it may hang in a dead disk.
            if not self._pipe.poll(seconds):
                self._process.abandon()
                raise BadAudioError(Reason.UNREADABLE, f"not decoded within {seconds:g} s, which is the limit")
            # One that stops within a message is killed too, which ends the message.
            with _after(seconds, self._process.kill):
                # `recv_bytes` refuses a longer one by its header; `recv_bytes_into` would first read it into memory.
                message = self._pipe.recv_bytes(size)
            into[: len(message)] = message
            return len(message)
        except (EOFError, OSError):
            how = self._process.end()
            # The kernel ends a process that has used up its processor time with this signal.
            if signal.SIGXCPU.name in how:
                how = f"takes more than {seconds:g} s of processor time, which is the limit"
            raise BadAudioError(Reason.UNREADABLE, f"decoding it {how}") from None

    def _broken(self) -> BadAudioError:
        self._process.abandon()
        return BadAudioError(Reason.UNREADABLE, "its decoder sent something else than samples")


@contextlib.contextmanager
def _after(seconds: float, call: Callable[[], None]) -> Generator[None, None, None]:
    """Calls `call` in another thread if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _bad_audio(answer: dict[str, Any]) -> BadAudioError:
    return BadAudioError(Reason(answer["reason"]), str(answer["detail"]))


def _worker_main(pipe: Connection) -> None:
    """Receives requests and sends samples, until the pipe closes."""

    from voxline.audio import decoding, segments  # numpy, soxr and libsndfile, before memory is limited

    # Order matters: what imports need must not count as the recording's memory.
    ignore_interrupts()
    end_with_pipe(pipe)
    reserved = reserved_memory()
    _send(pipe, {"up": True})
    while True:
        request = json.loads(pipe.recv_bytes(_MAX_MESSAGE_BYTES))
        limit_memory(request["megabytes"], reserved)
        limit_cpu(request["cpu_seconds"])
        try:
            if request.get("header"):
                _send(pipe, {"end": decoding.read_header(request["path"]).seconds})
                continue
            wanted = [segments.Segment(*segment) for segment in request["segments"]]
            rate = request["sample_rate"]
            limits = {"max_seconds": request["max_seconds"], "max_samples": request["max_samples"]}
            for index, decoded in decoding.decode_segments(request["path"], wanted, rate, **limits):
                if isinstance(decoded, BadAudioError):
                    _send(pipe, {"index": index, "reason": decoded.reason, "detail": decoded.detail})
                else:
                    _send_samples(pipe, index, decoding.resample(decoded.samples, rate, rate))
            _send(pipe, {"end": True})
        except BadAudioError as fault:
            _send(pipe, {"fault": True, "reason": fault.reason, "detail": fault.detail})
        except MissingPackageError:
            _send(pipe, {"fault": True, "reason": _NO_FFMPEG})
        except MemoryError as fault:
            detail = f"needs more memory than the {request['megabytes']:,.0f} MB that it may have ({fault})"
            _send(pipe, {"fault": True, "reason": Reason.OUT_OF_MEMORY, "detail": detail})


def _send(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _send_samples(pipe: Connection, index: int, samples: Any) -> None:
    import numpy as np

    _send(pipe, {"index": index, "samples": len(samples)})
    view = np.ascontiguousarray(samples, np.float32).data.cast("B")
    for at in range(0, len(view), _FRAME_BYTES):
        pipe.send_bytes(view[at : at + _FRAME_BYTES])


if __name__ == "__main__":
    collect_rarely()
    with contextlib.suppress(EOFError, ConnectionError):
        _worker_main(Connection(int(sys.argv[1])))
