"""What the server accepts at a time and in size; beyond it a client gets an error at once."""

from dataclasses import dataclass

from voxline.inference.pace import USUAL_PACE, Pace


@dataclass(frozen=True)
class ServingLimits:
    """Limits of what the server accepts.

    Attributes:
      concurrency: recordings that are transcribed at a time.
      queue: further ones that wait; more are refused with 429.
      uploads: requests that send or wait at a time; more are refused with 429.
      upload_seconds: in which a client must have sent its request.
      bytes_per_second: that a client must send on average, after 5 seconds.
      wait_seconds: that a request waits for a place, its body unread, before it is refused with 429.
      spool_bytes: of all requests that send or wait, in memory and on disk; further bytes are refused with 503.
      max_bytes: of a recording, as it is sent.
      max_seconds: of a recording.
      streams: sessions on a WebSocket at a time; more are refused with 429.
      stream_seconds: of a session, and of the audio in it.
      canary_seconds: without an answer after which a request has failed, and a candidate's is answered by production.
      canary_stream_seconds: likewise, for a message of a session on a WebSocket: its caller waits while speaking.
      idle_seconds: in which a client of a session must send something, and read what it is sent.
      request_seconds: from the last byte of a request to its answer; then it is ended, and answered with 503.
      decode_seconds: of wall time and of processor time, that decoding a recording may take.
      pace: of speech; a voice that stops at once, or too late, answers with 500.
    """

    concurrency: int = 2
    queue: int = 16
    uploads: int = 64
    upload_seconds: float = 60.0
    bytes_per_second: int = 1000
    wait_seconds: float = 1.0
    spool_bytes: int = 16 * 25 * 2**20
    max_bytes: int = 25 * 2**20
    max_seconds: float = 600.0
    streams: int = 32
    stream_seconds: float = 600.0
    canary_seconds: float = 30.0
    canary_stream_seconds: float = 10.0
    idle_seconds: float = 30.0
    request_seconds: float = 120.0
    decode_seconds: float = 30.0
    pace: Pace = USUAL_PACE
