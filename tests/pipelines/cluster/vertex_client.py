"""Google's own client on a compiled pipeline: `python vertex_client.py COMPILED.yaml TWO-DOCUMENTS.yaml OUTPUT.json`.

All of the client runs, its checks of the file, the parameters and the names, up to the calls that would leave this
machine. Their requests are written as JSON.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from voxline.errors import VoxlineError
from voxline.pipelines.cluster.vertex import GPU_TYPES, TPU_TYPES, VertexProject

PLACE = "projects/123/locations/europe-west4"
calls: list[Any] = []


def record(kind: str, answer: Any) -> Any:
    def call(_self: Any, request: Any = None, **given: Any) -> Any:
        given.pop("timeout", None), given.pop("metadata", None), given.pop("retry", None)
        values = {**(request if isinstance(request, dict) else {}), **given}
        if request is not None and not isinstance(request, dict):
            values["request"] = request
        shown = {
            name: json.loads(type(value).to_json(value)) if hasattr(type(value), "to_json") else str(value)
            for name, value in values.items()
        }
        calls.append([kind, shown])
        return answer(values)

    return call


def main(compiled: str, two_documents: str, output: str) -> None:
    # Not at the top: they take seconds, and pytest imports this file to look for doctests.
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform, aiplatform_v1
    from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient
    from google.cloud.aiplatform_v1.services.schedule_service import ScheduleServiceClient
    from google.cloud.aiplatform_v1.types import AcceleratorType, PipelineJob, Schedule

    aiplatform.init(credentials=AnonymousCredentials(), project="team-speech", location="europe-west4")
    here = VertexProject(
        "team-speech",
        "europe-west4",
        "gs://speech/artifacts",
        "voxline@team-speech.iam.gserviceaccount.com",
        labels={"team": "Speech"},
    )
    state = aiplatform_v1.PipelineState.PIPELINE_STATE_SUCCEEDED
    old = Schedule(name=f"{PLACE}/schedules/1", display_name="nightly", state=Schedule.State.ACTIVE)

    def started(values: Any) -> PipelineJob:
        return PipelineJob(name=f"{PLACE}/pipelineJobs/{values['pipeline_job_id']}", state=state)

    def scheduled(values: Any) -> Schedule:
        return Schedule(name=f"{PLACE}/schedules/2", state=Schedule.State.ACTIVE)

    said: list[str] = []
    make_bucket = "google.cloud.aiplatform.utils.gcs_utils."
    make_bucket += "create_gcs_bucket_for_pipeline_artifacts_if_it_does_not_exist"
    done = SimpleNamespace(operation=SimpleNamespace(name="done"), result=lambda *_, **__: None)
    with (
        patch(make_bucket, lambda **_: None),  # it looks for the bucket in the storage
        patch.object(PipelineServiceClient, "create_pipeline_job", record("run", started)),
        patch.object(
            PipelineServiceClient, "get_pipeline_job", record("get", lambda _: PipelineJob(name=PLACE, state=state))
        ),
        patch.object(ScheduleServiceClient, "list_schedules", record("list", lambda _: iter([old]))),
        patch.object(ScheduleServiceClient, "get_schedule", record("look", lambda _: old)),
        patch.object(ScheduleServiceClient, "pause_schedule", record("pause", lambda _: None)),
        patch.object(ScheduleServiceClient, "create_schedule", record("schedule", scheduled)),
        patch.object(ScheduleServiceClient, "delete_schedule", record("delete", lambda _: done)),
    ):
        here.submit(Path(compiled), "nightly-20260131-020000-0a1b2c", said.append, wait=True)
        here.schedule(Path(compiled), "nightly", "0 2 * * *", "Europe/Berlin", said.append)
        refused = ""
        try:
            here.submit(Path(two_documents), "nightly", said.append)
        except (VoxlineError, Exception) as error:
            refused = f"{type(error).__name__}: {error}"
    types = {one.name for one in AcceleratorType}
    unknown = [name for name in (*GPU_TYPES, *TPU_TYPES.values()) if name not in types]
    Path(output).write_text(json.dumps({"calls": calls, "said": said, "refused": refused, "unknown": unknown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
