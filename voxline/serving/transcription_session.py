"""OpenAI's events of a transcription session, on the WebSocket `/v1/realtime`.

client → server   session.update; input_audio_buffer.append, .commit and .clear
server → client   session.created, session.updated; input_audio_buffer.speech_started and .speech_stopped;
                  input_audio_buffer.committed, conversation.item.added and .done, then
                  conversation.item.input_audio_transcription.delta and .completed of that item; error

With turn detection (`server_vad`, the default) the recognizer's own silence ends an item: `silence_duration_ms` without
a symbol, or in a pause where the model has no streaming graph. Without (`turn_detection: null`) a commit does. Deltas
are what two looks in a row agree on, or the whole text at its end; `completed` has the text that counts. A setting that
is not served is refused by its name, and changes nothing. The model is that of `audio.input.transcription.model`, or of
the query; beside OpenAI's keys, `completed` has `voxline`: version, digest and capture.

Events: https://platform.openai.com/docs/api-reference/realtime-client-events
"""

import base64
import binascii
import copy
import io
import itertools
import secrets
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket

from voxline.inference.transcript import Transcript
from voxline.inference.written_transcript import write_transcript
from voxline.serving.limits import ServingLimits
from voxline.serving.realtime import RealtimeRoute, SegmentStream, Session, SessionRequest, too_many_sessions
from voxline.serving.refusals import RefusedError, read_json_object
from voxline.serving.transcription_request import is_of_language

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Samples = npt.NDArray[np.int16]

PCM_RATE = 24_000
G711_RATE = 8_000
"""Samples a second of OpenAI's formats."""
LEAST_MS = 100
"""Of audio in a commit."""
INPUT = "session.audio.input"
DEFAULT_VAD = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500}
FORMATS: dict[str, dict[str, Any]] = {
    "audio/pcm": {"type": "audio/pcm", "rate": PCM_RATE},
    "audio/pcmu": {"type": "audio/pcmu"},
    "audio/pcma": {"type": "audio/pcma"},
}


class EventError(Exception):
    """An event of the client that changes nothing; the session continues.

    Args:
      param: the key that is wrong.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class Item:
    """Audio that becomes one item of the conversation, while it arrives."""

    def __init__(self) -> None:
        self.id = _new_id("item")
        self.is_started = False  # the client knows its id
        self.sent = ""
        self._before = ""

    def stable_delta(self, text: str) -> str:
        """The new part of the text that this look and the one before agree on."""
        pairs = zip(self._before, text, strict=False)
        agreed = "".join(letter for _, letter in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._before = text
        return self._delta(agreed)

    def last_delta(self, text: str) -> str:
        """The new part of the final text; "" if it does not continue what was sent."""
        return self._delta(text)

    def _delta(self, text: str) -> str:
        if not text.startswith(self.sent):
            return ""
        delta = text[len(self.sent) :]
        self.sent = text
        return delta


class Resampler:
    """Turns audio of the client's format, cut anywhere, into samples of the stream's rate."""

    def __init__(self, kind: str, rate: int) -> None:
        import soxr

        self._subtype = {"audio/pcm": "PCM_16", "audio/pcmu": "ULAW", "audio/pcma": "ALAW"}[kind]
        self._pending = b""
        self.rate = PCM_RATE if kind == "audio/pcm" else G711_RATE
        # In float32: to int16 it adds noise, which differs from call to call.
        self._stream = soxr.ResampleStream(self.rate, rate, 1, dtype="float32")

    @property
    def sample_bytes(self) -> int:
        return 2 if self._subtype == "PCM_16" else 1

    def add(self, data: bytes, *, last: bool = False) -> "Samples":
        import numpy as np
        import soundfile

        # The bytes of half a sample wait for the next part.
        data = self._pending + data
        whole = len(data) // self.sample_bytes * self.sample_bytes
        self._pending = data[whole:]
        samples = np.zeros(0, np.float32)
        if whole:
            raw = {"format": "RAW", "subtype": self._subtype, "endian": "LITTLE", "samplerate": self.rate}
            samples, _ = soundfile.read(io.BytesIO(data[:whole]), dtype="float32", channels=1, **raw)
        resampled = self._stream.resample_chunk(samples, last=last)
        rounded: Samples = np.clip(np.rint(resampled * 32768), -32768, 32767).astype(np.int16)
        return rounded


class TranscriptionSession(Session):
    """A session with OpenAI's events: a stream for each audio that the client commits, or one for all of it."""

    takes_room = True
    """Between two commits it has no stream, and keeps its room."""

    def __init__(self, socket: WebSocket, limits: ServingLimits, route: RealtimeRoute, model: str) -> None:
        super().__init__(socket, limits)
        self._route = route
        self._id = _new_id("sess")
        self._expires = round(time.time() + limits.stream_seconds)
        self._input: dict[str, Any] = {
            "format": FORMATS["audio/pcm"],
            "noise_reduction": None,
            "transcription": {"model": model, "language": None, "prompt": ""},
            "turn_detection": DEFAULT_VAD,
        }
        self._segments: SegmentStream | None = None
        self._resampler: Resampler | None = None
        self._item = Item()
        self._last_item: str | None = None
        self._closed_seconds = 0.0  # of streams that have ended
        self._segments_seconds = 0.0  # of items of the present stream

    @classmethod
    def open(cls, request: SessionRequest) -> "TranscriptionSession":
        query = request.socket.query_params
        if query.get("intent", "transcription") != "transcription":
            raise RefusedError(HTTPStatus.BAD_REQUEST, "transcription is accepted", "intent")
        if "call_id" in query:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "there are no calls here; leave it out", "call_id")

        # A client may name the model later: in its first session.update.
        model = query.get("model", "")
        if model:
            request.route.find(model)
        if request.route.is_full:
            raise too_many_sessions()
        return cls(request.socket, request.limits, request.route, model)

    @property
    def seconds(self) -> float:
        return self._closed_seconds + (self._segments.seconds if self._segments else 0.0)

    async def close(self) -> None:
        if segments := self._segments:
            self._closed_seconds += segments.seconds
            self._segments = None
            await segments.stream.close()

    def error_message(self, message: str, kind: str) -> dict[str, Any]:
        return _error(message, kind=kind)

    async def talk(self) -> None:
        await self.send({**_event("session.created"), "session": self._describe()})
        while True:
            message = await self.receive()
            if message["type"] == "websocket.disconnect":
                return
            event = read_json_object(message.get("text") or "")
            event_id = event.get("event_id") if event else None
            try:
                if event is None:
                    raise EventError("a text message with a JSON object is accepted")
                await self._answer(event)
            except (EventError, RefusedError) as error:
                code = getattr(error, "code", None)
                await self.send(_error(str(error), error.param, code, event_id if isinstance(event_id, str) else None))

    async def _answer(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "session.update":
            await self._update(event.get("session"))
            await self.send({**_event("session.updated"), "session": self._describe()})
        elif kind == "input_audio_buffer.append":
            await self._append(event.get("audio"))
        elif kind == "input_audio_buffer.commit":
            await self._commit()
        elif kind == "input_audio_buffer.clear":
            await self.close()
            self._begin_stream()
            await self.send(_event("input_audio_buffer.cleared"))
        else:
            events = "session.update, input_audio_buffer.append, .commit and .clear"
            raise EventError(f"{str(kind)[:60]!r}: a transcription session accepts {events}", "type")

    def _describe(self) -> dict[str, Any]:
        """The session as the client sees it."""
        kind = {"type": "transcription", "object": "realtime.transcription_session"}
        audio = {"input": copy.deepcopy(self._input)}
        return {**kind, "id": self._id, "expires_at": self._expires, "audio": audio, "include": None}

    # Settings

    async def _update(self, session: Any) -> None:
        """Takes over all settings of an update, or none."""
        session = _mapping(session, "session", {"type", "audio", "include"})
        if session.get("type") != "transcription":
            raise EventError("transcription is accepted", "session.type")
        if session.get("include"):
            raise EventError("no log-probabilities are sent; leave it out", "session.include")
        audio = _mapping(session.get("audio") or {}, "session.audio", {"input"})
        values = _mapping(audio.get("input") or {}, INPUT, set(self._input))

        changed = dict(self._input)
        if "format" in values:
            changed["format"] = _read_format(values["format"])
        if values.get("noise_reduction") is not None:
            raise EventError("nothing reduces noise here; null is accepted", f"{INPUT}.noise_reduction")
        if "turn_detection" in values:
            changed["turn_detection"] = _read_turn_detection(values["turn_detection"])
        if "transcription" in values:
            changed["transcription"] = self._read_transcription(values["transcription"])
        if changed == self._input:
            return

        # The audio that waits was heard with the settings of before.
        if self._segments and (self._item.is_started or not self._input["turn_detection"]):
            message = "the audio before is not committed: commit or clear it, then change how the next is heard"
            raise EventError(message, INPUT)
        if self._segments:
            await self._finish(self._segments, with_silence=False)
        self._input = changed

    def _read_transcription(self, values: Any) -> dict[str, Any]:
        key = f"{INPUT}.transcription"
        if values is None:
            raise EventError("a transcription session transcribes always; leave it out", key)
        values = _mapping(values, key, {"model", "language", "prompt", "delay", "keywords", "languages"})
        for name in ("prompt", "delay", "keywords", "languages"):
            if values.get(name):
                raise EventError("no model here takes it; leave it out", f"{key}.{name}")

        model = values.get("model") or self._input["transcription"]["model"]
        language = values.get("language")
        if not isinstance(model, str):
            raise EventError("the name of a model is accepted, as a string", f"{key}.model")
        if language is not None and not isinstance(language, str):
            raise EventError("a code such as en is accepted, as a string", f"{key}.language")
        try:
            spoken = self._route.language(model)
        except RefusedError as refused:
            raise EventError(str(refused), f"{key}.model") from None
        if language and not is_of_language(language, spoken):
            message = f"{language[:20]}: the model hears {spoken}; name that, or leave it out"
            raise EventError(message, f"{key}.language")
        return {"model": model, "language": language, "prompt": ""}

    # Audio

    def _begin_stream(self) -> None:
        self._item = Item()
        self._resampler = None
        self._segments_seconds = 0.0

    async def _open_stream(self) -> SegmentStream:
        if not (model := self._input["transcription"]["model"]):
            message = "name a model first, by session.update or in the query"
            raise EventError(message, f"{INPUT}.transcription.model")
        vad = self._input["turn_detection"]
        numbers = {"endpoint_ms": float(vad["silence_duration_ms"])} if vad else {}
        segments = self._route.open_stream(self.socket, model, numbers, has_room=True)
        self._segments = segments
        self._resampler = Resampler(self._input["format"]["type"], segments.stream.sample_rate)
        await segments.stream.start()
        return segments

    async def _append(self, audio: Any) -> None:
        try:
            data = base64.b64decode(audio, validate=True) if isinstance(audio, str) else None
        except (binascii.Error, ValueError):
            data = None
        if data is None:
            raise EventError("audio in base64 is accepted", "audio")

        # The stream begins with the audio: until then an update may name another model.
        segments = self._segments or await self._open_stream()
        assert self._resampler  # noqa: S101 -- opened with the stream
        self.check_length(self.seconds + len(data) / self._resampler.sample_bytes / self._resampler.rate)
        await self._hear(segments, self._resampler.add(data))

    async def _hear(self, segments: SegmentStream, samples: "Samples") -> None:
        partial = await segments.feed(samples)
        by_text = partial.seconds - segments.stream.latency.algorithmic_ms / 1000
        for segment in partial.segments:
            began = segment.words[0].start if segment.words else self._segments_seconds
            await self._start_item(by_text if segments.stream.has_partials else began)
            await self._end_item(segments, segment, last=False)
        segments.forget_surplus()

        # Speech is known by its level, or once it has a text: the network's latency after it was heard.
        if partial.text or partial.speech_start is not None:
            await self._start_item(by_text if partial.speech_start is None else partial.speech_start)
        if delta := self._item.stable_delta(partial.text):
            await self._send_text("delta", self._item.id, delta=delta)

    async def _commit(self) -> None:
        segments = self._segments
        waiting_ms = 1000 * (segments.seconds - self._segments_seconds) if segments else 0.0
        if segments is None or waiting_ms < LEAST_MS:
            message = f"at least {LEAST_MS} ms of audio are accepted; the buffer has {waiting_ms:.0f} ms"
            raise EventError(message, code="input_audio_buffer_commit_empty")

        await self._finish(segments, with_silence=True)

    async def _finish(self, segments: SegmentStream, *, with_silence: bool) -> None:
        """Ends the stream, and makes its audio an item; without a text only if `with_silence`."""
        assert self._resampler  # noqa: S101 -- opened with the stream
        await self._hear(segments, self._resampler.add(b"", last=True))
        # A stream may hold the end of a segment before the one that the commit ends.
        *before, last = await segments.stream.finish()
        for segment in before:
            await self._end_item(segments, segment, last=False)
        if last.text or with_silence:
            await self._end_item(segments, last, last=True)
        await self.close()
        self._begin_stream()

    async def _start_item(self, began: float) -> None:
        """Says once that speech started, where the server decides on turns.

        Args:
          began: seconds from the stream's start.
        """
        vad = self._input["turn_detection"]
        if self._item.is_started:
            return
        self._item.is_started = True
        if not vad:
            return

        heard_ms = 1000 * began - vad["prefix_padding_ms"]
        start_ms = 1000 * self._closed_seconds + max(1000 * self._segments_seconds, heard_ms)
        kind = "input_audio_buffer.speech_started"
        await self.send({**_event(kind), "audio_start_ms": round(start_ms), "item_id": self._item.id})

    async def _end_item(self, segments: SegmentStream, transcript: Transcript, *, last: bool) -> None:
        item = self._item
        self._item = Item()
        seconds = transcript.seconds
        if last:
            seconds = segments.seconds - self._segments_seconds
        self._segments_seconds += seconds

        if self._input["turn_detection"] and item.is_started and not last:
            end_ms = 1000 * (self._closed_seconds + self._segments_seconds)
            kind = "input_audio_buffer.speech_stopped"
            await self.send({**_event(kind), "audio_end_ms": round(end_ms), "item_id": item.id})
        await self._send_item("input_audio_buffer.committed", item_id=item.id)
        content = [{"type": "input_audio", "transcript": None}]
        described = {"id": item.id, "object": "realtime.item", "type": "message", "role": "user", "content": content}
        for kind in ("added", "done"):
            await self._send_item(f"conversation.item.{kind}", item={**described, "status": "completed"})
        self._last_item = item.id

        # What the deltas lack comes now, unless the text has become another one.
        as_written = write_transcript(transcript, self._route.writing)
        if delta := item.last_delta(as_written.text):
            await self._send_text("delta", item.id, delta=delta)
        heard_by = segments.identity()
        if capture := segments.offer(transcript, last=last):
            heard_by["capture"] = capture
        usage = {"type": "duration", "seconds": round(seconds, 3)}
        await self._send_text("completed", item.id, transcript=as_written.text, usage=usage, voxline=heard_by)

    async def _send_item(self, kind: str, **values: Any) -> None:
        await self.send({**_event(kind), "previous_item_id": self._last_item, **values})

    async def _send_text(self, kind: str, item: str, **values: Any) -> None:
        kind = f"conversation.item.input_audio_transcription.{kind}"
        await self.send({**_event(kind), "item_id": item, "content_index": 0, **values})


def _read_format(values: Any) -> dict[str, Any]:
    key = f"{INPUT}.format"
    values = _mapping(values, key, {"type", "rate"})
    kind = values.get("type", "audio/pcm")
    if kind not in FORMATS:
        raise EventError(f"{', '.join(FORMATS)} is accepted", f"{key}.type")
    rate = PCM_RATE if kind == "audio/pcm" else G711_RATE
    if values.get("rate", rate) not in (rate, None):
        raise EventError(f"{rate} is accepted for {kind}", f"{key}.rate")
    return FORMATS[kind]


def _read_turn_detection(values: Any) -> dict[str, Any] | None:
    if values is None:
        return None
    key = f"{INPUT}.turn_detection"
    accepted = {*DEFAULT_VAD, "create_response", "interrupt_response", "idle_timeout_ms"}
    values = _mapping(values, key, accepted | {"eagerness"})
    if values.get("type", "server_vad") != "server_vad":
        raise EventError("server_vad or null is accepted", f"{key}.type")
    for name in ("create_response", "interrupt_response", "idle_timeout_ms", "eagerness"):
        if values.get(name):
            raise EventError("a transcription session has none; leave it out", f"{key}.{name}")
    if values.get("threshold") not in (None, DEFAULT_VAD["threshold"]):
        raise EventError("the recognizer itself tells speech from silence: 0.5 is accepted", f"{key}.threshold")

    detection = dict(DEFAULT_VAD)
    for name, least in (("prefix_padding_ms", 0), ("silence_duration_ms", 1)):
        number = values.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= 60_000:
            raise EventError(f"{least} to 60,000 milliseconds are accepted", f"{key}.{name}")
        detection[name] = number
    return detection


def _mapping(values: Any, key: str, accepted: set[str]) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise EventError("an object is accepted", key)
    for name in values:
        if name not in accepted:
            raise EventError(f"{', '.join(sorted(accepted))} is accepted", f"{key}.{str(name)[:60]}")
    return values


def _event(kind: str) -> dict[str, Any]:
    return {"type": kind, "event_id": _new_id("event")}


def _error(
    message: str,
    param: str | None = None,
    code: str | None = None,
    event_id: str | None = None,
    kind: str = "invalid_request_error",
) -> dict[str, Any]:
    details = {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id}
    return {**_event("error"), "error": details}


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
