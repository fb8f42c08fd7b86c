"""Starts the server: loads the models, follows the registry, and listens until a signal."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from voxline.errors import SettingsError, WorkError
from voxline.feedback.canary_state import CanarySettings
from voxline.inference.pauses import LEVEL, pause_finder
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_info
from voxline.inference.written_transcript import WritingChoices
from voxline.progress import print_status
from voxline.registry.journal import PRODUCTION
from voxline.registry.models import model_names
from voxline.registry.registry import Registry
from voxline.serving.access import Access, AccessSettings, check_bound
from voxline.serving.app import RecognizerServer
from voxline.serving.canary import Canary
from voxline.serving.capture import Capture, CaptureSettings
from voxline.serving.connections import WEBSOCKETS, HttpConnection
from voxline.serving.followed_model import FollowedModel
from voxline.serving.health import HealthServer
from voxline.serving.limits import ServingLimits

_THREAD_SECONDS = 1.0
"""In which the threads of the server must have ended after its last request."""


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
    pauses: str = LEVEL,
    writing: WritingChoices | None = None,
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
      pauses: at which recordings are cut; see `voxline.inference.pauses`.
      writing: the form of transcripts, where a request does not say; None: as they are heard.

    Raises:
      SettingsError: strangers could call, or an option is wrong.
      WorkError: nothing to serve, or no model can be served. One that cannot does not keep the others.
    """
    settings = access or AccessSettings()

    # Everything that can be refused is refused before a port is open.
    check_bound(host, settings, anonymous=allow_anonymous)
    checks = Access(settings, host)
    if len(set(names)) < len(names):
        raise SettingsError(f"--model: {', '.join(names)}; name each model once")

    pause_finder(pauses)
    models = [
        FollowedModel(root, name, pauses=pauses, may_start_empty=True, pace=limits.pace)
        for name in names or recognizers(root)
    ]
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
        clip_settings = capture.settings
        share = f"{clip_settings.share:.1%}" if clip_settings.share else "none"
        print_status(
            f"serve: keeps {share} of the recordings whose callers agree, "
            f"for {clip_settings.days} days, in {clip_settings.location}"
        )

    # Only models in production have a canary.
    followed = [model for model in models if model.reference.partition("@")[2] in ("", PRODUCTION)]
    canaries = [Canary(root, model, canary, limits) for model in followed] if canary and canary.share else []
    for canary_of_model in canaries:
        canary_of_model.follow(follow_seconds)

    server = RecognizerServer(models, limits, capture, canaries, checks, writing)
    options = uvicorn_options(limits)
    health = None if health_port is None else HealthServer(server.health, checks, host, health_port, options)
    if health:
        print_status(f"serve: /healthz and /metrics also at http://{host}:{health.port}")

    uvicorn.run(server.app, host=host, port=port, **options)
    if health:
        health.stop()

    # A thread that hangs, as one of a candidate may, would keep the process from ending.
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
    names = []
    for name in model_names(root):
        registry = Registry(root, name)
        try:
            version = registry.in_service()
            if version is not None and read_model_info(registry.path(version)).family == "asr":
                names.append(name)
        except (WorkError, OSError):
            names.append(name)  # it may be one, and /healthz says what is wrong with it
    if not names:
        raise WorkError(f"{root}: no recognizer is in production here; push one, or promote a candidate")
    return names


def _threads_end(seconds: float) -> bool:
    """Waits for threads; returns whether all that Python would wait for end in time."""
    end = time.monotonic() + seconds
    here = threading.current_thread()
    threads = [
        thread for thread in threading.enumerate() if not (thread.daemon or thread in (here, threading.main_thread()))
    ]

    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    return not any(thread.is_alive() for thread in threads)
