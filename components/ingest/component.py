"""ingest as a KFP component."""

from kfp import dsl

from voxline.components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def ingest(
    manifest: dsl.Output[dsl.Dataset], store: str, uri: str, format: str = "librispeech", settings: str = "{}"
) -> None:
    """Reads a corpus in its publisher's layout into a manifest.

    Args:
      manifest: the utterances, and the rejects beside them.
      store: folder of all keyed work.
      uri: folder or archive that holds the corpus.
      format: its layout: librispeech, ljspeech, thchs30, fsdd, manifest, csv or kaldi.
      settings: JSON of the other keys of the config's section `corpus`.
    """
    from voxline.components.ingest.settings import CorpusSettings
    from voxline.components.ingest.step import run
    from voxline.store.permanent_failures import fail_fast

    with fail_fast(store):
        run(store, CorpusSettings.of(settings, "corpus", uri=uri, format=format)).publish(manifest)
