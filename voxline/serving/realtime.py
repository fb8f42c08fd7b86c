"""A WebSocket on which a client speaks and reads: binary messages of PCM in, JSON messages of text out.

client → server   binary: 16-bit little-endian PCM, mono, at the session's sample rate, cut anywhere
                  text: {"type": "finish"}
server → client   {"type": "session", "model", "version", "digest", "sample_rate", "latency": {…_ms}}, once
                  {"type": "partial", "text"}, when the text since the last final message has changed
                  {"type": "final", "text", "start", "end", "words", "last"}, after each endpoint and at the finish
                  {"type": "error", "error": {…}}, as the routes over HTTP; then the server closes

`start` and `end` are seconds from the first sample. A final message whose audio is kept has the id of the clip as
"capture". One session is one `RecognitionStream` of one version: a promotion does not change it.
"""

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket

from voxline.inference.streaming import RecognitionStream
from voxline.inference.transcript import Transcript
from voxline.serving.limits import ServingLimits
from voxline.serving.subtitles import describe_words

if TYPE_CHECKING:
    from voxline.serving.capture import Keeper

NORMAL, POLICY, TOO_BIG, UNEXPECTED = 1000, 1008, 1009, 1011
"""Of RFC 6455, section 7.4.1."""
MESSAGE_BYTES = 2**20
"""Largest message; the WebSocket library refuses a larger one with 1009."""
KEPT_SECONDS = 60.0
"""Longest segment that is captured: each session that may be captured holds so much audio, and a message."""


class SessionError(Exception):
    """What ends a session: its message and its code go to the client."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Session:
    """A client on a WebSocket that was accepted.

    Args:
      about: model, version and digest, for the first message.
      pool: runs the network.
      keep: takes what was heard of a segment, its samples, int16 at the stream's rate, and the time at which they began
        to arrive; returns the id of the clip, or "". None where nothing may be kept.

    Attributes:
      samples: heard so far.
    """

    socket: WebSocket
    stream: RecognitionStream
    about: dict[str, Any]
    limits: ServingLimits
    pool: Executor
    keep: "Keeper | None" = None
    samples: int = 0
    _text: str = ""
    _segment: bytearray = field(default_factory=bytearray)
    _began: float = 0.0
    _lost: int = 0

    async def run(self) -> None:
        """Until the client finishes or goes, or a limit ends the session."""
        try:
            async with asyncio.timeout(self.limits.stream_seconds):
                await self._talk()
        except TimeoutError:
            await self._fail(f"a session of at most {self.limits.stream_seconds:g} s is accepted", POLICY)
        except SessionError as error:
            await self._fail(str(error), error.code)

    async def _talk(self) -> None:
        rate, rest = self.stream.sample_rate, b""
        await self._send({"type": "session", **self.about, "sample_rate": rate, "latency": asdict(self.stream.latency)})
        while True:
            message = await self._in_time(self.socket.receive(), "no message")
            if message["type"] == "websocket.disconnect":
                return
            if (data := message.get("bytes")) is None:
                if not _is_finish(message.get("text") or ""):
                    raise SessionError('binary PCM or {"type": "finish"} is accepted', POLICY)
                transcript = await self._compute(self.stream.finish)
                await self._send_final(transcript, last=True)
                await self.socket.close(NORMAL)
                return
            rest += data
            whole = len(rest) // 2 * 2
            await self._hear(rest[:whole])
            rest = rest[whole:]

    async def _hear(self, pcm: bytes) -> None:
        import numpy as np

        samples = np.frombuffer(pcm, "<i2").astype(np.int16)
        self.samples += len(samples)
        if self.samples > self.limits.stream_seconds * self.stream.sample_rate:
            raise SessionError(f"at most {self.limits.stream_seconds:g} s of audio are accepted", TOO_BIG)
        if self.keep:
            self._began = self._began if self._segment else time.time()
            self._segment += pcm
        partial = await self._compute(lambda: self.stream.feed(samples))
        for segment in partial.segments:
            await self._send_final(segment, last=False)
        if (surplus := len(self._segment) - _kept_bytes(self.stream.sample_rate)) > 0:
            del self._segment[:surplus]
            self._lost += surplus
        if partial.text != self._text:
            self._text = partial.text
            await self._send({"type": "partial", "text": partial.text})

    async def _compute(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    async def _send_final(self, transcript: Transcript, *, last: bool) -> None:
        self._text = ""
        words = describe_words(transcript)
        times = {"start": words[0]["start"], "end": words[-1]["end"]} if words else {"start": None, "end": None}
        kept = {"capture": id} if (id := self._keep(transcript, last=last)) else {}
        await self._send({"type": "final", "text": transcript.text, **times, "words": words, "last": last, **kept})

    def _keep(self, transcript: Transcript, *, last: bool) -> str:
        """Offers a segment and its audio, without the silence after the last endpoint. Returns the clip's id or ""."""
        import numpy as np

        if not self.keep:
            return ""
        began, self._began = self._began, time.time()  # what is left was spoken a moment ago
        size = 2 * round(transcript.seconds * self.stream.sample_rate)
        whole, alone = not self._lost, size >= 2 * self.samples
        taken = len(self._segment) if last else max(0, size - self._lost)
        pcm = bytes(self._segment[:taken])
        del self._segment[:taken]
        self._lost = max(0, self._lost - size)  # more than a segment has: the rest is missing in the next one
        if not pcm or not whole or len(pcm) > _kept_bytes(self.stream.sample_rate):
            return ""
        if last and not transcript.text and not alone:
            return ""
        return self.keep(transcript, np.frombuffer(pcm, "<i2").astype(np.int16), began)

    async def _send(self, values: dict[str, Any]) -> None:
        await self._in_time(self.socket.send_text(json.dumps(values, ensure_ascii=False)), "nothing was read")

    async def _in_time(self, work: Any, what: str) -> Any:
        """Awaits a client, which may be slow but not for ever."""
        try:
            return await asyncio.wait_for(work, self.limits.idle_seconds)
        except TimeoutError:
            raise SessionError(f"{what} for {self.limits.idle_seconds:g} s", POLICY) from None

    async def _fail(self, message: str, code: int) -> None:
        kind = "server_error" if code == UNEXPECTED else "invalid_request_error"
        error = {"type": "error", "error": {"message": message, "type": kind, "param": None, "code": None}}
        try:
            async with asyncio.timeout(1):
                await self.socket.send_text(json.dumps(error))
                await self.socket.close(code)
        except (TimeoutError, RuntimeError):
            return  # the client reads nothing, or has gone


def _kept_bytes(rate: int) -> int:
    return 2 * round(KEPT_SECONDS * rate)


def _is_finish(text: str) -> bool:
    try:
        values = json.loads(text)
    except ValueError:
        return False
    return isinstance(values, dict) and values.get("type") == "finish"


def same_origin(socket: WebSocket) -> bool:
    """Whether a browser's page comes from this server: WebSockets are open to the pages of all sites otherwise."""
    origin = socket.headers.get("origin")
    return origin is None or origin.partition("://")[2] == socket.headers.get("host")
