"""What the server accepts at a time and in size; beyond it a client gets an error at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingLimits:
    """What the server accepts.

    Attributes:
      concurrency: recordings that are transcribed at a time.
      queue: further ones that wait; more are refused with 429.
      uploads: requests that send or wait at a time; more are refused with 429.
      upload_seconds: in which a client must have sent its request.
      max_bytes: of a recording, as it is sent.
      max_seconds: of a recording.
      streams: sessions on a WebSocket at a time; more are refused with 429.
      stream_seconds: of a session, and of the audio in it.
      canary_seconds: without an answer after which a request has failed, and a candidate's is answered by production.
      canary_stream_seconds: likewise, for a message of a session on a WebSocket: its caller waits while speaking.
      idle_seconds: in which a client of a session must send something, and read what it is sent.
      request_seconds: from the last byte of a request to its answer; then it is ended, and answered with 503.
      decode_seconds: of wall time and of processor time, that decoding a recording may take.
    """

    concurrency: int = 2
    queue: int = 16
    uploads: int = 64
    upload_seconds: float = 60.0
    max_bytes: int = 25 * 2**20
    max_seconds: float = 600.0
    streams: int = 32
    stream_seconds: float = 600.0
    canary_seconds: float = 30.0
    canary_stream_seconds: float = 10.0
    idle_seconds: float = 30.0
    request_seconds: float = 120.0
    decode_seconds: float = 30.0
