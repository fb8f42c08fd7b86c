"""dataset as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.dataset.settings import VersionSettings
from voxline.components.images import DATA_IMAGE
from voxline.components.step_component import step_component


@step_component(DATA_IMAGE, section="corpus")
def dataset(
    version: dsl.Output[dsl.Dataset],
    rows: dsl.Output[dsl.Dataset],
    store: str,
    datasets: str,
    settings: VersionSettings,
) -> None:
    """Opens a published version of a dataset, in place of the steps that made it.

    Args:
      version: the version's folder, for training.
      rows: the same, for the steps that read its utterances.
      store: folder or bucket URI of all cached step outputs.
      datasets: folder or bucket URI of all published datasets.
    """
    from voxline.components.dataset.step import run
    from voxline.store.artifacts import publish_artifact

    output = run(datasets, settings)
    name = settings.dataset.partition("@")[0]
    about: dict[str, str | int] = {"dataset": name, "version": output.counts["version"], "digest": output.key}
    for artifact in (version, rows):
        publish_artifact(output, artifact, about=about)
