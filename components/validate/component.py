"""validate as a KFP component."""

from kfp import dsl

from voxline.components.images import VALIDATE_IMAGE


@dsl.component(base_image=VALIDATE_IMAGE, install_kfp_package=False)
def validate(
    wavs: dsl.Input[dsl.Dataset],
    validation: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    statistics_page: dsl.Output[dsl.HTML],
    store: str,
    registry: str = "",
    model_name: str = "",
    settings: str = "{}",
) -> None:
    """Checks the utterances before an accelerator is booked; fails where a check of severity "error" does.

    Args:
      wavs: what convert made.
      validation: each check, its figures and the utterances that offend.
      report: histograms, and the offending utterances to listen to.
      statistics_page: what TFX's data validation found: every feature, anomalies, drift; or why it was skipped.
      store: folder of all keyed work.
      registry: folder of served models, to compare with the dataset of the one in service; empty: drift is not checked.
      model_name: its name there.
      settings: JSON of the config's section `validate`: thresholds, severities, the schema.
    """
    from voxline.components.validate.settings import ValidateSettings
    from voxline.components.validate.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    with fail_fast(store):
        run(
            artifact_uri(wavs),
            store,
            ValidateSettings.of(settings, "validate"),
            registry=registry,
            model_name=model_name,
        ).publish(validation, html=report, statistics_page=statistics_page)
