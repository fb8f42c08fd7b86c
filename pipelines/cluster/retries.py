"""Calls of a server that may be slow, restarting or cut off: timeouts, retries up to a deadline, and clear refusals.

What may be repeated is: reading, deleting, and `…:enable` and the like. What creates is never repeated blindly: an
answer that was lost may belong to something that was made, so `once` looks for it first.
"""

import json
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import urllib3
from kfp_server_api.exceptions import ApiException

from voxline.errors import TransientError, WorkError
from voxline.pipelines.cluster.access import TOKEN_FILE, KfpEndpoint


def printable(line: str) -> str:
    """A line without what would steer a terminal: recordings have names, and names may be anything.

    >>> printable("a" + chr(27) + "[31mb")
    'a�[31mb'
    """
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in line)


DEADLINE_SECONDS = 120.0
"""Seconds for one answer, retries included."""
CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
BUSY_STATUSES = (429, 502, 503, 504)
INTERNAL_TRIES = 3
"""A KFP server says 500 to a database that hiccups, and to what it will never do."""

T = TypeVar("T")


class RequestRefusedError(WorkError):
    """The server has answered, and the answer is no."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NoResponse(TransientError):  # noqa: N818
    """The server has not answered, or was busy, up to the deadline; whether it acted is not known."""


class RetryingCalls:
    """Stands in for the `request` of the generated client; all its calls go through here."""

    def __init__(self, access: KfpEndpoint, send: Callable[..., Any], deadline: float = DEADLINE_SECONDS) -> None:
        self._access, self._send, self._deadline = access, send, deadline

    def __call__(self, method: str, url: str, **given: Any) -> Any:
        """One call.

        Raises:
          RefusalError: the server says no.
          NoAnswer: the deadline has passed; for what creates, the first failure.
        """
        repeatable = method in ("GET", "HEAD", "DELETE") or ":" in url.rpartition("/")[2]
        until, tries = time.monotonic() + self._deadline, 0
        while True:
            tries += 1
            left = max(until - time.monotonic(), 1.0)
            try:
                return self._send(
                    method, url, **{**given, "_request_timeout": (min(CONNECT_SECONDS, left), min(READ_SECONDS, left))}
                )
            except ApiException as error:
                fault = f"{error.status} {error.reason}"
                if not _is_transient(error.status, tries):
                    raise self._refusal(error, method, url) from None
            except urllib3.exceptions.HTTPError as error:
                fault = _error_text(error)
            pause = _pause(tries)
            if not repeatable or time.monotonic() + pause > until:
                raise NoResponse(self._access.without_token(self._unanswered(fault, tries))) from None
            time.sleep(pause)

    def once(self, find: Callable[[], T | None], create: Callable[[], T]) -> T:
        """What `find` finds, else what `create` creates; once, though answers get lost.

        Args:
          find: looks by a name that nobody else gives.
        """
        until, tries = time.monotonic() + self._deadline, 0
        while True:
            tries += 1
            found = find()
            if found is not None:
                return found
            try:
                return create()
            except NoResponse:
                pause = _pause(tries)
                if time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
            except RequestRefusedError as refusal:
                if refusal.status != HTTPStatus.CONFLICT or tries > 1:
                    raise

    def _unanswered(self, fault: str, tries: int) -> str:
        return (
            f"{self._access.host}: no answer after {tries} tr{'y' if tries == 1 else 'ies'}: {fault}; "
            "look whether the server is up and the address is right (`voxline doctor`), then start this again"
        )

    def _refusal(self, error: ApiException, method: str, url: str) -> WorkError:
        said = self._access.without_token(_server_message(error.body))
        path = url.removeprefix(self._access.host).partition("?")[0]
        return RequestRefusedError(
            f"{self._access.host}: {self._meaning(error, said)} ({method} {path})", error.status or 0
        )

    def _meaning(self, error: ApiException, said: str) -> str:
        token, namespace = self._access.token, self._access.namespace
        if error.status == 0:
            return f"TLS failed: {' '.join((error.reason or '').split())}; --ca names the authority's PEM file"
        if 300 <= error.status < 400:
            return f"{error.status}: it sends us to a login page; give a token by {TOKEN_FILE} or --token-file"
        if error.status == HTTPStatus.UNAUTHORIZED:
            whose = f"the token of {token.source} is not accepted; it may have expired" if token else "it wants a token"
            return f"401: {whose}; give one by {TOKEN_FILE} or --token-file. {said}"
        if error.status == HTTPStatus.FORBIDDEN:
            where = f"in namespace {namespace!r}" if namespace else "here"
            return f"403: this account may not do that {where}; ask for the role, or give another --namespace. {said}"
        return f"{error.status} {error.reason}: {said}"


def _is_transient(status: int | None, tries: int) -> bool:
    return status in BUSY_STATUSES or (status == HTTPStatus.INTERNAL_SERVER_ERROR and tries < INTERNAL_TRIES)


def _pause(tries: int) -> float:
    """Seconds: doubling, with jitter, 8 at most."""
    return min(0.25 * 2.0**tries, 8.0) * random.uniform(0.5, 1.0)


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.partition(": ")[2] or text or type(error).__name__


def _server_message(body: Any) -> str:
    """What a server's JSON says went wrong, the first 500 characters."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    try:
        told = json.loads(text)
        text = str(told.get("error_message") or told.get("message") or told.get("error") or text)
    except (ValueError, AttributeError):
        text = "" if "<html" in text.lower() else text
    return printable(" ".join(text.split())[:500])
