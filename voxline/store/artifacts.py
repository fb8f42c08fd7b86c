"""A step's output as a KFP artifact (duck-typed: nothing here imports kfp)."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.store.files import write_json
from voxline.store.step_cache import StepOutput

REFUSE_LATER_ENV = "VOXLINE_REFUSE_LATER"
"""Set where the pages of a failed task are lost: a step that refuses its input succeeds, and the next one fails."""

ARTIFACT_URIS_ENV = "VOXLINE_ARTIFACT_URIS"
"""Set where an artifact may have any URI, as on Vertex AI: it then has that of what it is."""

_REFUSAL = "refusal"
"""The key of an artifact's metadata that says why a step refused its input."""


def publish_artifact(
    output: StepOutput,
    folder: Any,
    *,
    content: str = "",
    html: Any = None,
    metrics: Any = None,
    about: Mapping[str, str | int] | None = None,
    refusal: str = "",
    **pages: Any,
) -> None:
    """Writes KFP artifacts.

    The folder artifact says where in the store the output is; pages are copied to where the UI reads them. On a
    cluster an artifact keeps the URI that KFP gave it: for another one, its launcher fails the task, or downloads all
    of it to the next one's disk. So its content is copied there.

    Args:
      folder: the artifact of the output.
      content: the named output that the artifact is, such as a model: its URI opens as one. Empty: the URI is that of
        the step's folder, on a cluster that of a JSON file that names it.
      html: gets the output `report`.
      about: further metadata of the artifact. KFP takes no None.
      refusal: why the step refused its input; `check_accepted` raises it in the next step.
      pages: further artifacts that a person reads, HTML or Markdown, by the name of their output.
    """
    # KFP's launcher uploads what is at the artifact's path, and passes its URI on.
    copied = "://" in folder.uri and not os.environ.get(ARTIFACT_URIS_ENV)
    if not copied:
        folder.uri = output.output_uri(content) if content else output.uri
    folder.metadata.update(
        uri=output.uri,
        step=output.step,
        key=output.key,
        reused=output.reused,
        seconds=round(output.seconds, 3),
        cpu_seconds=round(output.cpu_seconds, 3),
        counts=output.counts,
        metrics=output.metrics,
        outputs=output.outputs,
        **(about or {}),
        **({_REFUSAL: refusal} if refusal else {}),
    )

    if copied:
        Path(folder.path).parent.mkdir(parents=True, exist_ok=True)
        if content:
            shutil.copytree(output.path(content), folder.path, dirs_exist_ok=True)
        else:  # what a person finds who opens the artifact
            write_json(Path(folder.path), folder.metadata)

    # Pages are small, and a UI reads them from where KFP expects them.
    for name, page in {"report": html, **pages}.items():
        if page is not None:
            Path(page.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(output.path(name), page.path)
    if metrics is not None:
        for name, value in output.metrics.items():
            metrics.log_metric(name, value)


def pass_on_artifact(source: Any, folder: Any) -> None:
    """Writes an artifact that is another one's output: a model that was chosen among several.

    Args:
      source: an artifact of `publish_artifact` with a content.
      folder: the artifact to write.
    """
    folder.metadata.update(artifact_metadata(source))
    if "://" in folder.uri and not os.environ.get(ARTIFACT_URIS_ENV):
        shutil.copytree(source.path, folder.path, dirs_exist_ok=True)
    else:
        folder.uri = source.uri


def artifact_uri(artifact: Any) -> str:
    """The path or bucket URI of the output that a step published as this KFP artifact."""
    return str(artifact.metadata.get("uri") or artifact.uri)


def artifact_metadata(artifact: Any) -> dict[str, Any]:
    """The metadata that `publish_artifact` gave an artifact.

    A KFP server keeps it in ML Metadata, from which an object comes back as {"struct": object}, and a list as
    {"list": list} (StructValueToMLMDValue in KFP's backend/src/v2/metadata).
    """
    return {name: _unwrapped(value) for name, value in artifact.metadata.items()}


def _unwrapped(value: Any) -> Any:
    # One level: our metadata nest no deeper.
    for kind, expected in (("struct", dict), ("list", list)):
        if isinstance(value, dict) and value.keys() == {kind} and isinstance(value[kind], expected):
            return value[kind]
    return value


def check_accepted(artifact: Any) -> None:
    """Refuses to work after a step that refused its input, and that succeeded only so that KFP keeps its pages.

    Raises:
      WorkError: the reason of that step.
    """
    if refusal := artifact.metadata.get(_REFUSAL):
        raise WorkError(str(refusal))
