"""language as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.images import MODEL_IMAGE
from voxline.components.language.settings import LanguageSettings
from voxline.components.step_component import step_component


@step_component(MODEL_IMAGE, section="language")
def language(
    model: dsl.Input[dsl.Model],
    wavs: dsl.Input[dsl.Dataset],
    model_with_language: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    store: str,
    settings: LanguageSettings,
) -> None:
    """Trains an n-gram language model, tunes it on dev, and puts it beside the recognizer.

    Args:
      model: the output of train.
      wavs: the output of convert.
      model_with_language: the model of train, with language_model/ in it.
      metrics: error rates on dev, greedy and with the language model.
      store: folder or bucket URI of all cached step outputs.
    """
    from voxline.components.language.step import run
    from voxline.inference.saved_model import model_digest
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(model), artifact_uri(wavs), store, settings)
    metadata = {"digest": model_digest(output.path("model"))}
    publish_artifact(output, model_with_language, content="model", about=metadata, metrics=metrics)
