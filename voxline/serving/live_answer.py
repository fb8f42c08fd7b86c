"""What is known of an answer, sent while the rest is computed: the text of a long recording, or the sound of a text.

A thread tells what there is; the response begins with the first piece that will not change. A request that ends before
that, of a short recording or with a fault, is answered like any other. A later fault cannot change the status, which is
sent by then: it is an event, or of plain sound a connection that ends before the answer does.
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
from voxline.progress import print_status
from voxline.serving.refusals import RefusedError, error_response
from voxline.serving.speech import SpeechRequest
from voxline.serving.transcription_request import EVENTS_TYPE, delta_event, event_of

CLIENT_LEFT = 499
"""nginx's number of a client that has gone, for the counter; nobody reads it."""


class BrokenAnswerError(Exception):
    """Ends a connection before the answer is whole; why was said."""


class LiveAnswer:
    """The part of an answer that is there so far.

    Args:
      media_type: of the response.
    """

    def __init__(self, media_type: str) -> None:
        self._media_type = media_type
        self._loop = asyncio.get_running_loop()
        self._sign: Callable[[Response], Response] | None = None

        # Changed on the event loop only, as `sent` is.
        self._pieces: list[str | bytes] = []
        self._news = asyncio.Event()

    def begin(self, sign: Callable[[Response], Response]) -> None:
        """The version that answers is sure; until then, nothing is sent.

        Args:
          sign: adds that version to the headers of a response.
        """
        self._sign = sign

    def tell(self, news: Any) -> None:
        """Takes what there is, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self._take_begun, news)

    def _take_begun(self, news: Any) -> None:
        if self._sign and (piece := self._take(news)):
            self._pieces.append(piece)
            self._news.set()

    def _take(self, news: Any) -> str | bytes:
        """The piece of the response that is new by it; empty: none."""
        raise NotImplementedError

    async def answer(self, work: Coroutine[Any, Any, Response], held: contextlib.AsyncExitStack) -> Response:
        """The response of a request.

        Args:
          work: its response once all is known, of what is behind the pieces that were sent.
          held: what the work needs; it is closed when the work ends.

        Raises:
          Exception: of the work, if it fails before anything is sent.
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
                return self._sign(LiveResponse(self._all_pieces(task), task, self._media_type))
            return await task
        except BaseException:
            await _end(task)
            # A task that was cancelled before it began has not entered what it holds.
            work.close()
            await held.aclose()
            raise

    async def _all_pieces(self, work: "asyncio.Task[Response]") -> AsyncIterator[str | bytes]:
        while True:
            await self._news.wait()
            self._news.clear()
            pieces = self._pieces
            self._pieces = []
            for piece in pieces:
                yield piece
            # More may have come while these were sent.
            if work.done() and not self._pieces:
                break

        # All is known, or a fault ended the work, which is raised here.
        remaining = work.result()
        if not isinstance(remaining, StreamingResponse):
            raise TypeError("the response of a stream is no stream")
        async for part in remaining.body_iterator:
            yield part if isinstance(part, str) else bytes(part)


class LiveTranscript(LiveAnswer):
    """The text that is heard so far for one request.

    Args:
      writing: the form of the transcript, by which text is held back that may still change.

    Attributes:
      sent: the text of which the client has events, or will.
    """

    def __init__(self, writing: WritingChoices) -> None:
        super().__init__(EVENTS_TYPE)
        self.sent = ""
        self._writing = writing

    def _take(self, news: str) -> str:
        settled = settled_text(news, self._writing)
        if len(settled) <= len(self.sent):
            return ""
        piece = settled[len(self.sent) :]
        self.sent = settled
        return delta_event(piece)


class LiveSpeech(LiveAnswer):
    """The sound that is spoken so far for one request.

    Args:
      wish: the request.

    Attributes:
      sent: bytes of samples that the client has, or will.
    """

    def __init__(self, wish: SpeechRequest) -> None:
        super().__init__(wish.media_type)
        self.sent = 0
        self._wish = wish

    def _take(self, news: tuple[bytes, int]) -> str | bytes:
        samples, sample_rate = news
        # A pause may be shorter than a sample; a header alone would come again with the next piece.
        if not samples:
            return b""
        # The first piece of a file has its header, which is not counted.
        piece = self._wish.piece(samples, sample_rate, is_first=not self.sent)
        self.sent += len(samples)
        return piece


class LiveResponse(StreamingResponse):
    """Pieces while the work runs; the work ends with the response.

    Attributes:
      count: takes the status of the request when all is sent, which is an error's after a fault.
    """

    def __init__(self, pieces: AsyncIterator[str | bytes], work: "asyncio.Task[Response]", media_type: str) -> None:
        super().__init__(self._with_faults(pieces), media_type=media_type)
        self.count: Callable[[int], None] = lambda _: None
        self._work = work
        self._outcome = CLIENT_LEFT

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # The server closes the connection of an answer without an end; a traceback would say nothing more.
            with contextlib.suppress(BrokenAnswerError):
                await super().__call__(scope, receive, send)
        finally:
            await _end(self._work)
            self.count(self._outcome)

    async def _with_faults(self, pieces: AsyncIterator[str | bytes]) -> AsyncIterator[str | bytes]:
        try:
            async for piece in pieces:
                yield piece
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
        # Sound has no place for words: a client sees that the answer ended before its end.
        if self.media_type != EVENTS_TYPE:
            message = json.loads(bytes(response.body))["error"]["message"]
            print_status(f"serve: an answer was broken off after a part of it was sent: {message}")
            raise BrokenAnswerError
        yield event_of({"type": "error", **json.loads(bytes(response.body))})


async def _end(work: "asyncio.Task[Response]") -> None:
    work.cancel()
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # seen, if nobody waits
