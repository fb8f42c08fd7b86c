"""What `GET /metrics` tells Prometheus."""

from collections.abc import Callable, Collection, Iterable

import prometheus_client

from voxline.serving.canary import Canary
from voxline.serving.canary_trial import Turn
from voxline.serving.capture import OUTCOMES, Capture
from voxline.serving.followed_model import FollowedModel


class ServerMetrics:
    """The counters of a server; those of captures and of canaries only where it has them.

    Args:
      streams: the sessions on a WebSocket now that are production's.
    """

    def __init__(
        self,
        models: Collection[FollowedModel],
        capture: Capture | None,
        canaries: Collection[Canary],
        streams: Callable[[], int],
    ) -> None:
        self._models = models
        self._capture = capture
        self._canaries = canaries

        # A registry of its own: several servers in one process, as in tests, do not share counters.
        self._registry = prometheus_client.CollectorRegistry()

        self.answers = self._counter("requests", "Answered requests", ["status"])
        self.seconds = prometheus_client.Histogram(
            "voxline_serve_seconds", "From request to answer", registry=self._registry
        )
        self._callers = self._counter("caller_requests", "Answers by the name of the key", ["caller", "status"])
        self.audio = self._counter("audio_seconds", "Audio that was transcribed")
        self.spoken = self._counter("speech_seconds", "Audio that was synthesized")

        self._gauge("streams", "Sessions on a WebSocket").set_function(
            lambda: streams() + sum(canary.streams for canary in canaries)
        )

        # Gauges of each model, set when they are read.
        self._version = self._gauge("model_version", "The version that serves; 0: none", ["model"])
        self._swaps = self._gauge("swaps", "Versions that took the place of another one", ["model"])
        self._failures = self._gauge("load_failures", "Versions that could not be loaded", ["model"])
        self._degraded = self._gauge("degraded", "1 if the version that the registry names does not serve", ["model"])
        self._damaged = self._gauge("damaged", "1 if the files of the version that serves have changed", ["model"])
        self._verified = self._gauge("verified_timestamp_seconds", "When those files were last found whole", ["model"])

        if capture:
            self._captures = self._gauge("captures", "Clips that were offered to the captures", ["outcome"])
            self._capture_bytes = self._gauge("capture_bytes", "Bytes of captured clips")
            self._capture_queue = self._gauge("capture_queue", "Clips that wait to be written")

        if canaries:
            arms = ["model", "arm"]
            self._arm_requests = self._counter(
                "arm_requests", "Requests and sessions by arm of the canary", [*arms, "outcome"]
            )
            self._arm_seconds = prometheus_client.Histogram(
                "voxline_serve_arm_seconds", "From request to answer, by arm", arms, registry=self._registry
            )
            self._candidate = self._gauge("canary_version", "The candidate that gets requests; 0: none", ["model"])
            self._evidence = self._gauge(
                "canary_evidence", "That the candidate is worse, or safe", ["model", "measure", "kind"]
            )
            self._canary_streams = self._gauge("canary_streams", "Sessions that began with a candidate", ["model"])
            self._takeovers = self._gauge(
                "canary_takeovers", "Sessions that production took over from a candidate", ["model"]
            )
            self._rollbacks = self._gauge("canary_rollbacks", "Candidates that this server has withdrawn", ["model"])
        for canary in canaries:
            canary.on_end = self._count_turn

    def count_caller(self, name: str, status: int) -> None:
        """Counts an answer to a request with a key, by its name."""
        self._callers.labels(name, str(status)).inc()

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' format."""
        # Gauges are read when they are asked for, so that they are never out of date.
        for model in self._models:
            self._version.labels(model.reference).set(model.current.version if model.current else 0)
            self._swaps.labels(model.reference).set(model.swaps)
            self._failures.labels(model.reference).set(model.failures)
            self._degraded.labels(model.reference).set(bool(model.fault))
            self._damaged.labels(model.reference).set(bool(model.damage))
            self._verified.labels(model.reference).set(model.verified)

        if self._capture:
            for outcome in OUTCOMES:
                self._captures.labels(outcome).set(self._capture.counts[outcome])
            self._capture_bytes.set(self._capture.bytes)
            self._capture_queue.set(self._capture.waiting)

        for canary in self._canaries:
            self._candidate.labels(canary.model).set(canary.describe()["candidate"] or 0)
            self._canary_streams.labels(canary.model).set(canary.streams)
            self._takeovers.labels(canary.model).set(canary.takeovers)
            self._rollbacks.labels(canary.model).set(canary.rollbacks)
            # Evidence of each measure, for an alert before a verdict.
            for name, test in (canary.state.tests if canary.state else {}).items():
                self._evidence.labels(canary.model, name, "worse").set(test.harm_evidence)
                self._evidence.labels(canary.model, name, "safe").set(test.safe_evidence)
        return prometheus_client.generate_latest(self._registry)

    def _count_turn(self, model: str, turn: Turn) -> None:
        outcome = "dropped" if turn.values is None else "failed" if turn.failed else "answered"
        self._arm_requests.labels(model, turn.arm, outcome).inc()
        if not turn.is_stream:  # the seconds of a session are its caller's
            self._arm_seconds.labels(model, turn.arm).observe(turn.seconds)

    def _counter(self, name: str, help: str, labels: Iterable[str] = ()) -> prometheus_client.Counter:
        return prometheus_client.Counter(f"voxline_serve_{name}", help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(f"voxline_serve_{name}", help, labels, registry=self._registry)
