"""Keeps a share of what is sent to the server, of callers who agreed: beside the requests, never in their way.

A request gives its clip to a queue of bounded size, and a thread writes it. What does not fit into the queue, or cannot
be written, is dropped and counted; no request waits or fails.
"""

import dataclasses
import io
import queue
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from voxline.errors import SettingsError
from voxline.feedback.captures import ID_PREFIX, NAME, CapturedClip, CaptureStore, expiry_day
from voxline.inference.transcript import Transcript
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.text.consent import is_consent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.waveforms import Waveform

    Keeper = Callable[[int, str, Transcript, npt.NDArray[np.int16], float], str]

CONSENT_HEADER = "x-voxline-consent"
SPEAKER_HEADER = "x-voxline-speaker"
CAPTURE_HEADER = "x-voxline-capture"
CONSENT_FIELD = "consent"
SPEAKER_FIELD = "speaker"
_QUEUE_BYTES = 64 * 2**20
_CLOSE_SECONDS = 5.0
_HOUSEKEEPING_SECONDS = 600.0
_LEAST_BYTES = 1e6
"""Written, after which a server counts again what others have."""
OUTCOMES = ("kept", "dropped", "full", "failed")


@dataclasses.dataclass(frozen=True)
class CaptureSettings:
    """Settings of what a server keeps.

    Attributes:
      location: folder or bucket URI of the captures; "" for none.
      share: of the requests whose callers agreed, 0 to 1.
      days: after which a clip is deleted, at most.
      max_bytes: of all clips; further ones are dropped. Infinite for no limit.

    Raises:
      SettingsError: a value is out of range.
    """

    location: str = ""
    share: float = 0.0
    days: int = 30
    max_bytes: float = 1e9

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise SettingsError(f"--capture-share {self.share:g}: a share from 0 to 1 is accepted")
        if self.share and not self.location:
            raise SettingsError("--capture-share needs --capture, the folder or bucket URI for the clips")
        if not 1 <= self.days <= 3650:
            raise SettingsError(f"--capture-days {self.days}: 1 to 3,650 days are accepted")
        if not self.max_bytes > 0:
            raise SettingsError("--capture-gb: more than 0 is accepted")


@dataclasses.dataclass(frozen=True, slots=True)
class _Waiting:
    id: str
    model: str
    version: int
    digest: str
    consent: str
    speaker: str
    at: float
    transcript: Transcript
    waveform: "Waveform"
    rate: int


class Capture:
    """The captures of a server.

    Args:
      store: where they go; None: at `settings.location`.

    Attributes:
      counts: clips by outcome: "kept"; "dropped", as the queue was full; "full", as `max_bytes` are used; "failed".
      bytes: of the clips that are stored.
      fault: why the last clip could not be written; "" if it could.
    """

    def __init__(self, settings: CaptureSettings, store: CaptureStore | None = None) -> None:
        self.settings = settings
        self.fault = ""
        self.bytes = 0
        self.counts: Counter[str] = Counter()
        self._store = store or CaptureStore(settings.location)
        self._queue: queue.Queue[_Waiting] = queue.Queue(64)
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._stopped = threading.Event()
        self._random = random.Random()
        self._counted = 0
        self._thread = threading.Thread(target=self._work, name="capture", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Clips in the queue."""
        return self._queue.qsize()

    def offer(
        self, model: str, version: int, digest: str, transcript: Transcript, waveform: "Waveform", rate: int,
        *, consent: str, speaker: str = "", at: float | None = None,
    ) -> str:  # fmt: skip
        """Takes a clip, perhaps. Never waits.

        Args:
          model: its name, without an alias.
          waveform: float32 [samples], what the model heard.
          rate: Hz.
          consent: `yes`, or `yes:` and what the caller agreed to; nothing else is kept. See `joined`.
          speaker: a pseudonym.
          at: when it began to be heard, seconds since 1970; a purge after that erases it. None: now.

        Returns:
          The id under which it will be kept; "" if it will not.
        """
        if not may_keep(consent, speaker):
            return ""
        if self._random.random() >= self.settings.share:
            return ""

        id = ID_PREFIX + secrets.token_hex(8)
        clip = _Waiting(
            id, model, version, digest, consent, speaker, time.time() if at is None else at, transcript, waveform, rate
        )
        # Bounded in clips and in bytes: what does not fit is dropped, and no request waits.
        with self._lock:
            if self.bytes >= self.settings.max_bytes:
                self.counts["full"] += 1
                return ""
            if self._queued_bytes + waveform.nbytes > _QUEUE_BYTES:
                self.counts["dropped"] += 1
                return ""
            try:
                self._queue.put_nowait(clip)
            except queue.Full:
                self.counts["dropped"] += 1
                return ""
            self._queued_bytes += waveform.nbytes
        return id

    def keeper(self, model: str, rate: int, *, consent: str, speaker: str = "") -> "Keeper | None":
        """Like `offer`, for segments of a session: takes the version that heard each, its digest, the transcript, the
        samples, int16, and when they began to arrive. None where none may be kept.
        """
        import numpy as np

        if not (self.settings.share and may_keep(consent, speaker)):
            return None

        def keep(version: int, digest: str, transcript: Transcript, samples: "npt.NDArray[np.int16]", at: float) -> str:
            waveform = samples.astype(np.float32) / np.float32(32768)
            return self.offer(
                model, version, digest, transcript, waveform, rate, consent=consent, speaker=speaker, at=at
            )

        return keep

    def stop(self) -> None:
        """Writes what waits, for a few seconds at most; what is left is dropped."""
        self._stopped.set()
        self._thread.join(_CLOSE_SECONDS)

    def _work(self) -> None:
        next_housekeeping = 0.0

        # Until it is stopped and the queue is empty: what was accepted is written.
        while not (self._stopped.is_set() and self._queue.empty()):
            if time.monotonic() >= next_housekeeping:
                self._clean_up()
                next_housekeeping = time.monotonic() + _HOUSEKEEPING_SECONDS

            try:
                clip = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue

            outcome = self._keep(clip)
            with self._lock:
                self._queued_bytes -= clip.waveform.nbytes
                self.counts[outcome] += 1

    def _clean_up(self) -> None:
        """Deletes what has expired, and counts what others have written since."""
        try:
            if self.settings.share:
                self._store.prepare()
            if expired := self._store.expire():
                print_status(f"serve: {expired:,} captured clips have expired")
            self.bytes = self._counted = self._store.size()
        except Exception as error:  # whatever a storage does, requests go on
            self._report(error)

    def _keep(self, clip: _Waiting) -> str:
        try:
            # A tenth of what was left: several servers come near the limit in steps that become smaller.
            if self.bytes - self._counted > max((self.settings.max_bytes - self._counted) / 10, _LEAST_BYTES):
                self.bytes = self._counted = self._store.size()
            if self.bytes >= self.settings.max_bytes:
                return "full"

            record, audio = _encode(clip, self.settings.days)
            size = self._store.write(record, audio)
            self.bytes += size
        except Exception as error:  # whatever a storage does, requests go on
            self._report(error)
            return "failed"
        self.fault = ""
        return "kept" if size else "dropped"

    def _report(self, error: Exception) -> None:
        # Without the name of the file, which is another one each time.
        fault = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        if fault != self.fault:
            print_status(f"serve: captures: {fault}")
        self.fault = fault


def may_keep(consent: str, speaker: str) -> bool:
    """Returns whether a caller agreed, and gave no pseudonym or one by which a clip can be erased.

    >>> may_keep("yes:terms-2026", "p-7"), may_keep("no", ""), may_keep("yes", "Jane Doe")
    (True, False, False)
    """
    return is_consent(consent) and (not speaker or bool(NAME.fullmatch(speaker)))


def joined(values: Iterable[str]) -> str:
    """Joins the values of a setting in headers and fields; different ones give an invalid value.

    >>> joined(["yes", "yes"]), joined(["yes", "no"])
    ('yes', 'yes,no')
    """
    return ",".join(dict.fromkeys(values))


def _encode(clip: _Waiting, days: int) -> tuple[CapturedClip, bytes]:
    import numpy as np
    import soundfile

    from voxline.audio.profile import audio_profile

    # 16-bit FLAC of what the model heard; nothing else of the uploaded file is kept.
    file = io.BytesIO()
    samples = np.clip(clip.waveform, -1, 1)
    soundfile.write(file, samples, clip.rate, format="FLAC", subtype="PCM_16")

    profile = audio_profile(samples, clip.rate)
    transcript = clip.transcript
    record = CapturedClip(
        clip.id, clip.model, clip.version, clip.digest, format_utc(clip.at), expiry_day(clip.at, days), clip.consent,
        round(len(samples) / clip.rate, 3), transcript.text,
        None if transcript.confidence is None else round(float(transcript.confidence), 4),
        [[word.word, round(float(word.confidence), 4)] for word in transcript.words], transcript.note,
        profile.level_db, profile.snr_db, profile.bands_db, clip.speaker,
    )  # fmt: skip
    return record, file.getvalue()
