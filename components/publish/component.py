"""publish as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.images import DATA_IMAGE
from voxline.components.publish.settings import PublishSettings
from voxline.components.step_component import step_component


@step_component(DATA_IMAGE, section="publish")
def publish(
    dataset: dsl.Input[dsl.Dataset],
    version: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    store: str,
    datasets: str,
    settings: PublishSettings,
) -> None:
    """Publishes a dataset as a numbered version; publishing the same content twice makes one version.

    Args:
      dataset: the output of extract.
      version: the folder of the version.
      report: the changes since the version before: utterances, words, splits, speakers, features.
      store: folder or bucket URI of all cached step outputs.
      datasets: folder or bucket URI of all published datasets.
    """
    from pathlib import Path

    from voxline.components.publish.diff_report import version_page
    from voxline.components.publish.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(dataset), store, datasets, settings)
    number = output.counts["version"]
    publish_artifact(output, version, about={"dataset": settings.name, "version": number, "digest": output.key})

    # A page of this step alone: the version's folder never changes, and has no report in it.
    page = version_page(datasets, settings.name, number, reused=output.reused)
    page.write(Path(report.path))
