"""push of a voice as a KFP component."""

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
    model_name: str = "tts",
    max_round_trip_wer: float = 0.5,
    max_hit_limit: float = 0.1,
    min_attention_diagonality: float = 0.5,
    confidence: float = 0.95,
    settings: str = "{}",
) -> None:
    """The gate: puts the voice into service, or says why not and changes nothing.

    Args:
      model: what train made.
      evaluation: what evaluate made.
      verdict: passed or refused, and why; the version in service.
      report: the page to open.
      store: folder of all keyed work.
      registry: folder of served models.
      model_name: the model's name in the registry.
      max_round_trip_wer: share of words (0.5: 50%) that the listener may get wrong; judged where one listened.
      max_hit_limit: share of utterances that may run into the limit on decoder steps.
      min_attention_diagonality: share of the attention that must lie near the diagonal.
      confidence: with which it must be no worse than the model in service.
      settings: JSON of the other keys of the config's section `push`; `limits` holds any other figure.
    """
    from voxline.components.push.settings import TtsPushSettings
    from voxline.components.push.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = TtsPushSettings.of(
        settings,
        "push",
        model_name=model_name,
        max_round_trip_wer=max_round_trip_wer,
        max_hit_limit=max_hit_limit,
        min_attention_diagonality=min_attention_diagonality,
        confidence=confidence,
    )
    with fail_fast(store):
        run(artifact_uri(model), artifact_uri(evaluation), registry, store, chosen).publish(verdict, html=report)
