"""forecast as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.forecast.settings import ForecastSettings
from voxline.components.images import DATA_IMAGE
from voxline.components.step_component import step_component


@step_component(DATA_IMAGE, section="forecast")
def forecast(
    dataset: dsl.Input[dsl.Dataset],
    validation: dsl.Input[dsl.Dataset],
    expectation: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    store: str,
    registry: str,
    model_name: str,
    settings: ForecastSettings,
) -> str:
    """Predicts from the history whether a model of this dataset will be promoted; else the run trains nothing.

    Its output is "yes", or "no" if the run ends here.

    Args:
      dataset: the output of extract.
      validation: the output of validate.
      expectation: the probability, and what it follows from.
      report: the same as a page.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry.
      model_name: the model's name in the registry.
    """
    from voxline.components.forecast.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    inputs = artifact_uri(dataset), artifact_uri(validation)
    output = run(*inputs, store, settings, registry=registry, model_name=model_name)
    publish_artifact(output, expectation, html=report)

    # A condition of the compiled graph compares this text: the steps after it run on "yes" alone.
    return "no" if output.counts["skipped"] else "yes"
