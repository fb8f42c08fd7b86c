"""Lets requests in before their bodies are read, and reads the bodies within limits of size, time and disk.

A request gets a place before the first byte of its body is read; without one it waits for a moment, unread, and is then
refused with 429. So overload costs the server a head, not a recording, and never more memory.

A client that sends slowly does not keep its place: after `_FRESH_SECONDS` it only counts among the `uploads` requests
that may send at a time. It must send `bytes_per_second` on average; while others wait for room, the slowest one below
`_SLOW_BYTES_PER_SECOND` gives up its own.

Callers have equal shares: of those who wait, the one with the fewest requests is let in first, and the one with the
most gives up its slowest upload if another one waits who has fewer.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request

from voxline.serving.limits import ServingLimits
from voxline.serving.refusals import RefusedError

FORM_FIELDS = 32
FORM_OVERHEAD = 65_536
"""Most fields of a form, and bytes of each; also of a request beside its recording."""
_FRESH_SECONDS = 0.25
_SLOW_SECONDS = 1.0
_SLOW_BYTES_PER_SECOND = 16_000
"""Below any audio that is sent while it is spoken: 128 kbit/s."""
_GRACE_SECONDS = 5.0
_IN_MEMORY_BYTES = 2**20
"""Of a recording; a larger one is written to a file (Starlette's `MultiPartParser.spool_max_size`)."""
BUSY = "the server is busy; try again in a second"


@dataclass(eq=False)
class Upload:
    """A request that was let in.

    Attributes:
      begin: time of the loop when it was let in.
      caller: who sends it: the name of a key, or an address.
      received: bytes of its body so far.
      counted: whether it has one of the places; not while it sends slowly.
      deadline: in which the rest of its body must come; None once it is whole.
      ended: why it was ended for another one: it is slow (408), or its caller has more (429).
    """

    begin: float
    caller: str
    received: int = 0
    counted: bool = True
    whole: bool = False
    deadline: asyncio.Timeout | None = None
    ended: HTTPStatus | None = None

    def rate(self, time: float) -> float:
        """Bytes a second."""
        return self.received / max(time - self.begin, 1e-3)


@dataclass(eq=False)
class _Waiting:
    """A request that waits to be let in."""

    caller: str
    place: "asyncio.Future[Upload]"


class Uploads:
    """The requests that send a recording or a text, wait for their answer, or wait to be let in.

    Args:
      pending: recordings that are computed or wait, also those whose clients have gone.
    """

    def __init__(self, limits: ServingLimits, pending: Callable[[], int]) -> None:
        self._limits = limits
        self._pending = pending
        self._places = limits.concurrency + limits.queue
        self._requests: set[Upload] = set()
        self._waiting: list[_Waiting] = []
        self._spooled = 0

    def __len__(self) -> int:
        """Requests that were let in and have no answer yet."""
        return len(self._requests)

    @contextlib.asynccontextmanager
    async def admitted(self, caller: str) -> AsyncIterator[Upload]:
        """A request's place, until its answer.

        Args:
          caller: with whose other requests it shares.

        Raises:
          RefusedError: 429, there was none within `wait_seconds`.
        """
        upload = await self._admit(caller)
        try:
            yield upload
        # However the request ended, its place and its bytes are given back, and the next one may enter.
        finally:
            self._requests.discard(upload)
            self._spooled -= upload.received
            self.let_in()

    def let_in(self) -> None:
        """Gives the free places to the callers with the fewest, and of equal ones to who has waited longest."""
        # Under load there is rarely a place, so that is looked at first.
        while self._waiting and self._has_place():
            # One that was refused, or has left, is still in the list for a moment.
            shares = self._shares()
            candidates = (waiting for waiting in self._waiting if not waiting.place.done())
            following = min(candidates, key=lambda waiting: shares[waiting.caller], default=None)
            if following is None or not self._makes_room(following.caller):
                return
            following.place.set_result(self._enter(following.caller))

    async def read_form(self, request: Request, upload: Upload, stack: contextlib.AsyncExitStack) -> FormData:
        """A form with one file, which is closed with the stack.

        Raises:
          RefusedError: it is something else, too large, or too slow; or there is no room on the disk.
        """
        most = self._limits.max_bytes + FORM_OVERHEAD
        message = f"a recording of at most {self._limits.max_bytes:,} bytes is accepted"

        # The announced size is only a hint: the bytes are counted as they come.
        announced = request.headers.get("content-length", "")
        size = int(announced[:20]) if announced.isdecimal() else 0
        if size > most:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)

        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a form (multipart/form-data) is accepted")

        _check_disk(size)
        limited = Request(request.scope, self._bounded(request, upload, most, message))
        async with self._in_time(upload):
            form = limited.form(max_files=1, max_fields=FORM_FIELDS, max_part_size=FORM_OVERHEAD)
            return await stack.enter_async_context(form)

    async def read_body(self, request: Request, upload: Upload) -> bytes:
        """A body of at most `FORM_OVERHEAD` bytes.

        Raises:
          RefusedError: it is too large or too slow.
        """
        message = f"a request of at most {FORM_OVERHEAD:,} bytes is accepted"
        limited = Request(request.scope, self._bounded(request, upload, FORM_OVERHEAD, message))
        async with self._in_time(upload):
            return await limited.body()

    @contextlib.asynccontextmanager
    async def _in_time(self, upload: Upload) -> AsyncIterator[None]:
        # Two looks: after the first a slow client no longer holds a place, after the second it may be ended.
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(seconds, self._look_at, upload) for seconds in (_FRESH_SECONDS, _SLOW_SECONDS)]
        try:
            async with asyncio.timeout_at(self._due(upload)) as upload.deadline:
                yield
            # It came whole before it could be ended.
            upload.ended = None
        except TimeoutError:
            if upload.ended is HTTPStatus.TOO_MANY_REQUESTS:
                raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, BUSY) from None
            limits = self._limits
            seconds = loop.time() - upload.begin
            message = (
                f"the request came too slowly: {upload.received:,} bytes in {seconds:.0f} s; at least "
                f"{limits.bytes_per_second:,} a second, and all within {limits.upload_seconds:g} s, are accepted"
            )
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, message) from None
        # A whole request counts again, until its answer.
        finally:
            upload.whole = True
            upload.deadline = None
            upload.counted = True
            for timer in timers:
                timer.cancel()

    def _bounded(self, request: Request, upload: Upload, most: int, message: str) -> Callable[[], Any]:
        async def receive() -> Any:
            part = await request.receive()
            size = len(part.get("body", b""))
            upload.received += size
            self._spooled += size

            if upload.received > most:
                raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)

            if self._spooled > self._limits.spool_bytes:
                message_full = "the recordings of other requests fill the room for uploads; try again later"
                raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message_full)
            # Each part that comes in time moves the deadline.
            if upload.deadline and not upload.ended and not upload.deadline.expired():
                upload.deadline.reschedule(self._due(upload))
            return part

        return receive

    def _due(self, upload: Upload) -> float:
        slowest = _GRACE_SECONDS + upload.received / self._limits.bytes_per_second
        return upload.begin + min(self._limits.upload_seconds, slowest)

    async def _admit(self, caller: str) -> Upload:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Upload] = loop.create_future()
        waiting = _Waiting(caller, place)
        self._waiting.append(waiting)
        self.let_in()

        def refuse() -> None:
            if not place.done():
                place.set_exception(RefusedError(HTTPStatus.TOO_MANY_REQUESTS, BUSY))

        timer = loop.call_later(self._limits.wait_seconds, refuse)
        try:
            return await place
        # It got a place in the moment in which its client left: the place is given back.
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and not place.exception():
                self._requests.discard(place.result())
            raise
        finally:
            timer.cancel()
            self._waiting.remove(waiting)

    def _enter(self, caller: str) -> Upload:
        upload = Upload(asyncio.get_running_loop().time(), caller)
        self._requests.add(upload)
        return upload

    def _shares(self) -> Counter[str]:
        return Counter(upload.caller for upload in self._requests)

    def _has_place(self) -> bool:
        counted = sum(upload.counted for upload in self._requests)
        return max(counted, self._pending()) < self._places

    def _makes_room(self, caller: str) -> bool:
        # Fewer requests than may send at a time: there is room. Otherwise one has to go.
        if len(self._requests) < self._limits.uploads:
            return True
        self._end_one_for(caller)
        return False  # it leaves in a moment

    def _end_one_for(self, caller: str) -> None:
        # One at a time: the last one has not left yet.
        if any(upload.ended for upload in self._requests):
            return

        time = asyncio.get_running_loop().time()
        sending = [
            upload
            for upload in self._requests
            if upload.deadline and not upload.deadline.expired() and time - upload.begin > _SLOW_SECONDS
        ]
        slow = [upload for upload in sending if upload.rate(time) < _SLOW_BYTES_PER_SECOND]
        candidates = slow

        # None is slow: the caller with the most makes way, unless it would then have fewer than the other one.
        if not slow:
            shares = self._shares()
            most = max((shares[upload.caller] for upload in sending), default=0)
            if most < shares[caller] + 2:
                return
            candidates = [upload for upload in sending if shares[upload.caller] == most]

        slowest = min(candidates, key=lambda upload: upload.rate(time))
        slowest.ended = HTTPStatus.REQUEST_TIMEOUT if slow else HTTPStatus.TOO_MANY_REQUESTS
        assert slowest.deadline  # noqa: S101 -- as above
        slowest.deadline.reschedule(time)

    def _look_at(self, upload: Upload) -> None:
        if not upload.whole:
            upload.counted = False
        self.let_in()


def _check_disk(size: int) -> None:
    """Refuses a recording for which the temporary folder has no room: for the upload, and a copy for the decoder."""
    # Small recordings stay in memory.
    if size <= _IN_MEMORY_BYTES:
        return
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < 2 * size:
        raise RefusedError(HTTPStatus.INSUFFICIENT_STORAGE, "the server's disk has no room for this recording")
