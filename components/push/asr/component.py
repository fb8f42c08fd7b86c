"""push as a KFP component."""

from kfp import dsl

from voxline.components.images import MODEL_IMAGE


@dsl.component(base_image=MODEL_IMAGE, install_kfp_package=False)
def push(
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Dataset],
    verdict: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    store: str,
    registry: str,
    model_name: str = "asr",
    max_wer: float = 0.3,
    max_regression: float = 0.01,
    confidence: float = 0.95,
    settings: str = "{}",
) -> None:
    """The gate: puts the model into service, or says why not and changes nothing.

    Args:
      model: what train made.
      evaluation: what evaluate made.
      verdict: passed or refused, and why; the version in service.
      report: the page to open.
      store: folder of all keyed work.
      registry: folder of served models.
      model_name: the model's name in the registry.
      max_wer: word error rate (0.3: 30%) above which it is refused.
      max_regression: how much higher than that of the model in service it may be (0.01: 1 point).
      confidence: with which it must be no worse than that.
      settings: JSON of the other keys of the config's section `push`.
    """
    from voxline.components.push.settings import AsrPushSettings
    from voxline.components.push.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = AsrPushSettings.of(
        settings,
        "push",
        model_name=model_name,
        max_wer=max_wer,
        max_regression=max_regression,
        confidence=confidence,
    )
    with fail_fast(store):
        run(artifact_uri(model), artifact_uri(evaluation), registry, store, chosen).publish(verdict, html=report)
