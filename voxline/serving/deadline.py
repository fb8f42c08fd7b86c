"""The deadline of a request, and the end of its work when nobody waits for it any more."""

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from voxline.cancellation import Cancellation
from voxline.serving.refusals import RefusedError

Result = TypeVar("Result")


async def within(
    seconds: float, request: Request, cancellation: Cancellation, work: Coroutine[Any, Any, Result]
) -> Result:
    """The result of the work of a request that has arrived whole.

    Args:
      seconds: after which the work is ended.
      cancellation: of the threads that do the work: whatever of it still runs when this returns is ended.

    Raises:
      RefusedError: 503, the time has passed.
      ClientDisconnect: the client has gone.
    """
    # Two tasks: the answer, and the client that may leave before it.
    answering = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_has_left(request))
    try:
        await asyncio.wait((answering, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        if leaving.done():
            raise ClientDisconnect

        message = f"no answer within {seconds:g} s: the server is slow or busy; try again later, or send less audio"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message)
    finally:
        cancellation.cancel()
        answering.cancel()
        leaving.cancel()
        # Both have ended before this returns, so nothing of a request outlives it.
        await asyncio.wait((answering, leaving))


async def _has_left(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
