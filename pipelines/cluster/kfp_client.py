"""kfp.Client, made patient, silent, and deaf to what lies in a person's home folder."""

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


class KfpServer:
    """A KFP server, as this account sees it."""

    def __init__(self, access: KfpEndpoint, *, deadline: float = DEADLINE_SECONDS) -> None:
        """Nothing is asked yet.

        Args:
          deadline: seconds that one answer may take, retries included.
        """
        self.access = access
        self.client = _client(access)
        self.api = self.client.runs.api_client
        self.calls = RetryingCalls(access, self.api.rest_client.request, deadline)
        self.api.request = self.calls
        self._health: dict[str, Any] | None = None

    def health(self) -> dict[str, Any]:
        """What the server says of itself: `tag_name`, `commit_sha`, `multi_user`.

        Raises:
          WorkError: something answers, and it is no KFP server.
        """
        if self._health is None:
            try:
                answer = self.get("/apis/v2beta1/healthz")
            except RequestRefusedError as refusal:
                if refusal.status != HTTPStatus.NOT_FOUND:
                    raise
                answer = None
            if not isinstance(answer, dict) or "multi_user" not in answer:
                raise WorkError(
                    f"{self.access.host}: something answers, and it is no KFP server; give the address of ml-pipeline, "
                    "or of a gateway with its path, such as https://kubeflow.example.com/pipeline"
                )
            self._health = answer
        return self._health

    @property
    def namespace(self) -> str | None:
        """For calls: None on a server of one user, which refuses to hear of namespaces.

        Raises:
          WorkError: the server has several users, and no namespace was given.
        """
        if not self.health()["multi_user"]:
            return None
        if not self.access.namespace:
            raise WorkError(
                f"{self.access.host}: the server has several users, and no namespace is given; "
                "say --namespace or VOXLINE_KFP_NAMESPACE"
            )
        return self.access.namespace

    def get(self, path: str, query: dict[str, str] | None = None) -> Any:
        """The JSON at a path that the generated client does not have, or of which it drops keys."""
        return self.api.call_api(
            path, "GET", query_params=list((query or {}).items()), auth_settings=["Bearer"],
            header_params={"Accept": "application/json"}, response_type="object", _return_http_data_only=True,
        )  # fmt: skip

    def page(self, kind: str, path: str) -> str:
        """The address of a page of the UI."""
        return f"{self.access.host}/#/{kind}/details/{path}"


class _SilentClient(Client):  # type: ignore[misc]  # kfp has no types
    """kfp.Client without `~/.config/kfp/context.json`: a cookie and a namespace of some earlier day lie there."""

    def _load_context_setting_or_default(self) -> None:
        self._context_setting = {"namespace": ""}

    def set_user_namespace(self, namespace: str) -> None:
        self._context_setting["namespace"] = namespace


def _client(access: KfpEndpoint) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "only works with v2": it is said at every start
        # A namespace is always given here, or kfp would ask the server for it at once, five times, and log tracebacks.
        client = _SilentClient(
            host=access.host,
            namespace="-",
            existing_token=access.token.read() if access.token else None,
            ssl_ca_cert=access.ca or None,
            ui_host=access.host,
        )
    client.set_user_namespace(access.namespace)
    api = client.runs.api_client
    # Retries are ours alone, and a redirection is a login page: it is told, not followed with the token in hand.
    api.configuration.retries = False
    if token := access.token:

        def read_anew(configuration: Any) -> None:
            configuration.api_key["authorization"] = token.read()

        api.configuration.refresh_api_key_hook = read_anew
    api.rest_client = kfp_server_api.rest.RESTClientObject(api.configuration)
    return client


EQUALS = 1
"""`Predicate.operation` of KFP's filters."""
PAGE_SIZE = 100


def list_all(method: Callable[..., Any], key: str, **asked: Any) -> Iterator[Any]:
    """All items of a listing, oldest first.

    Args:
      method: of the generated client, such as `run_service_list_runs`.
      key: of the answer, that holds the items.
    """
    token = ""
    while True:
        answer = method(page_size=PAGE_SIZE, page_token=token, sort_by="created_at asc", **asked)
        yield from getattr(answer, key) or []
        token = answer.next_page_token or ""
        if not token:
            return


def list_named(method: Callable[..., Any], key: str, name: str, **asked: Any) -> list[Any]:
    """All items whose display name is exactly that, oldest first."""
    predicate = {"operation": EQUALS, "key": "display_name", "stringValue": name}
    return list(list_all(method, key, filter=json.dumps({"predicates": [predicate]}), **asked))


def find_named(method: Callable[..., Any], key: str, name: str, **asked: Any) -> Any | None:
    """The oldest item of that name, or None."""
    return next(iter(list_named(method, key, name, **asked)), None)
