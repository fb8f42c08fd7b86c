"""Sends a run's outcome to every receiver that the config names. What goes wrong is printed, a line each."""

import functools
import hashlib
import hmac
import threading
from collections.abc import Callable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from voxline.notify.event import RunEvent, RunIdentity
from voxline.notify.history import send_history
from voxline.notify.kserve import write_rollout
from voxline.notify.lineage import send_lineage
from voxline.notify.ml_metadata import record_in_mlmd
from voxline.notify.model_registries import register_in_kubeflow, register_in_mlflow
from voxline.notify.prometheus import check_answer, export_otlp, push_gauges, write_textfile
from voxline.notify.settings import NotifySettings, read_secret
from voxline.progress import print_status
from voxline.store.hashing import canonical_json

SIGNATURE = "X-Voxline-Signature-256"
RETRIED = (429, 500, 502, 503, 504)
"""Answers after which a request is repeated."""

Send = Callable[[RunEvent, NotifySettings, requests.Session], str]
"""Sends an event. Returns where to, for the log; empty if the receiver takes no event of this verdict."""


def send_webhook(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Posts the event as JSON; the header has the HMAC-SHA256 of the body, in hexadecimal, as GitHub writes it."""
    hook = settings.webhook

    # Canonical: the receiver hashes the same bytes, whatever the order of keys.
    body = canonical_json(event.to_dict()).encode()
    headers = {"Content-Type": "application/json", "X-Voxline-Event": "run", "X-Voxline-Delivery": event.run.id}
    if key := read_secret("notify.webhook", "key", hook.key_env, hook.key_file):
        headers[SIGNATURE] = f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}"

    check_answer(session.post(hook.url, data=body, headers=headers, timeout=settings.timeout_seconds))
    return hook.url


RECEIVERS: dict[str, Send] = {
    "history": send_history,
    "textfile": write_textfile,
    "pushgateway": push_gauges,
    "otlp": export_otlp,
    "webhook": send_webhook,
    "openlineage": send_lineage,
    "kubeflow_registry": register_in_kubeflow,
    "mlflow_registry": register_in_mlflow,
    "mlmd": record_in_mlmd,
    "kserve": write_rollout,
}
"""Key of `notify` → what sends to it."""


def announce_start(run: RunIdentity, settings: NotifySettings) -> None:
    """Sends that a run starts, to the one receiver that takes it."""
    if settings.openlineage.url:
        _attempt("openlineage", settings, lambda session: send_lineage(run, settings, session))


def announce_end(of: Callable[[], RunEvent], settings: NotifySettings) -> list[str]:
    """Sends how a run ended. Returns the receivers to which that failed.

    Args:
      of: makes the event; it reads outputs of steps, which may be in a bucket that does not respond.
    """
    try:
        event = of()
    except Exception as error:  # of a bucket, an output: the run is done, whatever happens here
        print_status(f"notify: nothing was sent, an output cannot be read: {type(error).__name__}: {error}")
        return list(settings.addresses())

    sends = {name: functools.partial(RECEIVERS[name], event, settings) for name in settings.addresses()}
    return [name for name, send in sends.items() if not _attempt(name, settings, send)]


def _attempt(name: str, settings: NotifySettings, send: Callable[[requests.Session], str]) -> bool:
    """Sends in a thread that is left behind at the deadline: a server that sends byte by byte meets every timeout."""
    # The thread and this function share only this list; a late outcome is dropped with the thread.
    ended: list[str | Exception] = []

    def deliver() -> None:
        try:
            with _session(settings) as session:
                ended.append(send(session))
        except Exception as error:  # of a server, a disk, a library: the run is done, whatever happens here
            ended.append(error)

    # A daemon: a thread that hangs must not keep the process alive.
    thread = threading.Thread(target=deliver, name=f"notify.{name}", daemon=True)
    thread.start()
    thread.join(settings.deadline_seconds())

    outcome = ended[0] if ended else TimeoutError(f"not done within {settings.deadline_seconds():g} seconds")
    if isinstance(outcome, Exception):
        text = " ".join(str(outcome).split()) or "no message"
        print_status(f"notify.{name}: not delivered: {type(outcome).__name__}: {text[:500]}")
        return False

    if outcome:
        print_status(f"notify.{name}: sent to {outcome}")
    return True


class _Session(requests.Session):  # type: ignore[misc]
    """Follows no redirect: a POST would be repeated as a GET without its body, and that answered with 200."""

    def request(self, *args: Any, **named: Any) -> requests.Response:
        return super().request(*args, **{**named, "allow_redirects": False})


def _session(settings: NotifySettings) -> requests.Session:
    """A session that repeats a request while the server is unavailable, with waits that double from half a second."""
    session = _Session()

    retries = Retry(
        settings.attempts - 1, backoff_factor=0.5, status_forcelist=RETRIED, allowed_methods=None,
        respect_retry_after_header=False, raise_on_status=False,
    )  # fmt: skip

    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    return session
