"""The text of a long recording, sent as server-sent events while the rest of it is heard.

A thread tells of the text so far; the response begins with the first piece that will not change. A request that ends
before that, of a short recording or with a fault, is answered like any other. A later fault is an event, since the
status is sent by then.
"""

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from http import HTTPStatus
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from voxline.inference.written_transcript import WritingChoices, settled_text
from voxline.serving.refusals import RefusedError, error_response
from voxline.serving.transcription_request import EVENTS_TYPE, delta_event, event_of

CLIENT_LEFT = 499
"""nginx's number of a client that has gone, for the counter; nobody reads it."""


class LiveTranscript:
    """What is heard so far for one request.

    Args:
      writing: the form of the transcript, by which text is held back that may still change.

    Attributes:
      sent: the text of which the client has events, or will.
    """

    def __init__(self, writing: WritingChoices) -> None:
        self.sent = ""
        self._writing = writing
        self._loop = asyncio.get_running_loop()
        self._sign: Callable[[Response], Response] | None = None

        # Changed on the event loop only, as `sent` is.
        self._pieces: list[str] = []
        self._news = asyncio.Event()

    def begin(self, sign: Callable[[Response], Response]) -> None:
        """The version that hears is sure; until then, nothing is sent.

        Args:
          sign: adds that version to the headers of a response.
        """
        self._sign = sign

    def hear(self, text: str) -> None:
        """Takes the text so far, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self._take, text)

    def _take(self, text: str) -> None:
        settled = settled_text(text, self._writing)
        if self._sign and len(settled) > len(self.sent):
            self._pieces.append(settled[len(self.sent) :])
            self.sent = settled
            self._news.set()

    async def answer(self, work: Coroutine[Any, Any, Response], held: contextlib.AsyncExitStack) -> Response:
        """The response of a request.

        Args:
          work: its response once all is heard, of events from behind `sent` on.
          held: what the work needs; it is closed when the work ends.

        Raises:
          Exception: of the work, if it fails before text is sent.
        """

        async def working() -> Response:
            async with held:
                return await work

        # The work continues behind the response, in a task of its own.
        task = asyncio.ensure_future(working())
        task.add_done_callback(lambda _: self._news.set())
        try:
            await self._news.wait()
            # A fault before anything was sent has a status of its own.
            is_refused = task.done() and task.exception()
            if self._pieces and self._sign and not is_refused:
                return self._sign(LiveResponse(self._events(task), task))
            return await task
        except BaseException:
            await _end(task)
            # A task that was cancelled before it began has not entered what it holds.
            work.close()
            await held.aclose()
            raise

    async def _events(self, work: "asyncio.Task[Response]") -> AsyncIterator[str]:
        while True:
            await self._news.wait()
            self._news.clear()
            pieces = self._pieces
            self._pieces = []
            for piece in pieces:
                yield delta_event(piece)
            # More may have come while these were sent.
            if work.done() and not self._pieces:
                break

        # All is heard, or a fault ended the work, which is raised here.
        remaining = work.result()
        if not isinstance(remaining, StreamingResponse):
            raise TypeError("the response of a stream is no stream")
        async for event in remaining.body_iterator:
            yield str(event)


class LiveResponse(StreamingResponse):
    """Events while the work runs; the work ends with the response.

    Attributes:
      count: takes the status of the request when all is sent, which is an error's after a fault.
    """

    def __init__(self, events: AsyncIterator[str], work: "asyncio.Task[Response]") -> None:
        super().__init__(self._with_faults(events), media_type=EVENTS_TYPE)
        self.count: Callable[[int], None] = lambda _: None
        self._work = work
        self._outcome = CLIENT_LEFT

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await _end(self._work)
            self.count(self._outcome)

    async def _with_faults(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        try:
            async for event in events:
                yield event
            self._outcome = HTTPStatus.OK
        except ClientDisconnect:
            return
        except RefusedError as refused:
            response = error_response(refused.status, str(refused), refused.param)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            response = error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed on this request; its log says why"
            )
        else:
            return
        self._outcome = HTTPStatus(response.status_code)
        yield event_of({"type": "error", **json.loads(bytes(response.body))})


async def _end(work: "asyncio.Task[Response]") -> None:
    work.cancel()
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # seen, if nobody waits
