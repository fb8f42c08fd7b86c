"""evaluate as a KFP component, of each family."""

from __future__ import annotations

from typing import Any

from kfp import dsl

from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component


def evaluate(
    model: dsl.Input[dsl.Model],
    wavs: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    store: str,
    registry: str,
    settings: EvaluateSettings,
) -> None:
    """Judges the exported model on the test split, and compares it with the model in service.

    Args:
      model: the output of train.
      wavs: the output of convert.
      evaluation: metrics.json, and a line for each utterance.
      metrics: to compare runs.
      report: of the evaluation.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry.
    """
    from voxline.components.evaluate.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(model), artifact_uri(wavs), registry, store, settings)
    publish_artifact(output, evaluation, html=report, metrics=metrics)


def evaluate_component(family: str) -> Any:
    """The component for a family."""
    return family_component(evaluate, family, MODEL_IMAGE)
