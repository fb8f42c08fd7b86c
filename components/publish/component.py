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
    rows: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    store: str,
    datasets: str,
    settings: PublishSettings,
    registry: str = "",
    model_name: str = "",
) -> str:
    """Publishes a dataset as a numbered version; publishing the same content twice makes one version.

    Its output is "yes", or "no" if the run ends here.

    Args:
      dataset: the output of extract.
      version: the folder of the version.
      rows: the same, for the steps that read its utterances.
      report: the changes since the version before: utterances, words, splits, speakers, features.
      store: folder or bucket URI of all cached step outputs.
      datasets: folder or bucket URI of all published datasets.
      registry: folder or bucket URI of the model registry, whose history says which versions were judged.
      model_name: the model's name in the registry.
    """
    from pathlib import Path

    from voxline.components.publish.diff_report import version_page
    from voxline.components.publish.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    output = run(artifact_uri(dataset), store, datasets, settings, registry=registry, model_name=model_name)
    number = output.counts["version"]
    about: dict[str, str | int] = {"dataset": settings.dataset, "version": number, "digest": output.key}
    for artifact in (version, rows):
        publish_artifact(output, artifact, about=about)

    # A page of this step alone: the version's folder never changes, and has no report in it.
    page = version_page(datasets, settings.dataset, number, reused=output.reused)
    page.write(Path(report.path))

    # A condition of the compiled graph compares this text, where steps follow.
    return "no" if output.counts.get("skipped") else "yes"
