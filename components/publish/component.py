"""publish as a KFP component."""

from kfp import dsl

from voxline.components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def publish(
    dataset: dsl.Input[dsl.Dataset],
    version: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    store: str,
    datasets: str,
    name: str = "corpus",
    settings: str = "{}",
) -> None:
    """Makes a dataset a version that people and training can name; the same content again is no new version.

    Args:
      dataset: what extract made.
      version: the folder of the version.
      report: what changed since the version before: utterances, words, splits, speakers, features.
      store: folder of all keyed work.
      datasets: folder of all published datasets.
      name: the dataset's name there.
      settings: JSON of the other keys of the config's section `publish`.
    """
    from pathlib import Path

    from voxline.components.publish.diff_report import version_page
    from voxline.components.publish.settings import PublishSettings
    from voxline.components.publish.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    with fail_fast(store):
        chosen = PublishSettings.of(settings, "publish", name=name)
        published = run(artifact_uri(dataset), store, datasets, chosen).publish(version)
        version_page(datasets, name, published.counts["version"], reused=published.reused).write(Path(report.path))
