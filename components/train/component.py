"""train as a KFP component, of each family."""

from __future__ import annotations

from typing import Any

from kfp import dsl

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component
from voxline.training.settings import TrainSettings


def train(
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    store: str,
    registry: str,
    settings: TrainSettings,
) -> None:
    """Trains a model and exports it.

    Args:
      dataset: the output of extract.
      model: the exported model: a SavedModel, with model.json.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry, for the model to start from.
    """

    # Imported in the pod alone: compiling a pipeline imports this module, and needs none of the step's libraries.
    from voxline.components.train.step import run
    from voxline.inference.saved_model import model_digest
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(dataset), store, settings, registry)
    publish_artifact(output, model, content="model", about={"digest": model_digest(output.path("model"))})


def train_component(family: str) -> Any:
    """The component for a family."""
    return family_component(train, family, MODEL_IMAGE)
