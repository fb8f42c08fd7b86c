"""kfp.Client, made patient, silent, and deaf to what lies in a person's home folder."""

import json
import warnings
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import kfp_server_api
from kfp.client import Client

from voxline.errors import WorkError
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.retries import DEADLINE_SECONDS, RequestRefusedError, RetryingCalls


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
