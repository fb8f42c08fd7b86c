"""On a cluster each step of a run is a pod, and no process sees the whole run: the last step sends the outcome.

Every step leaves a record in the store, under the id of its run; the last one, or the one that fails, reads them all
and sends the event. A pod that is killed (memory, eviction, deadline) sends nothing; the alert on the last success
remains. Why not KFP's exit handler: docs/decisions/0051-the-last-step-announces-the-run.md.
"""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from voxline.errors import VoxlineError, WorkError
from voxline.notify.cost import CostSettings, RunCost, reserved_from
from voxline.notify.deliver import announce_end, announce_start
from voxline.notify.event import Erasure, PublishedModel, RunEvent, RunIdentity, StepRecord
from voxline.notify.settings import NOTIFY_ENV, NotifySettings
from voxline.progress import print_status
from voxline.store.layout import RUN_STEPS
from voxline.store.objects import ObjectStore, open_store

RUN_ID_ENV = "VOXLINE_RUN_ID"
"""The cluster sets it to the run's id, from the pod's label."""


@dataclasses.dataclass(frozen=True)
class NotifiedRun:
    """The identity of a run that each of its steps needs; as JSON in `NOTIFY_ENV`.

    Attributes:
      steps: of the graph, in order; the last one sends the outcome.
      settings: the section `notify` as JSON values.
      training: `RunIdentity.training`.
      prices: the section `cost` as JSON values.
      reserved: step → the cores and the accelerators of its pod; a step whose pods are not known is absent.
      like: `RunCost.like`.
      links: step → the name under which the event links its page. Of several steps with a name, the last one has it.
    """

    pipeline: str
    name: str
    model: str
    corpora: list[str]
    steps: list[str]
    settings: dict[str, Any]
    links: dict[str, str] = dataclasses.field(default_factory=dict)
    training: str = ""
    prices: dict[str, Any] = dataclasses.field(default_factory=dict)
    reserved: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    like: str = ""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, ensure_ascii=False)


@contextlib.contextmanager
def notified_step(step: str, store: str, arguments: dict[str, Any]) -> Iterator[None]:
    """Records a step of a run whose outcome is to be sent, and sends it at its end. Does nothing for other runs.

    Args:
      arguments: of the component; the metadata of its output artifacts is what the step says of its work.
    """
    description = os.environ.get(NOTIFY_ENV, "")
    if not description:
        yield
        return

    run = NotifiedRun(**json.loads(description))
    settings = NotifySettings.of(run.settings, "notify")

    # Without an id, the records of two runs of the same config would be mixed up.
    run_id = os.environ.get(RUN_ID_ENV, "")
    if not run_id:
        print_status(f"notify: {RUN_ID_ENV} is not set, so nothing will be sent about this run")
        yield
        return

    records = _Records(store, run, run_id)
    if step == run.steps[0]:
        announce_start(records.identity(time.time()), settings)

    record = StepRecord(step)
    start = time.time()
    try:
        yield
    except Exception as error:
        # KFP starts no later step, so this one sends the outcome. A push that fails may have published its model.
        record.status = "failed"
        record.seconds = time.time() - start
        records.add(record, start)
        registry = str(arguments.get("registry", "")) if step == "push" else ""
        records.announce(settings, "failed", str(error) or type(error).__name__, record, start, published_in=registry)
        raise

    # An input artifact carries the metadata of the step that wrote it, so only this step's own count.
    record.status = "succeeded"
    record.seconds = time.time() - start
    for artifact in arguments.values():
        metadata = getattr(artifact, "metadata", {})
        if isinstance(metadata, dict) and metadata.get("step") == step and "outputs" in metadata:
            record.take_metadata(metadata)
    records.add(record, start)

    # A forecast that skips the training ends the run: the condition after it starts no step.
    if step == run.steps[-1] or record.counts.get("skipped"):
        records.announce(settings, "succeeded", "", record, start, registry=str(arguments.get("registry", "")))


class _Records:
    """The records of a run's steps, in the store: `run_steps/<run>.<step>.json`."""

    def __init__(self, store: str, run: NotifiedRun, run_id: str) -> None:
        self._run = run
        self._run_id = run_id
        self._store = store

    def identity(self, started: float) -> RunIdentity:
        run = self._run
        return RunIdentity(run.pipeline, run.name, run.model, tuple(run.corpora), self._run_id, started, run.training)

    def add(self, record: StepRecord, start: float) -> None:
        """Writes a record. What goes wrong is printed, and is not the step's failure."""
        try:
            document = {"started": start, **dataclasses.asdict(record)}
            self._folder().write(self._name(record.name), json.dumps(document, ensure_ascii=False).encode())
        except (VoxlineError, OSError) as error:
            print_status(f"notify: this step will be missing from what is sent about the run: {error}")

    def announce(
        self,
        settings: NotifySettings,
        status: str,
        reason: str,
        last: StepRecord,
        start: float,
        *,
        registry: str = "",
        published_in: str = "",
    ) -> None:
        """Sends the outcome of the run.

        Args:
          last: the step that ends the run, whose record may not have been written.
          registry: of the model, which says what is in production.
          published_in: the registry in which a push that failed may have published the model.
        """

        def event() -> RunEvent:
            # A step whose record is missing was killed, or its store could not be written: the others are sent.
            records = {name: record for name in self._run.steps if (record := self._read(name))}
            steps = {name: record for name, (_, record) in records.items()} | {last.name: last}
            began = min([start, *(moment for moment, _ in records.values())])
            ordered = [steps[name] for name in self._run.steps if name in steps]

            # The pages that explain the outcome. Where several steps have the same link, the last one that ran has it.
            links = {"page": settings.run_page.replace("{id}", self._run_id)}
            for step_record in ordered:
                if step_record.name in self._run.links and "report" in step_record.outputs:
                    links[self._run.links[step_record.name]] = step_record.outputs["report"]

            # The reason of a failure must say that the model is in service all the same.
            published = PublishedModel.find(published_in, self._run.model, steps.get("evaluate"), began)
            explained = published.explain(reason) if published else reason
            run_event = RunEvent.of(self.identity(began), ordered, status, explained, links, published)
            run_event = run_event.with_erasure(Erasure.find(registry, self._run.model))
            run_event = dataclasses.replace(run_event, cost=self._cost(ordered))
            if not settings.history:
                return run_event
            from voxline.forecast.run_forecast import with_anomalies  # it imports numpy, which a client does not have

            return with_anomalies(run_event, settings.history)

        announce_end(event, settings)

    def _cost(self, steps: Sequence[StepRecord]) -> RunCost:
        """Reckons the pods of some steps while their steps ran; the start of a pod is not in it."""
        pushed = next((step for step in steps if "verdict" in step.outputs), None)
        verdict = None
        with contextlib.suppress(OSError, ValueError, WorkError):
            verdict = json.loads(pushed.read_output("verdict")) if pushed else None
        prices = CostSettings.of(self._run.prices, "cost")
        reserved = reserved_from(self._run.reserved)
        return RunCost.of(steps, prices, reserved=reserved, like=self._run.like, verdict=verdict)

    def _read(self, step: str) -> tuple[float, StepRecord] | None:
        try:
            document = json.loads(self._folder().read(self._name(step)))
            return float(document.pop("started")), StepRecord(**document)
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def _folder(self) -> ObjectStore:
        return open_store(self._store) / RUN_STEPS

    def _name(self, step: str) -> str:
        return f"{self._run_id}.{step}.json"
