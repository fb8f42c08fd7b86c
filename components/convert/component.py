"""convert as a KFP component."""

from kfp import dsl

from voxline.components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def convert(
    manifest: dsl.Input[dsl.Dataset],
    wavs: dsl.Output[dsl.Dataset],
    store: str,
    sample_rate: int = 16000,
    alphabet: str = "english",
    frontend: str = "transcript",
    settings: str = "{}",
) -> None:
    """Turns any audio into 16-bit mono WAV, and normalises the transcripts.

    Args:
      manifest: what ingest made.
      wavs: the converted utterances, and the rejects beside them.
      store: folder of all keyed work.
      sample_rate: Hz.
      alphabet: the characters that transcripts may hold: a name, or the characters themselves.
      frontend: how a transcript becomes them: transcript, as_is, english, english_phonemes, mandarin or pinyin.
      settings: JSON of the other keys of the config's section `convert`.
    """
    from voxline.components.convert.settings import ConvertSettings
    from voxline.components.convert.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = ConvertSettings.of(
        settings, "convert", sample_rate=sample_rate, alphabet=alphabet, frontend__kind=frontend
    )
    with fail_fast(store):
        run(artifact_uri(manifest), store, chosen).publish(wavs)
