"""extract as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.extract.settings import ExtractSettings
from voxline.components.images import DATA_IMAGE
from voxline.components.step_component import step_component


@step_component(DATA_IMAGE, section="extract")
def extract(
    wavs: dsl.Input[dsl.Dataset],
    validation: dsl.Input[dsl.Dataset],
    dataset: dsl.Output[dsl.Dataset],
    store: str,
    settings: ExtractSettings,
) -> None:
    """Computes features with Beam, and writes them to TFRecord shards.

    Args:
      wavs: the output of convert.
      validation: the output of validate, which must have accepted the utterances.
      dataset: the shards, and dataset.json, which lists them.
      store: folder or bucket URI of all cached step outputs.
    """
    from voxline.components.extract.step import run
    from voxline.store.artifacts import artifact_uri, check_accepted, publish_artifact

    # Where validate may not fail, so that its pages are kept, this step refuses in its place.
    check_accepted(validation)
    publish_artifact(run(artifact_uri(wavs), store, settings), dataset)
