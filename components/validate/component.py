"""validate as a KFP component."""

from kfp import dsl

from components.images import DATA


@dsl.component(base_image=DATA, install_kfp_package=False)
def validate(
    wavs: dsl.Input[dsl.Dataset],
    validation: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    store: str,
    settings: str = "{}",
) -> None:
    """Checks the utterances before an accelerator is booked; fails where a check of severity "error" does.

    Args:
      wavs: what convert made.
      validation: each check, its figures and the utterances that offend.
      report: histograms, and the offending utterances to listen to.
      store: folder of all keyed work.
      settings: JSON of the config's section `validate`: thresholds and severities.
    """
    from components.speech.attempts import attempt
    from components.speech.work import place_of
    from components.validate.settings import ValidateSettings
    from components.validate.step import run

    with attempt(store):
        run(place_of(wavs), store, ValidateSettings.of(settings, "validate")).publish(validation, html=report)
