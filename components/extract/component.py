"""extract as a KFP component."""

from kfp import dsl

from voxline.components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def extract(
    wavs: dsl.Input[dsl.Dataset],
    dataset: dsl.Output[dsl.Dataset],
    store: str,
    features_kind: str = "log_mel",
    features_mels: int = 80,
    sample_rate: int = 16000,
    alphabet: str = "english",
    frontend: str = "transcript",
    runner: str = "FnApiRunner",
    settings: str = "{}",
) -> None:
    """Turns the utterances into TFRecord shards of features, by Beam.

    Args:
      wavs: what convert made.
      dataset: shards, and dataset.json that lists them.
      store: folder of all keyed work.
      features_kind: log_mel, mfcc, linear or mel_and_linear.
      features_mels: mel bins.
      sample_rate: Hz; of the wavs.
      alphabet: what the labels index: a name, or the characters themselves.
      frontend: how convert read the transcripts.
      runner: what runs the Beam pipeline: FnApiRunner, multi_process, or any Beam runner.
      settings: JSON of the other keys of the config's section `extract`.
    """
    from voxline.components.extract.settings import ExtractSettings
    from voxline.components.extract.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = ExtractSettings.of(
        settings,
        "extract",
        features__kind=features_kind,
        features__mels=features_mels,
        features__sample_rate=sample_rate,
        alphabet=alphabet,
        frontend__kind=frontend,
        runner=runner,
    )
    with fail_fast(store):
        run(artifact_uri(wavs), store, chosen).publish(dataset)
