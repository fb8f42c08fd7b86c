"""evaluate as a KFP component."""

from kfp import dsl

from voxline.components.images import MODEL_IMAGE


@dsl.component(base_image=MODEL_IMAGE, install_kfp_package=False)
def evaluate(
    model: dsl.Input[dsl.Model],
    wavs: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    store: str,
    registry: str,
    model_name: str = "asr",
    settings: str = "{}",
) -> None:
    """Runs the exported model on the test split, and compares it with the one in service.

    Args:
      model: what train made.
      wavs: what convert made.
      evaluation: metrics.json and a line for each utterance.
      metrics: error rates, for comparing runs.
      report: plots, slices, and the worst utterances to listen to.
      store: folder of all keyed work.
      registry: folder of served models.
      model_name: the model's name in the registry.
      settings: JSON of the other keys of the config's section `evaluate`.
    """
    from voxline.components.evaluate.settings import AsrEvaluateSettings
    from voxline.components.evaluate.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = AsrEvaluateSettings.of(settings, "evaluate", model_name=model_name)
    with fail_fast(store):
        run(artifact_uri(model), artifact_uri(wavs), registry, store, chosen).publish(
            evaluation, html=report, metrics=metrics
        )
