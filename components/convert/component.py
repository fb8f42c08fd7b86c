"""convert as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.convert.settings import ConvertSettings
from voxline.components.images import DATA_IMAGE
from voxline.components.step_component import step_component


@step_component(DATA_IMAGE, section="convert")
def convert(
    manifest: dsl.Input[dsl.Dataset],
    wavs: dsl.Output[dsl.Dataset],
    store: str,
    settings: ConvertSettings,
) -> None:
    """Converts audio of any format to 16-bit mono WAV, and normalizes the transcripts.

    Args:
      manifest: the output of ingest.
      wavs: the converted utterances, and the rejects beside them.
      store: folder or bucket URI of all cached step outputs.
    """
    from voxline.components.convert.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    publish_artifact(run(artifact_uri(manifest), store, settings), wavs)
