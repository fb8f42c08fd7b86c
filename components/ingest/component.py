"""ingest as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.images import DATA_IMAGE
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.step_component import step_component


@step_component(DATA_IMAGE, section="corpus")
def ingest(
    manifest: dsl.Output[dsl.Dataset],
    store: str,
    settings: CorporaSettings,
) -> None:
    """Reads a corpus in its publisher's layout and writes a manifest.

    Args:
      manifest: the utterances, and the rejects beside them.
      store: folder or bucket URI of all cached step outputs.
    """
    from voxline.components.ingest.step import run
    from voxline.store.artifacts import publish_artifact

    publish_artifact(run(store, settings), manifest)
