"""Errors in OpenAI's form, of every route, and the JSON that a client sends."""

import json
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

RETRY_SECONDS = {HTTPStatus.TOO_MANY_REQUESTS: 1, HTTPStatus.SERVICE_UNAVAILABLE: 10}
"""After which a client may try again, by the status of its answer."""


class RefusedError(Exception):
    """A request that is answered with an error in OpenAI's form."""

    def __init__(self, status: HTTPStatus, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


def read_json_object(data: str | bytes) -> dict[str, Any] | None:
    """The object that a client sent; None for anything else, such as arrays nested deeper than Python can read.

    >>> read_json_object('{"type": "finish"}'), read_json_object("[" * 100_000), read_json_object(b"\\xff")
    ({'type': 'finish'}, None, None)
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


async def answer_known(_: Request, error: Exception) -> Response:
    """Starlette's own refusals, such as of a route or a method that is not here."""
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for these
    response = error_response(HTTPStatus(error.status_code), str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def answer_unexpected(_: Request, __: Exception) -> Response:
    """Says nothing of what failed; the traceback goes to the server's log."""
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed on this request; its log says why")


def error_response(status: HTTPStatus, message: str, param: str | None = None) -> Response:
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    code = "rate_limit_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else None
    # The name of a field is the client's, and may hold what UTF-8 has no bytes for.
    param = param and param.encode(errors="replace").decode()
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    headers = {}
    if seconds := RETRY_SECONDS.get(status):
        headers["retry-after"] = str(seconds)
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["connection"] = "close"  # what the client still sends is not read
    return JSONResponse(body, status_code=int(status), headers=headers)
