"""export as a KFP component, of each family."""

from __future__ import annotations

from typing import Any

from kfp import dsl

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component
from voxline.training.settings import TrainSettings


def export(
    model: dsl.Input[dsl.Model],
    exported: dsl.Output[dsl.Model],
    store: str,
    registry: str,
    settings: TrainSettings,
) -> None:
    """Writes a trained model in the form that the config asks for, such as with ONNX graphs; nothing is trained.

    Args:
      model: the output of train.
      exported: the same weights in the other form.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry, for a vocoder that a voice ships with.
    """

    # Imported in the pod alone, as in train.
    from voxline.components.export.step import run
    from voxline.inference.saved_model import model_digest
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(model), store, settings, registry)
    publish_artifact(output, exported, content="model", about={"digest": model_digest(output.path("model"))})


def export_component(family: str) -> Any:
    """The component for a family."""
    return family_component(export, family, MODEL_IMAGE, section="train")
