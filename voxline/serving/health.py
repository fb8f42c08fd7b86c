"""What probes and Prometheus read: `/healthz` and `/metrics`, on the server's port and on one of their own.

The port of their own (`--health-port`) is answered by another thread and event loop, so a probe gets its answer while
the server's loop has more to do than it can. A liveness probe must still see a loop that hangs: it writes down the time
once a second, and when it has not for `STALLED_SECONDS` the answer is 503.
"""

import asyncio
import contextlib
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any

import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from voxline.errors import SettingsError
from voxline.inference.synthesizer import Synthesizer
from voxline.serving.access import CALLER, Access
from voxline.serving.canary import Canary
from voxline.serving.followed_model import FollowedModel
from voxline.serving.limits import ServingLimits
from voxline.serving.metrics import ServerMetrics
from voxline.serving.refusals import answer_known, answer_unexpected

STALLED_SECONDS = 30.0
"""Without a turn of the server's event loop, after which it answers nobody."""
_BEAT_SECONDS = 1.0


class Health:
    """The state of a server.

    Args:
      pending: recordings that are computed or wait.
    """

    def __init__(
        self,
        models: Mapping[str, FollowedModel],
        canaries: Mapping[str, Canary],
        metrics: ServerMetrics,
        limits: ServingLimits,
        access: Access,
        pending: Callable[[], int],
    ) -> None:
        self._models = models
        self._canaries = canaries
        self._metrics = metrics
        self._limits = limits
        self._access = access
        self._pending = pending
        self._beat = time.monotonic()

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Writes down the time while the event loop turns."""

        async def beat() -> None:
            while True:
                self._beat = time.monotonic()
                await asyncio.sleep(_BEAT_SECONDS)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()

    def routes(self, *, to_all: bool = False) -> list[Route]:
        """`/healthz` and `/metrics`.

        Args:
          to_all: whether callers without a key may read which models are served.
        """

        async def health(request: Request) -> Response:
            # Which models are served is not for everybody.
            status, values = self.describe()
            if self._access.keys and not to_all and not request.scope.get(CALLER):
                values = {"status": values["status"]}
            return JSONResponse(values, status_code=status)

        async def metrics(_: Request) -> Response:
            return Response(self._metrics.text(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

        return [Route("/healthz", health), Route("/metrics", metrics)]

    def describe(self) -> tuple[int, dict[str, Any]]:
        """The status of the answer, and what it says.

        "degraded", with 200, where requests are answered though something is wrong: a model has a fault, such as a
        version that cannot be loaded, the files of the version that serves were damaged after it was loaded, there is
        no room for a recording, or a changed key file cannot be read.
        """
        models = {
            name: {**describe_model(model), "fault": model.fault, "absent": model.absent, "damage": model.damage}
            for name, model in self._models.items()
        }

        for name, canary in self._canaries.items():
            models[name]["canary"] = canary.describe()

        # Faults of the server, then those of its models.
        faults = [self._room_fault(), self._access.keys.fault if self._access.keys else ""]
        # An alias that no version has is no fault.
        degraded = [model.fault or model.damage for model in self._models.values()]
        degraded += [canary.fault for canary in self._canaries.values()]

        # The time was written down by the server's loop, and is read here by another thread.
        stalled = time.monotonic() - self._beat
        status = "degraded" if any(faults + degraded) else "ok"
        code = HTTPStatus.OK
        if stalled > STALLED_SECONDS:
            status = "stalled"
            code = HTTPStatus.SERVICE_UNAVAILABLE
            faults.append(f"the event loop has not turned for {stalled:.0f} s")

        values = {"status": status, "pending": self._pending(), "faults": list(filter(None, faults)), "models": models}
        return code, values

    def _room_fault(self) -> str:
        folder = tempfile.gettempdir()

        # The upload, and a copy for the decoder.
        needed = 2 * self._limits.max_bytes
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            return f"{folder}: {error.strerror}"
        if free >= needed:
            return ""
        return f"{folder}: {free / 1e6:,.1f} MB are free; the largest recording needs {needed / 1e6:,.1f} MB"


class HealthServer:
    """Answers `/healthz` and `/metrics` on another port, from a thread of its own.

    Args:
      options: uvicorn's, as the server has them.

    Raises:
      SettingsError: the port cannot be listened on.
    """

    def __init__(self, health: Health, access: Access, host: str, port: int, options: dict[str, Any]) -> None:
        unlocked = Access(access.settings, access.bound)  # names are checked, keys are not: probes have none
        unlocked.keys = None
        app = Starlette(
            routes=health.routes(to_all=True),
            middleware=unlocked.middleware()[:1],
            exception_handlers={HTTPException: answer_known, Exception: answer_unexpected},
        )

        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise SettingsError(f"--health-port {port}: {error.strerror}") from None
        self.port = self._socket.getsockname()[1]

        self._uvicorn = uvicorn.Server(uvicorn.Config(app, lifespan="off", **options))
        self._thread = threading.Thread(target=self._uvicorn.run, args=([self._socket],), name="health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends within about a second."""
        self._uvicorn.should_exit = True
        self._thread.join(5)


def describe_model(model: FollowedModel) -> dict[str, Any]:
    """A model as `/v1/models` has it."""
    served = model.current
    speakers = served.engine.speakers if served and isinstance(served.engine, Synthesizer) else ()
    return {
        "id": model.reference,
        "object": "model",
        "created": int(served.loaded) if served else 0,
        "owned_by": "voxline",
        "family": ("tts" if isinstance(served.engine, Synthesizer) else "asr") if served else None,
        "version": served.version if served else None,
        "digest": served.digest if served else None,
        "degraded": _describe_fault(model) if model.fault else None,
        **({"speakers": list(speakers)} if speakers else {}),
    }


def _describe_fault(model: FollowedModel) -> str:
    """Explains to callers why another version than the registry's serves, without the paths of /healthz."""
    if model.named is None:
        return "the registry does not say which version is in production"
    return f"version {model.named}, which the registry names, cannot be served"
