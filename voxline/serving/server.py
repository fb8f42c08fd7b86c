"""Starts the server: loads the models, follows the registry, and listens until a signal."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from voxline.errors import SettingsError, WorkError
from voxline.feedback.canary_state import CanarySettings
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_json
from voxline.progress import print_status
from voxline.registry.journal import PRODUCTION
from voxline.registry.models import model_names
from voxline.registry.registry import Registry
from voxline.serving.access import Access, AccessSettings, check_bound
from voxline.serving.app import RecognizerServer
from voxline.serving.canary import Canary
from voxline.serving.capture import Capture, CaptureSettings
from voxline.serving.followed_model import FollowedModel
from voxline.serving.health import HealthServer
from voxline.serving.limits import ServingLimits
from voxline.serving.realtime import MESSAGE_BYTES

HEAD_SECONDS = 15.0
"""In which a connection must have sent the head of its next request."""
_THREAD_SECONDS = 1.0
"""In which the threads of the server must have ended after its last request."""


class HttpConnection(H11Protocol):
    """Closes a connection that sends no whole head of a request in time.

    uvicorn itself would wait for ever, and answers 503 to all while too many connections are open.
    """

    head_seconds = HEAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head(self.cycle)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()  # may begin with the next request
        self._expect_head(answered)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        if self._head_timer:
            self._head_timer.cancel()  # the session has limits of its own
        super().handle_websocket_upgrade(event)

    def _expect_head(self, last: object) -> None:
        if self._head_timer:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self.head_seconds, self._close_if_last, last)

    def _close_if_last(self, last: object) -> None:
        if self.cycle is last:
            self.transport.close()


class SessionConnection(WebSocketsSansIOProtocol):
    """Logs no error for a session that was refused: for uvicorn one lacks an answer until its connection is closed,
    which is after the application has returned.
    """

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


WEBSOCKETS: dict[str, Any] = {"ws": SessionConnection, "ws_max_size": MESSAGE_BYTES, "ws_ping_interval": None}
"""uvicorn's options. It reads nothing while a message is computed, pongs neither, and would close a session whose
message takes longer than its pings may. `idle_seconds` of the limits ends those whose client has gone."""


def uvicorn_options(limits: ServingLimits) -> dict[str, Any]:
    """uvicorn's options for a server with these limits."""
    return {
        "http": HttpConnection, "log_level": "warning", "access_log": False, "timeout_graceful_shutdown": 30,
        "timeout_keep_alive": 15, "limit_concurrency": 4 * limits.uploads, **WEBSOCKETS,
    }  # fmt: skip


def run_server(
    root: Path | str,
    names: Sequence[str],
    host: str,
    port: int,
    follow_seconds: float,
    limits: ServingLimits,
    captures: CaptureSettings | None = None,
    canary: CanarySettings | None = None,
    verify_minutes: float = 60.0,
    access: AccessSettings | None = None,
    allow_anonymous: bool = False,
    health_port: int | None = None,
) -> None:
    """Serves models until SIGINT or SIGTERM, which lets running requests end. If a call hangs then, as one of a
    candidate may, the process ends here: Python would wait for its thread.

    Args:
      names: of the models, with `@candidate` or a version if wanted; empty: all recognizers in production.
      captures: what is kept of recordings; None for nothing. With a share of 0, what was kept still expires.
      canary: of each model in production; None, or a share of 0, for none.
      verify_minutes: between two looks at the files of what serves; 0 for none.
      access: who may call.
      allow_anonymous: whether others may reach a server without keys.
      health_port: where `/healthz` and `/metrics` are answered as well, whatever the load; 0 for any free port, None
        for no such port.

    Raises:
      SettingsError: strangers could call, or an option is wrong.
      WorkError: nothing to serve, or no model can be served. One that cannot does not keep the others.
    """
    settings = access or AccessSettings()
    check_bound(host, settings, anonymous=allow_anonymous)
    checks = Access(settings, host)
    if len(set(names)) < len(names):
        raise SettingsError(f"--model: {', '.join(names)}; name each model once")
    models = [FollowedModel(root, name, may_start_empty=True) for name in names or recognizers(root)]
    if not any(model.current for model in models) and any(model.fault for model in models):
        faults = "; ".join(model.fault or f"{model.reference}: {model.absent}" for model in models)
        raise WorkError(f"no model can be served: {faults}")
    for model in models:
        if served := model.current:
            engine: str = served.engine.engine
            engine += "" if engine == "onnx" else "; train.export.onnx starts faster and needs no TensorFlow"
            if not isinstance(served.engine, Recognizer):
                engine = f"a voice, {engine}"
            print_status(f"serve: {model.reference}, version {served.version} ({engine})")
        elif model.absent:
            print_status(f"serve: {model.reference}: {model.absent}; it is picked up when there is one")
        model.follow(follow_seconds)
        if verify_minutes:
            model.verify_every(verify_minutes)
    print_status(f"serve: http://{host}:{port}")
    capture = Capture(captures) if captures and captures.location else None
    if capture:
        kept = capture.settings
        share = f"{kept.share:.1%}" if kept.share else "none"
        print_status(
            f"serve: keeps {share} of the recordings whose callers agree, for {kept.days} days, in {kept.location}"
        )
    followed = [model for model in models if model.reference.partition("@")[2] in ("", PRODUCTION)]
    canaries = [Canary(root, model, canary, limits) for model in followed] if canary and canary.share else []
    for one in canaries:
        one.follow(follow_seconds)
    server = RecognizerServer(models, limits, capture, canaries, checks)
    options = uvicorn_options(limits)
    health = None if health_port is None else HealthServer(server.health, checks, host, health_port, options)
    if health:
        print_status(f"serve: /healthz and /metrics also at http://{host}:{health.port}")
    uvicorn.run(server.app, host=host, port=port, **options)
    if health:
        health.stop()
    if not _threads_end(_THREAD_SECONDS):
        print_status("serve: ends, though a call has not")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def recognizers(root: Path | str) -> list[str]:
    """The names of the ASR models of a registry that are in production.

    Raises:
      WorkError: there is none, and no model that is damaged.
    """
    found = []
    for name in model_names(root):
        registry = Registry(root, name)
        try:
            version = registry.in_service()
            if version is not None and read_model_json(registry.path(version))["family"] == "asr":
                found.append(name)
        except (WorkError, OSError):
            found.append(name)  # it may be one, and /healthz says what is wrong with it
    if not found:
        raise WorkError(f"{root}: no recognizer is in production here; push one, or promote a candidate")
    return found


def _threads_end(seconds: float) -> bool:
    """Whether all threads that Python would wait for end in time."""
    end, here = time.monotonic() + seconds, threading.current_thread()
    others = [one for one in threading.enumerate() if not (one.daemon or one in (here, threading.main_thread()))]
    for one in others:
        one.join(max(end - time.monotonic(), 0.0))
    return not any(one.is_alive() for one in others)
