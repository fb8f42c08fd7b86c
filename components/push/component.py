"""push as a KFP component, of each family."""

from __future__ import annotations

from typing import Any

from kfp import dsl

from voxline.components.images import MODEL_IMAGE
from voxline.components.push.settings import PushSettings
from voxline.components.step_component import family_component


def push(
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Dataset],
    verdict: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    store: str,
    registry: str,
    settings: PushSettings,
) -> None:
    """Puts the model into service if it passes the gate; otherwise says why and changes nothing.

    Args:
      model: the output of train.
      evaluation: the output of evaluate.
      verdict: passed or refused, with the reasons, and the version in service.
      report: the report of the run.
      summary: the verdict, its reasons and the metrics, to compare runs.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry.
    """
    from voxline.components.push.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(model), artifact_uri(evaluation), registry, store, settings)
    publish_artifact(output, verdict, html=report, summary=summary)


def push_component(family: str) -> Any:
    """The component for a family."""
    return family_component(push, family, MODEL_IMAGE)
