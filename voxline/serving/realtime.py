"""WebSockets on which clients speak and read: binary messages of PCM in, JSON messages of text out.

`/v1/stream` is ours, with these messages; `/v1/realtime` is OpenAI's, with those of `transcription_session`.

client → server   binary: 16-bit little-endian PCM, mono, at the session's sample rate, cut anywhere
                  text: {"type": "finish"}
server → client   {"type": "session", "model", "version", "digest", "sample_rate", "latency": {…_ms}, "partials"}, once
                  {"type": "partial", "text"}, when the text since the last final message has changed
                  {"type": "final", "text", "start", "end", "words", "last", "version"}, after each endpoint and at the
                  finish
                  {"type": "error", "error": {…}}, as the routes over HTTP; then the server closes

A model without a streaming graph hears each utterance at its end, and has no partial messages ("partials": false).

`start` and `end` are seconds from the first sample. A final message whose audio is kept has the id of the clip as
"capture". A session is heard by one version: a promotion does not change it. With a canary, "session" and "final" have
the "arm", and production may take a session over from the candidate (`session_stream`).
"""

import abc
import asyncio
import functools
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from voxline.errors import SettingsError, VoxlineError
from voxline.inference.recognizer import Recognizer
from voxline.inference.streaming import Partial, PauseStream, RecognitionStream
from voxline.inference.transcript import Transcript
from voxline.inference.written_transcript import WritingChoices, write_transcript, written_form
from voxline.progress import print_status
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.serving.access import CALLER, SESSION_PROTOCOL, may_consent
from voxline.serving.canary import SESSION_FIELD, SESSION_HEADER, Canary
from voxline.serving.capture import CONSENT_FIELD, CONSENT_HEADER, SPEAKER_FIELD, SPEAKER_HEADER, Capture, joined
from voxline.serving.followed_model import FollowedModel, LoadedVersion
from voxline.serving.limits import ServingLimits
from voxline.serving.refusals import RefusedError, error_response, read_json_object
from voxline.serving.session_stream import CanaryStream, SessionStream
from voxline.serving.subtitles import describe_words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.serving.capture import Keeper
    from voxline.serving.metrics import ServerMetrics

NORMAL = 1000
POLICY = 1008
TOO_BIG = 1009
UNEXPECTED = 1011
"""Of RFC 6455, section 7.4.1."""
KEPT_SECONDS = 60.0
"""Longest segment that is captured: each session that may be captured holds so much audio, and a message."""


class RealtimeRoute:
    """The route of the sessions.

    Args:
      find: a recognizer by the name that callers use, and the version of it that serves; raises a `RefusedError`.
      canaries: by the name of their model.
      writing: the form of transcripts, where a session does not say.

    Attributes:
      streams: sessions now, of production's room; those that a candidate began to hear are in its canary's.
    """

    def __init__(
        self,
        find: Callable[[str], tuple[FollowedModel, LoadedVersion, Recognizer]],
        limits: ServingLimits,
        capture: Capture | None,
        canaries: Mapping[str, Canary],
        writing: WritingChoices | None = None,
    ) -> None:
        self.writing = writing or WritingChoices()
        self.streams = 0
        self.limits = limits
        self._find = find
        self._capture = capture
        self._canaries = canaries
        # Of their own, so that no stream waits behind a long recording.
        self._pool = ThreadPoolExecutor(limits.concurrency, thread_name_prefix="stream")

    async def answer(
        self, socket: WebSocket, metrics: "ServerMetrics", protocol: "type[Session] | None" = None
    ) -> None:
        """A session, from its begin to its end.

        Args:
          protocol: what the client and the server say; None: ours.
        """
        # A session that is refused is never accepted: the client sees an answer over HTTP.
        try:
            session = (protocol or StreamSession).open(SessionRequest(socket, self))
        except RefusedError as refused:
            metrics.answers.labels(str(int(refused.status))).inc()
            await socket.send_denial_response(error_response(refused.status, str(refused), refused.param))
            return

        # A candidate has room of its own.
        takes_room = session.takes_room
        self.streams += takes_room
        path = socket.url.path
        try:
            # The subprotocol is repeated if it was offered, else browsers end the connection.
            offered = SESSION_PROTOCOL in socket.scope.get("subprotocols", ())
            await socket.accept(SESSION_PROTOCOL if offered else None)
            await session.run()
        except WebSocketDisconnect:
            return  # the client has gone, and hears nothing more
        except VoxlineError as error:
            print_status(f"serve: {path}: {error}")
            await socket.close(UNEXPECTED)
        finally:
            metrics.answers.labels("101").inc()
            if caller := socket.scope.get(CALLER):
                metrics.count_caller(caller, HTTPStatus.SWITCHING_PROTOCOLS)
                print_status(f"serve: {caller}: {path}: a session ended")

            metrics.audio.inc(session.seconds)
            try:
                await session.close()
            finally:
                self.streams -= takes_room

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def is_full(self) -> bool:
        return self.streams >= self.limits.streams

    def find(self, name: str) -> FollowedModel:
        """A recognizer that serves, by the name that callers use.

        Raises:
          RefusedError: there is none.
        """
        return self._find(name)[0]

    def language(self, name: str) -> str:
        """The language that a recognizer is asked for, such as "en"; "" if it does not say.

        Raises:
          RefusedError: there is none of this name.
        """
        return self._find(name)[2].info.language

    def open_stream(
        self, socket: WebSocket, name: str, numbers: dict[str, float], *, has_room: bool = False
    ) -> "SegmentStream":
        """A stream of the version that serves now, or of the candidate.

        Args:
          numbers: of `Recognizer.live`.
          has_room: whether the session holds room already.

        Raises:
          RefusedError: no recognizer has this name, a number is wrong, or there is no room.
        """
        query = socket.query_params
        headers = socket.headers
        model, served, recognizer = self._find(name)
        captured_as = model.reference.partition("@")[0]
        make = functools.partial(_make_stream, numbers=numbers)

        # Made before the room is taken: settings that are out of range are refused first.
        try:
            own = make(recognizer)
        except SettingsError as error:
            message = str(error).removeprefix(f"{recognizer.folder}: ")
            raise RefusedError(HTTPStatus.BAD_REQUEST, message) from None

        # The arm is drawn once, and the session keeps it.
        canary = self._canaries.get(model.reference.removesuffix(f"@{PRODUCTION}"))
        sessions = joined([*headers.getlist(SESSION_HEADER), *query.getlist(SESSION_FIELD)])
        full = too_many_sessions()
        if canary and (turn := canary.begin(sessions, stream_of=served)):
            stream: SessionStream = CanaryStream(canary, turn, own, make, self._run)
        else:
            stream = SessionStream(served, own, self._run)

        if not has_room and stream.arm != CANDIDATE and self.is_full:
            stream.refuse(full)
            raise full

        # Nothing is kept without consent, and a browser's counts only with a key.
        keep = None
        if self._capture:
            consent = joined([*headers.getlist(CONSENT_HEADER), *query.getlist(CONSENT_FIELD)])
            speaker = joined([*headers.getlist(SPEAKER_HEADER), *query.getlist(SPEAKER_FIELD)])
            consent = consent if may_consent(socket.scope, headers) else ""
            keep = self._capture.keeper(captured_as, recognizer.sample_rate, consent=consent, speaker=speaker)
        return SegmentStream(model.reference, stream, keep)

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


@dataclass
class SessionRequest:
    """A client that asks for a session."""

    socket: WebSocket
    route: RealtimeRoute

    @property
    def limits(self) -> ServingLimits:
        return self.route.limits


class SessionError(Exception):
    """An error that ends a session; the client gets its message and its code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class SegmentStream:
    """A stream, and the audio of its present segment where that may be kept.

    Args:
      model: the name by which the client asked for it.
      keep: takes the version that heard a segment and its digest, what was heard, its samples, int16 at the stream's
        rate, and the time at which they began to arrive; returns the id of the clip, or "". None where nothing may be
        kept.

    Attributes:
      samples: heard so far.
    """

    model: str
    stream: SessionStream
    keep: "Keeper | None" = None
    samples: int = 0
    _segment: bytearray = field(default_factory=bytearray)
    _began: float = 0.0
    _lost: int = 0

    @property
    def seconds(self) -> float:
        return self.samples / self.stream.sample_rate

    def identity(self) -> dict[str, Any]:
        """Version, digest and arm that hear, for the client."""
        arm = {"arm": self.stream.arm} if self.stream.arm else {}
        return {"version": self.stream.served.version, "digest": self.stream.served.digest, **arm}

    async def feed(self, samples: "npt.NDArray[np.int16]") -> Partial:
        """Hears the next samples, int16 at the stream's rate."""
        self.samples += len(samples)
        if self.keep:
            self._began = self._began if self._segment else time.time()
            self._segment += samples.astype("<i2").tobytes()
        return await self.stream.feed(samples)

    def forget_surplus(self) -> None:
        """Drops audio beyond what a clip may have, after the segments of a call: what is older cannot be captured."""
        if (surplus := len(self._segment) - _kept_bytes(self.stream.sample_rate)) > 0:
            del self._segment[:surplus]
            self._lost += surplus

    def offer(self, transcript: Transcript, *, last: bool) -> str:
        """Offers a segment and its audio, without the silence around it. Returns the id of the clip, or ""."""
        import numpy as np

        if not self.keep:
            return ""

        # what is left was spoken a moment ago
        began = self._began
        self._began = time.time()
        size = 2 * round(transcript.seconds * self.stream.sample_rate)
        unheard = 2 * round(transcript.unheard * self.stream.sample_rate)
        whole = self._lost <= unheard
        alone = size >= 2 * self.samples
        taken = len(self._segment) if last else max(0, size - self._lost)
        # The last segment takes what is left, others as much as they have.
        pcm = bytes(self._segment[max(0, unheard - self._lost) : taken])
        del self._segment[:taken]
        self._lost = max(0, self._lost - size)  # more than a segment has: the rest is missing in the next one

        if not pcm or not whole or len(pcm) > _kept_bytes(self.stream.sample_rate):
            return ""
        if last and not transcript.text and not alone:
            return ""

        samples = np.frombuffer(pcm, "<i2").astype(np.int16)
        served = self.stream.served
        return self.keep(served.version, served.digest, transcript, samples, began)


class Session(abc.ABC):
    """A client on a WebSocket that was accepted, and what the two say to each other."""

    def __init__(self, socket: WebSocket, limits: ServingLimits) -> None:
        self.socket = socket
        self.limits = limits

    @classmethod
    @abc.abstractmethod
    def open(cls, request: SessionRequest) -> "Session":
        """A session that the client may have.

        Raises:
          RefusedError: it may have none.
        """

    @property
    @abc.abstractmethod
    def takes_room(self) -> bool:
        """True if it takes room of production."""

    @property
    @abc.abstractmethod
    def seconds(self) -> float:
        """Seconds of audio that were heard."""

    @abc.abstractmethod
    async def talk(self) -> None:
        """Reads and answers until the client finishes or leaves.

        Raises:
          SessionError: the client did what ends the session.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Gives back what the session holds, at its end."""

    async def run(self) -> None:
        """Runs until the client finishes or leaves, or a limit ends the session."""
        try:
            async with asyncio.timeout(self.limits.stream_seconds):
                await self.talk()
        except TimeoutError:
            await self._fail(f"a session of at most {self.limits.stream_seconds:g} s is accepted", POLICY)
        except SessionError as error:
            await self._fail(str(error), error.code)

    async def receive(self) -> Mapping[str, Any]:
        message: Mapping[str, Any] = await self._in_time(self.socket.receive(), "no message")
        return message

    async def send(self, values: dict[str, Any]) -> None:
        await self._in_time(self.socket.send_text(json.dumps(values, ensure_ascii=False)), "nothing was read")

    def error_message(self, message: str, kind: str) -> dict[str, Any]:
        """The message that shows an error to the client."""
        return {"type": "error", "error": {"message": message, "type": kind, "param": None, "code": None}}

    def check_length(self, seconds: float) -> None:
        """Ends a session with too much audio."""
        if seconds > self.limits.stream_seconds:
            raise SessionError(f"at most {self.limits.stream_seconds:g} s of audio are accepted", TOO_BIG)

    async def _in_time(self, work: Any, event: str) -> Any:
        """Awaits a client, which may be slow but not for ever."""
        try:
            return await asyncio.wait_for(work, self.limits.idle_seconds)
        except TimeoutError:
            raise SessionError(f"{event} for {self.limits.idle_seconds:g} s", POLICY) from None

    async def _fail(self, message: str, code: int) -> None:
        kind = "server_error" if code == UNEXPECTED else "invalid_request_error"
        # The client may not read; the server does not wait for it.
        try:
            async with asyncio.timeout(1):
                await self.socket.send_text(json.dumps(self.error_message(message, kind)))
                await self.socket.close(code)
        except (TimeoutError, RuntimeError):
            return  # the client reads nothing, or has gone


class StreamSession(Session):
    """A session with our messages: one stream."""

    def __init__(
        self, socket: WebSocket, limits: ServingLimits, segments: SegmentStream, writing: WritingChoices
    ) -> None:
        super().__init__(socket, limits)
        self._segments = segments
        self._writing = writing
        self._text = ""

    @classmethod
    def open(cls, request: SessionRequest) -> "StreamSession":
        query = request.socket.query_params
        try:
            writing = WritingChoices.of_texts(query, request.route.writing)
        except SettingsError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error), str(error).partition(":")[0]) from None
        segments = request.route.open_stream(request.socket, query.get("model", ""), _stream_numbers(query))
        return cls(request.socket, request.limits, segments, writing)

    @property
    def takes_room(self) -> bool:
        return self._segments.stream.arm != CANDIDATE

    @property
    def seconds(self) -> float:
        return self._segments.seconds

    async def close(self) -> None:
        await self._segments.stream.close()

    async def talk(self) -> None:
        stream = self._segments.stream
        await stream.start()

        # PCM may be cut within a sample: the odd byte waits for the next message.
        pending = b""
        latency = asdict(stream.latency)
        identity = {"model": self._segments.model, **self._segments.identity()}
        heard = {"sample_rate": stream.sample_rate, "latency": latency, "partials": stream.has_partials}
        await self.send({"type": "session", **identity, **heard})

        while True:
            message = await self.receive()
            if message["type"] == "websocket.disconnect":
                return
            # Text is only the end of the session.
            if (data := message.get("bytes")) is None:
                if not _is_finish(message.get("text") or ""):
                    raise SessionError('binary PCM or {"type": "finish"} is accepted', POLICY)
                *before, last = await stream.finish()
                for segment in before:
                    await self._send_final(segment, last=False)
                await self._send_final(last, last=True)
                await self.socket.close(NORMAL)
                return

            pending += data
            whole = len(pending) // 2 * 2
            await self._hear(pending[:whole])
            pending = pending[whole:]

    async def _hear(self, pcm: bytes) -> None:
        import numpy as np

        samples = np.frombuffer(pcm, "<i2").astype(np.int16)
        self.check_length(self._segments.seconds + len(samples) / self._segments.stream.sample_rate)
        partial = await self._segments.feed(samples)
        for segment in partial.segments:
            await self._send_final(segment, last=False)
        self._segments.forget_surplus()

        if partial.text != self._text:
            self._text = partial.text
            # Its sentence has no end yet.
            so_far = written_form(partial.text, replace(self._writing, punctuate=False))
            await self.send({"type": "partial", "text": so_far})

    async def _send_final(self, transcript: Transcript, *, last: bool) -> None:
        self._text = ""

        # The segment that is kept is what was heard.
        as_written = write_transcript(transcript, self._writing)
        words = describe_words(as_written)
        times = {"start": words[0]["start"], "end": words[-1]["end"]} if words else {"start": None, "end": None}

        capture = {"capture": id} if (id := self._segments.offer(transcript, last=last)) else {}
        heard_by = self._segments.identity()
        del heard_by["digest"]
        final = {"type": "final", "text": as_written.text, **times, "words": words, "last": last, **heard_by, **capture}
        await self.send(final)


def too_many_sessions() -> RefusedError:
    return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many sessions at a time; try again later")


def _make_stream(recognizer: Recognizer, numbers: dict[str, float]) -> RecognitionStream | PauseStream:
    return recognizer.live(**numbers)


def _stream_numbers(query: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for name in ("endpoint_ms", "chunk_ms"):
        if name in query:
            try:
                numbers[name] = float(query[name])
            except ValueError:
                raise RefusedError(HTTPStatus.BAD_REQUEST, f"{query[name]!r}: no number", name) from None
    return numbers


def _kept_bytes(rate: int) -> int:
    return 2 * round(KEPT_SECONDS * rate)


def _is_finish(text: str) -> bool:
    values = read_json_object(text)
    return values is not None and values.get("type") == "finish"
