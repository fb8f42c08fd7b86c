"""A client of a KFP server: kfp.Client with timeouts, retries up to a deadline, and clear errors.

Reads, deletes and calls such as `…:enable` are retried. A call that creates is never repeated blindly, because the lost
response may belong to a created object: `RetryingCalls.once` looks for it first.
"""

import json
import random
import time
import warnings
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar

import kfp_server_api
import urllib3
from kfp.client import Client
from kfp_server_api.exceptions import ApiException

from voxline.errors import TransientError, WorkError
from voxline.pipelines.cluster.access import TOKEN_FILE, KfpEndpoint, parse_version


def printable(line: str) -> str:
    """The line without control characters, which could come from the name of a recording.

    >>> printable("a" + chr(27) + "[31mb")
    'a�[31mb'
    """
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in line)


DEADLINE_SECONDS = 120.0
"""For one response, retries included."""
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BUSY_STATUSES = (429, 502, 503, 504)
INTERNAL_TRIES = 3
"""A KFP server returns 500 for transient database errors and for requests that will never work."""

T = TypeVar("T")


class RequestRefusedError(WorkError):
    """The server refused the request."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NoResponse(TransientError):  # noqa: N818
    """The server did not respond before the deadline; whether it acted is unknown."""


class RetryingCalls:
    """Replaces `request` of the generated client, so that every call is retried."""

    def __init__(self, access: KfpEndpoint, send: Callable[..., Any], deadline: float = DEADLINE_SECONDS) -> None:
        self._access = access
        self._send = send
        self._deadline = deadline

    def __call__(self, method: str, url: str, **arguments: Any) -> Any:
        """One call.

        Raises:
          RequestRefusedError: the server refused.
          NoResponse: the deadline has passed; for a call that creates, after the first failure.
        """
        # A POST to `…/ID:enable` sets a state, so the second one changes nothing; any other POST creates an object.
        repeatable = method in ("GET", "HEAD", "DELETE") or ":" in url.rpartition("/")[2]
        until = time.monotonic() + self._deadline
        tries = 0
        while True:
            tries += 1
            # The last try still gets a second: the client refuses a timeout of 0.
            seconds_left = max(until - time.monotonic(), 1.0)
            timeouts = (min(CONNECT_SECONDS, seconds_left), min(READ_SECONDS, seconds_left))
            try:
                return self._send(method, url, **{**arguments, "_request_timeout": timeouts})
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
        """The result of `find`, else of `create`. Creates at most once, even if responses are lost.

        Args:
          find: looks for the object by a unique name.
        """
        until = time.monotonic() + self._deadline
        tries = 0
        while True:
            tries += 1
            # Before each creation, because the one before it may have succeeded although its response was lost.
            existing = find()
            if existing is not None:
                return existing

            try:
                return create()
            except NoResponse:
                pause = _pause(tries)
                if time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
            except RequestRefusedError as refusal:
                # A conflict at the first try: another command has just created it, and the next `find` has it.
                if refusal.status != HTTPStatus.CONFLICT or tries > 1:
                    raise

    def _unanswered(self, fault: str, tries: int) -> str:
        return (
            f"{self._access.host}: no response after {tries} tr{'y' if tries == 1 else 'ies'}: {fault}; "
            "check the server and its address (`voxline doctor`), then run the same command again"
        )

    def _refusal(self, error: ApiException, method: str, url: str) -> WorkError:
        message = self._access.without_token(_server_message(error.body))
        path = url.removeprefix(self._access.host).partition("?")[0]
        return RequestRefusedError(
            f"{self._access.host}: {self._explain(error, message)} ({method} {path})", error.status or 0
        )

    def _explain(self, error: ApiException, message: str) -> str:
        token = self._access.token
        namespace = self._access.namespace
        # The generated client gives status 0 to a failed TLS handshake, and to nothing else that gets here.
        if error.status == 0:
            return f"TLS failed: {' '.join((error.reason or '').split())}; --ca names the authority's PEM file"

        # Gateways with a login page (Dex, IAP) redirect to it where an API would answer 401.
        if 300 <= error.status < 400:
            return f"{error.status}: it redirects to a login page; give a token by {TOKEN_FILE} or --token-file"

        if error.status == HTTPStatus.UNAUTHORIZED:
            reason = (
                f"the token of {token.source} was not accepted; it may have expired" if token else "it requires a token"
            )
            return f"401: {reason}; give one by {TOKEN_FILE} or --token-file. {message}"
        if error.status == HTTPStatus.FORBIDDEN:
            action = f"do this in namespace {namespace!r}" if namespace else "do this"
            fix = "ask for the role, or give another --namespace"
            return f"403: this account is not allowed to {action}; {fix}. {message}"
        return f"{error.status} {error.reason}: {message}"


def _is_transient(status: int | None, tries: int) -> bool:
    return status in BUSY_STATUSES or (status == HTTPStatus.INTERNAL_SERVER_ERROR and tries < INTERNAL_TRIES)


def _pause(tries: int) -> float:
    """Seconds: doubling, with jitter, at most 8."""
    return min(0.25 * 2.0**tries, 8.0) * random.uniform(0.5, 1.0)


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.partition(": ")[2] or text or type(error).__name__


def _server_message(body: Any) -> str:
    """The error message in a server's JSON, at most 500 characters."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    try:
        content = json.loads(text)
        text = str(content.get("error_message") or content.get("message") or content.get("error") or text)
    except (ValueError, AttributeError):
        text = "" if "<html" in text.lower() else text
    return printable(" ".join(text.split())[:500])


class KfpServer:
    """A KFP server."""

    def __init__(self, access: KfpEndpoint, *, deadline: float = DEADLINE_SECONDS) -> None:
        """Sends no request yet.

        Args:
          deadline: seconds for one response, retries included.
        """
        self.access = access
        self.client = _client(access)
        self.api = self.client.runs.api_client
        self.calls = RetryingCalls(access, self.api.rest_client.request, deadline)
        self.api.request = self.calls
        self._health: dict[str, Any] | None = None

    def health(self) -> dict[str, Any]:
        """The server's description of itself: `tag_name`, `commit_sha`, `multi_user`.

        Raises:
          WorkError: the host is not a KFP server.
        """
        if self._health is None:
            try:
                answer = self.get("/apis/v2beta1/healthz")
            except RequestRefusedError as refusal:
                if refusal.status != HTTPStatus.NOT_FOUND:
                    raise
                answer = None

            # Any web server answers something at this path; only KFP's says whether it has several users.
            if not isinstance(answer, dict) or "multi_user" not in answer:
                raise WorkError(
                    f"{self.access.host}: this is not a KFP server; give the URL of ml-pipeline, "
                    "or of a gateway with its path, such as https://kubeflow.example.com/pipeline"
                )
            self._health = answer
        return self._health

    @property
    def version(self) -> tuple[int, ...]:
        """Such as (2, 17, 0); empty for a build without a version."""
        return parse_version(str(self.health().get("tag_name") or ""))

    @property
    def namespace(self) -> str | None:
        """The namespace for calls; None on a single-user server, which refuses namespaces.

        Raises:
          WorkError: the server has several users, and no namespace was given.
        """
        if not self.health()["multi_user"]:
            return None
        if not self.access.namespace:
            raise WorkError(
                f"{self.access.host}: the server has several users, but no namespace is given; "
                "give --namespace or VOXLINE_KFP_NAMESPACE"
            )
        return self.access.namespace

    def get(self, path: str, query: dict[str, str] | None = None) -> Any:
        """The JSON at a path that the generated client does not know, or whose keys it drops."""
        return self.api.call_api(
            path, "GET", query_params=list((query or {}).items()), auth_settings=["Bearer"],
            header_params={"Accept": "application/json"}, response_type="object", _return_http_data_only=True,
        )  # fmt: skip

    def page(self, kind: str, path: str) -> str:
        """The URL of a page of the UI."""
        return f"{self.access.host}/#/{kind}/details/{path}"


class _SilentClient(Client):  # type: ignore[misc]  # kfp has no types
    """kfp.Client without `~/.config/kfp/context.json`, which may hold an old cookie and namespace."""

    def _load_context_setting_or_default(self) -> None:
        self._context_setting = {"namespace": ""}

    def set_user_namespace(self, namespace: str) -> None:
        self._context_setting["namespace"] = namespace


def _client(access: KfpEndpoint) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "only works with v2", at every start
        # Without a namespace kfp would ask the server for it at once, five times, and log tracebacks.
        client = _SilentClient(
            host=access.host,
            namespace="-",
            existing_token=access.token.read() if access.token else None,
            ssl_ca_cert=access.ca or None,
            ui_host=access.host,
        )
    client.set_user_namespace(access.namespace)

    api = client.runs.api_client
    # RetryingCalls retries. A redirection leads to a login page: it is reported, not followed with the token.
    api.configuration.retries = False

    # The generated client calls this hook before each request, so that a replaced token is used at once.
    if token := access.token:

        def read_token(configuration: Any) -> None:
            configuration.api_key["authorization"] = token.read()

        api.configuration.refresh_api_key_hook = read_token
    # Made again, because the first one has read the configuration before these changes.
    api.rest_client = kfp_server_api.rest.RESTClientObject(api.configuration)
    return client


EQUALS = 1
"""`Predicate.operation` of KFP's filters."""
PAGE_SIZE = 100


def list_all(method: Callable[..., Any], key: str, *, page_size: int = PAGE_SIZE, **query: Any) -> Iterator[Any]:
    """All items of a listing, oldest first; those that were created in the same second are in any order.

    Args:
      method: a method of the generated client, such as `run_service_list_runs`.
      key: attribute of the response that holds the items.
    """
    # By creation: an item that is created between two pages comes last, and moves no other to a page already read.
    token = ""
    while True:
        response = method(page_size=page_size, page_token=token, sort_by="created_at asc", **query)
        yield from getattr(response, key) or []
        token = response.next_page_token or ""
        if not token:
            return


def list_named(method: Callable[..., Any], key: str, name: str, **query: Any) -> list[Any]:
    """All items with exactly this display name, oldest first."""
    predicate = {"operation": EQUALS, "key": "display_name", "stringValue": name}
    return list(list_all(method, key, filter=json.dumps({"predicates": [predicate]}), **query))


def find_named(method: Callable[..., Any], key: str, name: str, **query: Any) -> Any | None:
    """The oldest item with this name, or None."""
    return next(iter(list_named(method, key, name, **query)), None)
