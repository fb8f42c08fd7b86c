"""validate as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.images import VALIDATE_IMAGE
from voxline.components.step_component import step_component
from voxline.components.validate.settings import ValidateSettings


@step_component(VALIDATE_IMAGE, section="validate")
def validate(
    wavs: dsl.Input[dsl.Dataset],
    validation: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    statistics_page: dsl.Output[dsl.HTML],
    store: str,
    settings: ValidateSettings,
    registry: str = "",
    model_name: str = "",
) -> None:
    """Checks the utterances before training; if a check of severity "error" fails, nothing after it runs.

    Args:
      wavs: the output of convert.
      validation: the result of each check, with its metrics and the offending utterances.
      report: histograms, and the offending utterances to listen to.
      statistics_page: TensorFlow Data Validation: statistics, anomalies and drift, or why it was skipped.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry, to check drift from the model in service; empty: no check.
      model_name: the model's name in the registry.
    """
    import os

    from voxline.components.validate.step import run
    from voxline.errors import RefusedInputError
    from voxline.progress import print_status
    from voxline.store.artifacts import REFUSE_LATER_ENV, artifact_uri, publish_artifact

    # A failed task loses its pages on some platforms, and a refusal without its report helps nobody.
    refusal = ""
    try:
        output = run(artifact_uri(wavs), store, settings, registry=registry, model_name=model_name)
    except RefusedInputError as error:
        if not os.environ.get(REFUSE_LATER_ENV):
            raise
        output = error.output
        refusal = str(error)
        print_status(f"{refusal}\nThis step succeeds, so that its report is kept; the next one fails.")

    publish_artifact(output, validation, html=report, statistics_page=statistics_page, refusal=refusal)
