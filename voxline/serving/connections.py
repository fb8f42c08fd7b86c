"""uvicorn's connections, with bounds on what one client may cost.

uvicorn itself waits for ever for a head or a reader, answers 503 to all while too many connections are open, and in
plain text where it answers alone.
"""

import asyncio
import contextlib
import functools
import json
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from voxline.serving.access import host_of
from voxline.serving.refusals import error_response

HEAD_SECONDS = 15.0
"""In which a connection must have sent the head of its next request."""
MESSAGE_BYTES = 2**20
"""Largest message of a session; the WebSocket library refuses a larger one with 1009."""
_STALL_SECONDS = 10.0
_LEAST_BYTES_PER_SECOND = 1000
"""That a client must read while something waits for it."""
_DISCARDED_BYTES = 8 * 2**20
"""Of a body that is not wanted, which are read so that its client can read why."""
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 2**20
"""In which a client may read why its connection ends; what it still sends, up to so much, is thrown away. Linux drops
an answer that was not read where a socket is closed with input left."""
_PARTS = 1000
_PART_BYTES = 64
"""So many parts of a body may be of any size; of more, the average must have so many bytes."""
_FRAMES = 1000
_FRAMES_PER_SECOND = 200
_FRAME_BYTES = 64
"""So many frames of a session may come at once, and so many a second; for more, the average must have so many bytes."""
_SLICE_BYTES = 4096
_HEAD_BYTES = 16 * 1024
_POLICY = 1008  # RFC 6455, section 7.4.1


class BoundedParser(h11.Connection):
    """Refuses what costs far more to parse than to send, and what two servers may read in two ways."""

    _parts = _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()

        if isinstance(event, h11.Request):
            self._parts = self._bytes = 0
            names = {name.lower() for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:  # RFC 9112, section 6.1
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding in one request")
        elif isinstance(event, h11.Data):
            self._parts += 1
            self._bytes += len(event.data)
            # The average over a body: small parts now and then are no fault.
            if self._parts > _PARTS and self._bytes < self._parts * _PART_BYTES:
                raise h11.RemoteProtocolError("a body in parts that are too small")
        return event


class _Reader:
    """Ends a connection whose client does not read what waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None
        self._size = 0

    def watch(self) -> None:
        """Watches the connections as long as something waits."""
        self._size = self._transport.get_write_buffer_size()
        if self._timer is None and self._size:
            self._timer = self._loop.call_later(_STALL_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        size = self._transport.get_write_buffer_size()
        # Less than a slow line reads in this time.
        if size and self._size - size < _LEAST_BYTES_PER_SECOND * _STALL_SECONDS:
            self._transport.abort()
        else:
            self.watch()


class HttpConnection(H11Protocol):
    """A connection over HTTP/1.1.

    It is closed when it sends no whole head in time, does not read, or sends bodies that nobody wants. Where too many
    are open, the one that has been idle for longest is closed, so idle connections keep nobody out; if none is idle,
    the latest one of the host with the most, so one host keeps no other out.
    """

    head_seconds = HEAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None
    _discarded = _thrown_away = 0
    _ended = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = BoundedParser(h11.SERVER, _HEAD_BYTES)
        self._most = self.limit_concurrency

        self.limit_concurrency = None  # uvicorn answers 503 in plain text there
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reader = _Reader(self.loop, transport)
        self._expect_head(self.cycle)
        if self._most:
            self._make_room(self._most)

    def data_received(self, data: bytes) -> None:
        # A refused client may still send: its input is read and dropped, so that it can read the answer.
        if self._ended:
            self._thrown_away += len(data)
            if self._thrown_away > _LINGER_BYTES:
                self._close()
            return

        # The answer is complete, and the body still comes: nobody wants it.
        if self.cycle and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            self._discarded += len(data)
            if self._discarded > _DISCARDED_BYTES:
                self._close()
                return
        super().data_received(data)

    def on_response_complete(self) -> None:
        answered = self.cycle
        self._discarded = 0
        self._idle_since = self.loop.time()
        super().on_response_complete()  # may start the next request
        self._expect_head(answered)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is on its way, to a broken request
            self._close()
            return

        if self.cycle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._answer(HTTPStatus.BAD_REQUEST, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        if self._head_timer:
            self._head_timer.cancel()  # the session has limits of its own
        super().handle_websocket_upgrade(event)

    @property
    def is_idle(self) -> bool:
        """Returns whether no request is answered."""
        return not self.transport.is_closing() and (
            self._ended or self.cycle is None or bool(self.cycle.response_complete)
        )

    def _make_room(self, most: int) -> None:
        connections = [other for other in self.connections if not other.transport.is_closing()]
        if len(connections) <= most:
            return

        # Idle connections make room.
        http = [other for other in connections if isinstance(other, HttpConnection) and other is not self]
        if idle := [other for other in http if other.is_idle]:
            min(idle, key=lambda other: other._idle_since).transport.abort()
            return

        # If all are busy, one of a host that has more than this one does, or else the new one is refused.
        all_hosts: list[Any] = connections
        shares = Counter(host_of(other.client) for other in all_hosts)
        latest = max(http, key=lambda other: (shares[host_of(other.client)], other._idle_since), default=None)
        if latest and shares[host_of(latest.client)] > shares[host_of(self.client)]:
            latest.transport.abort()
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later")

    def _answer(self, status: HTTPStatus, message: str) -> None:
        response = error_response(status, message)

        headers = [(name, value) for name, value in response.raw_headers if name != b"connection"]
        head = h11.Response(status_code=int(status), headers=[*headers, (b"connection", b"close")])
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

        # Half-closed: the client reads the answer to its end before the connection goes.
        self._ended = True
        _end_writing(self.transport)
        self.loop.call_later(_LINGER_SECONDS, self._close)

    def _expect_head(self, last: object) -> None:
        if self._head_timer:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self.head_seconds, self._close_if_last, last)

    def _close_if_last(self, last: object) -> None:
        # A request that has started since has another cycle, and keeps the connection.
        if self.cycle is last:
            self._close()

    def _close(self) -> None:
        self.transport.close()  # when what waits was read
        self._reader.watch()


class SessionConnection(WebSocketsSansIOProtocol):
    """A connection of a session.

    It has a budget of frames; a client that does not read gets no pongs, and is ended. A session that was refused is no
    error in the log: for uvicorn one lacks an answer until its connection is closed, which is after the application has
    returned.
    """

    _frames = _bytes = _thrown_away = 0
    _ended = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn.reject = functools.partial(_reject, self.conn.reject)  # type: ignore[method-assign]
        self._begin = self.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._reader = _Reader(self.loop, self.transport)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._thrown_away += len(data)
            if self._thrown_away > _LINGER_BYTES:
                self._close()
            return

        # In slices: the library parses all that it gets, and a frame may have two bytes.
        for at in range(0, len(data), _SLICE_BYTES):
            if self._ended or self.transport.is_closing():
                return
            super().data_received(data[at : at + _SLICE_BYTES])
            # A budget that grows with time and with bytes: tiny frames cost more than they carry.
            allowed = _FRAMES + _FRAMES_PER_SECOND * (self.loop.time() - self._begin) + self._bytes / _FRAME_BYTES
            if self._frames > allowed and not self.close_sent:
                self._end("too many frames for so little audio")
                return

    def handle_ping(self) -> None:
        self._frames += 1
        # The library has queued the pong; a client that does not read gets none.
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)

    def handle_pong(self, event: Any) -> None:
        self._frames += 1
        super().handle_pong(event)

    def handle_cont(self, event: Any) -> None:
        self._count(event)
        super().handle_cont(event)

    def handle_text(self, event: Any) -> None:
        self._count(event)
        super().handle_text(event)

    def handle_bytes(self, event: Any) -> None:
        self._count(event)
        super().handle_bytes(event)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader.watch()

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        super().on_task_complete(task)
        self._reader.watch()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def _count(self, event: Any) -> None:
        self._frames += 1
        self._bytes += len(event.data)

    def _end(self, reason: str) -> None:
        self._ended = True
        # The application gets its disconnect at once; the client gets the reason.
        self.queue.put_nowait({"type": "websocket.disconnect", "code": _POLICY, "reason": reason})
        if self.handshake_complete and not self.close_sent:
            self.conn.send_close(_POLICY, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            _end_writing(self.transport)

        # The client's input is thrown away for a moment, so that it can read why. uvicorn closes the connection when
        # the application returns, unless it waits for a close frame.
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

        self.close_timer = self.loop.call_later(_LINGER_SECONDS, self._close)

    def _close(self) -> None:
        self.transport.close()
        self._reader.watch()


def _end_writing(transport: asyncio.Transport) -> None:
    """Half-closes a connection; its client may have reset it already."""
    with contextlib.suppress(OSError):
        transport.write_eof()


def _reject(reject: Any, status: int, _: str) -> Any:
    """The library's answer to a handshake, in OpenAI's form."""
    body = bytes(error_response(HTTPStatus(status), HTTPStatus(status).phrase).body)
    response = reject(status, json.dumps(json.loads(body)))
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json"
    return response


WEBSOCKETS: dict[str, Any] = {"ws": SessionConnection, "ws_max_size": MESSAGE_BYTES, "ws_ping_interval": None}
"""uvicorn's options. It reads nothing while a message is computed, pongs neither, and would close a session whose
message takes longer than its pings may. `idle_seconds` of the limits ends those whose client has gone."""
