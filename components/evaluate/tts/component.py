"""evaluate for tts as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.evaluate.settings import TtsEvaluateSettings
from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import step_component


@step_component(MODEL_IMAGE, section="evaluate")
def evaluate(
    model: dsl.Input[dsl.Model],
    wavs: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    store: str,
    registry: str,
    settings: TtsEvaluateSettings,
) -> None:
    """Synthesizes the test split with the exported model, and compares it with the model in service.

    Args:
      model: the output of train.
      wavs: the output of convert.
      evaluation: metrics.json, and a line for each utterance.
      metrics: distances and error rates, to compare runs.
      report: recorded and synthesized speech side by side, spectrograms, alignments.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry.
    """
    from voxline.components.evaluate.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(model), artifact_uri(wavs), registry, store, settings)
    publish_artifact(output, evaluation, html=report, metrics=metrics)
