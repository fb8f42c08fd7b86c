"""A run's outcome as gauges: for a Pushgateway, for the textfile collector of node_exporter, and over OTLP.

All three have the same names and labels. A run replaces the gauges of its own name that it sets, and leaves the others:
a run that fails does not take away when the last one succeeded, nor what the model in service was measured at.
"""

import dataclasses
import importlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import requests
from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import pushadd_to_gateway
from prometheus_client.parser import text_string_to_metric_families

from voxline.errors import TransientError, WorkError
from voxline.notify.event import VERDICTS, RunEvent
from voxline.notify.settings import NotifySettings
from voxline.store.file_locks import exclusive_lock

JOB = "voxline"
RUN_LABELS = ("pipeline", "run", "model")
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "voxline_run_verdict": ("1 for the verdict of the last run, 0 for all others", ("verdict",)),
    "voxline_run_end_timestamp_seconds": ("when the last run ended", ()),
    "voxline_run_seconds": ("how long the last run took", ()),
    "voxline_last_success_timestamp_seconds": (
        "when a run last ended with the model or the dataset in use current: promoted, published or unchanged, and no "
        "erased speaker known to the model in production", (),
    ),
    "voxline_success_interval_seconds": ("the time within which a run must succeed (notify.success_days)", ()),
    "voxline_step_seconds": ("how long a step of the last run took", ("step",)),
    "voxline_step_reused": ("1 if a step of the last run found its work done", ("step",)),
    "voxline_utterances": ("utterances in the output of a step", ("step",)),
    "voxline_rejects": ("recordings that a step left out", ("step", "reason")),
    "voxline_rejects_ratio": ("share of the recordings that a step left out", ("step",)),
    "voxline_metric": ("a metric of the evaluated model; shares are 0 to 1", ("metric",)),
    "voxline_metric_low": ("the lower end of the metric's confidence interval", ("metric",)),
    "voxline_metric_high": ("the upper end of the metric's confidence interval", ("metric",)),
    "voxline_anomalies": ("figures of the last run outside the band that the runs before it lead to expect", ()),
    "voxline_erased_in_production": (
        "utterances of erased speakers that the version in production was trained on", (),
    ),
    "voxline_model_version": ("the version in service after the run", ()),
    "voxline_dataset_version": ("the dataset version after the run", ()),
}  # fmt: skip
"""Gauge → its meaning, and its labels besides `RUN_LABELS`."""


@dataclasses.dataclass(frozen=True)
class GaugeSample:
    """One value of a gauge."""

    gauge: str
    labels: dict[str, str]
    value: float


def samples(event: RunEvent, settings: NotifySettings) -> list[GaugeSample]:
    """The gauges that a run sets."""
    own = run_labels(event)
    return [GaugeSample(gauge, {**own, **labels}, float(value)) for gauge, labels, value in _values(event, settings)]


def run_labels(event: RunEvent) -> dict[str, str]:
    """Returns the labels that distinguish the gauges of one config's runs from those of another."""
    return {"pipeline": event.run.pipeline, "run": event.run.name, "model": event.run.model}


def _values(event: RunEvent, settings: NotifySettings) -> Iterator[tuple[str, dict[str, str], float]]:
    # One gauge for each verdict: a query can then count or alert on any of them.
    for verdict in VERDICTS:
        yield "voxline_run_verdict", {"verdict": verdict}, verdict == event.verdict
    yield "voxline_run_end_timestamp_seconds", {}, event.ended
    yield "voxline_run_seconds", {}, max(0.0, event.ended - event.run.started)
    yield "voxline_success_interval_seconds", {}, settings.success_days * 86400

    # A failed run leaves the time of the last success as it was.
    if event.succeeded:
        yield "voxline_last_success_timestamp_seconds", {}, event.ended

    for step in event.steps:
        of = {"step": step.name}
        yield "voxline_step_seconds", of, step.seconds
        yield "voxline_step_reused", of, step.reused

        utterances = step.counts.get("utterances")
        rejects = step.counts.get("rejects")
        if utterances is not None:
            yield "voxline_utterances", of, utterances

        # A step without rejects sets a zero, which replaces the counts of the run before.
        if rejects is not None:
            for reason, count in (event.rejects.get(step.name) or {"": 0}).items():
                yield "voxline_rejects", {**of, "reason": reason or "none"}, count
            yield "voxline_rejects_ratio", of, rejects / max(1, rejects + (utterances or 0))

    for name, metric in event.metrics.items():
        for end, value in (("", metric.value), ("_low", metric.low), ("_high", metric.high)):
            if value is not None:
                yield f"voxline_metric{end}", {"metric": name}, value

    yield "voxline_anomalies", {}, len(event.anomalies)

    # A gauge that is left out would keep the value of the run before.
    erased = event.erased_in_production
    yield "voxline_erased_in_production", {}, math.nan if erased is None else erased

    # A candidate is not in service.
    if event.version is not None and event.verdict != "candidate":
        yield "voxline_model_version", {}, event.version
    if event.dataset_version is not None:
        yield "voxline_dataset_version", {}, event.dataset_version


class _Gauges:
    """A collector of samples."""

    def __init__(self, gauge_samples: Iterable[GaugeSample], left_out: Iterable[str] = ()) -> None:
        self._samples = list(gauge_samples)
        self._left_out = set(left_out)

    def collect(self) -> Iterator[Metric]:
        for name, (meaning, own) in GAUGES.items():
            labels = [label for label in (*RUN_LABELS, *own) if label not in self._left_out]
            family = GaugeMetricFamily(name, meaning, labels=labels)
            for sample in self._samples:
                if sample.gauge == name:
                    family.add_metric([sample.labels.get(label, "") for label in labels], sample.value)
            if family.samples:
                yield family


def _registry(collector: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def push_gauges(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Pushes the gauges to a Pushgateway. The run's labels are the group's, in which a push replaces by name."""
    gateway = settings.pushgateway
    token = gateway.headers("notify.pushgateway")

    def handler(
        url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
    ) -> Callable[[], None]:
        # Through our session, so with its retries and without redirects.
        own = {**dict(headers), **token}
        return lambda: check_answer(session.request(method, url, data=data, headers=own, timeout=timeout))

    pushadd_to_gateway(
        gateway.url,
        JOB,
        _registry(_Gauges(samples(event, settings), RUN_LABELS)),
        grouping_key={label: value for label, value in run_labels(event).items() if value},
        timeout=settings.timeout_seconds,
        handler=handler,
    )
    return gateway.url


def write_textfile(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Writes the gauges by a rename. Those of other configs' runs in the same file stay."""
    file = Path(settings.textfile).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)

    # Several runs may write to one file: read, merge and replace under a lock.
    with exclusive_lock(file.parent):
        new_samples = samples(event, settings)

        replaced = {(sample.gauge, *_run_of(sample)) for sample in new_samples}
        earlier = [sample for sample in read_textfile(file) if (sample.gauge, *_run_of(sample)) not in replaced]
        write_to_textfile(str(file), _registry(_Gauges([*earlier, *new_samples])))
    return str(file)


def _run_of(sample: GaugeSample) -> tuple[str, ...]:
    return tuple(sample.labels.get(label, "") for label in RUN_LABELS)


def read_textfile(file: Path) -> list[GaugeSample]:
    """The gauges in a file of ours; none if the file does not exist.

    Raises:
      WorkError: the file is not in Prometheus' text format.
    """
    try:
        families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise WorkError(f"{file}: not in Prometheus' text format ({error}); remove it, or name another file") from None

    # A gauge of another program in the file would be lost: the file is ours.
    read_samples = [sample for family in families for sample in family.samples if sample.name in GAUGES]
    return [GaugeSample(sample.name, dict(sample.labels), sample.value) for sample in read_samples]


def export_otlp(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Sends the gauges to an OpenTelemetry collector, or to whatever else takes OTLP over HTTP."""
    # Imported by name: an optional dependency, of which type checkers know nothing.
    metrics = importlib.import_module("opentelemetry.sdk.metrics")
    export = importlib.import_module("opentelemetry.sdk.metrics.export")
    resource = importlib.import_module("opentelemetry.sdk.resources").Resource
    exporter = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter").OTLPMetricExporter

    headers = settings.otlp.headers("notify.otlp")
    reader = export.InMemoryMetricReader()
    attributes = {"service.name": JOB, "service.instance.id": f"{event.run.pipeline}/{event.run.name}"}
    provider = metrics.MeterProvider([reader], resource=resource(attributes), shutdown_on_exit=False)
    meter = provider.get_meter(JOB)

    gauges: dict[str, Any] = {}
    for sample in samples(event, settings):
        if sample.gauge not in gauges:
            gauges[sample.gauge] = meter.create_gauge(sample.gauge, description=GAUGES[sample.gauge][0])
        gauges[sample.gauge].set(sample.value, {key: value for key, value in sample.labels.items() if value})

    # The exporter only logs why it failed.
    last_message = _Said()
    log = logging.getLogger("opentelemetry")
    log.addHandler(last_message)

    client = exporter(settings.otlp.url, headers=headers, timeout=settings.timeout_seconds)
    try:
        result = client.export(reader.get_metrics_data())
    finally:
        log.removeHandler(last_message)
        client.shutdown()
        provider.shutdown()

    if result is not export.MetricExportResult.SUCCESS:
        raise TransientError(last_message.last or "the collector did not take the metrics")
    return settings.otlp.url


class _Said(logging.Handler):
    """Keeps the last warning of the exporter, which logs why it failed and returns only that it did."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())


def check_answer(answer: requests.Response) -> None:
    """Raises:
    WorkError: the server refused; the message has its status and the beginning of its answer.
    """
    if answer.is_redirect:
        to = answer.headers["location"].partition("?")[0]
        raise WorkError(f"it answered {answer.status_code}, a redirect to {to[:300]}; give the final address")

    if not answer.ok:
        body = " ".join(answer.text.split())[:300]
        raise WorkError(f"it answered {answer.status_code} {answer.reason}{': ' if body else ''}{body}")
