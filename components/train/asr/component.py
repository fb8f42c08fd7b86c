"""train for asr as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import step_component
from voxline.components.train.asr.settings import AsrTrainSettings


@step_component(MODEL_IMAGE, section="train")
def train(
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    store: str,
    registry: str,
    settings: AsrTrainSettings,
) -> None:
    """Trains a speech recognizer and exports it.

    Args:
      dataset: the output of extract.
      model: the exported model: a SavedModel, with model.json.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry, for the model to start from.
    """
    from voxline.components.train.step import run
    from voxline.inference.saved_model import model_digest
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(dataset), store, settings, registry)
    publish_artifact(output, model, content="model", about={"digest": model_digest(output.path("model"))})
