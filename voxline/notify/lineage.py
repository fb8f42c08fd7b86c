"""A run as OpenLineage events: START, then COMPLETE, FAIL or ABORT, with the datasets that it read and wrote.

Format: https://openlineage.io/spec/2-0-2/OpenLineage.json. The run of a refused model is COMPLETE, and wrote no
version.
"""

import re
from typing import Any
from urllib.parse import urlsplit

import requests

from voxline.notify.event import RunEvent, RunIdentity
from voxline.notify.prometheus import check_answer
from voxline.notify.settings import NotifySettings
from voxline.registry.journal import format_utc
from voxline.store.uris import is_remote

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
PRODUCER = "https://github.com/voxline/voxline"
EVENT_TYPES = {"failed": "FAIL", "interrupted": "ABORT"}

Json = dict[str, Any]


def start_event(run: RunIdentity, settings: NotifySettings) -> Json:
    """The START event of a run, which has its corpora to read."""
    return _event("START", run.started, run, {}, [_dataset(corpus) for corpus in run.corpora], [], settings)


def end_event(event: RunEvent, settings: NotifySettings) -> Json:
    """The last event of a run, with its verdict, and with the version or the dataset that it published."""
    named = {step.name: step for step in event.steps}
    inputs = [_dataset(corpus) for corpus in event.run.corpora]

    # The count is of the whole run, so it belongs to a single corpus only.
    if len(inputs) == 1 and "utterances" in (counts := named["ingest"].counts if "ingest" in named else {}):
        rows = counts["utterances"] + counts.get("rejects", 0)
        inputs[0]["inputFacets"] = {"inputStatistics": _facet("1-0-0/InputStatisticsInputDatasetFacet", rowCount=rows)}

    # A refused or unchanged run wrote nothing.
    outputs = []
    if event.verdict in ("promoted", "candidate"):
        outputs.append(_dataset(event.model_uri, version=str(event.version)))
    if event.verdict == "published":
        outputs.append(_dataset(event.dataset_uri, version=str(event.dataset_version)))
        statistics = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=named["publish"].counts["utterances"])
        outputs[0]["outputFacets"] = {"outputStatistics": statistics}

    facets: Json = {
        "voxline": _facet("", verdict=event.verdict, reason=event.reason, revision=event.revision, links=event.links)
    }
    facets["voxline"]["metrics"] = {name: metric.value for name, metric in event.metrics.items()}

    if event.verdict == "failed":
        facets["errorMessage"] = _facet(
            "1-0-1/ErrorMessageRunFacet", message=event.reason or "no message", programmingLanguage="python"
        )
    return _event(EVENT_TYPES.get(event.verdict, "COMPLETE"), event.ended, event.run, facets, inputs, outputs, settings)


def send_lineage(event: RunEvent | RunIdentity, settings: NotifySettings, session: requests.Session) -> str:
    """Sends the START of a run, or its end."""
    server = settings.openlineage
    document = start_event(event, settings) if isinstance(event, RunIdentity) else end_event(event, settings)

    address = f"{server.url.rstrip('/')}/api/v1/lineage"
    headers = server.headers("notify.openlineage")
    check_answer(session.post(address, json=document, headers=headers, timeout=settings.timeout_seconds))
    return address


def _event(
    kind: str, moment: float, run: RunIdentity, facets: Json, inputs: list[Json], outputs: list[Json],
    settings: NotifySettings,
) -> Json:  # fmt: skip
    nature = _facet("2-0-4/JobTypeJobFacet", processingType="BATCH", integration="VOXLINE", jobType="PIPELINE")
    engine = _facet("1-1-1/ProcessingEngineRunFacet", version="2", name="kubeflow-pipelines")

    return {
        "eventType": kind,
        "eventTime": format_utc(moment),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run.id, "facets": {"processing_engine": engine, **facets}},
        "job": {
            "namespace": settings.openlineage.namespace,
            "name": f"{run.pipeline}.{run.name}",
            "facets": {"jobType": nature},
        },
        "inputs": inputs,
        "outputs": outputs,
    }


def _facet(schema: str, **values: Any) -> Json:
    """A facet; one of ours, which has no schema beyond that of every facet, if `schema` is empty."""
    # OpenLineage requires a schema of each facet: the general one for ours.
    name = schema.partition("/")[2]
    url = f"{FACETS}/{schema}.json#/$defs/{name}" if schema else f"{SCHEMA.partition('#')[0]}#/$defs/RunFacet"
    return {"_producer": PRODUCER, "_schemaURL": url, **values}


def _dataset(location: str, *, version: str = "") -> Json:
    """A dataset, named as OpenLineage names those of object stores and file systems.

    >>> _dataset("gs://speech/corpora/LibriSpeech")
    {'namespace': 'gs://speech', 'name': 'corpora/LibriSpeech', 'facets': {}}
    >>> _dataset("/data/fsdd")
    {'namespace': 'file', 'name': '/data/fsdd', 'facets': {}}
    """
    facets = {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=version)} if version else {}

    if not is_remote(location) and not re.match(r"https?://", location):
        return {"namespace": "file", "name": location, "facets": facets}

    parts = urlsplit(location)
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.strip("/") or "/", "facets": facets}
