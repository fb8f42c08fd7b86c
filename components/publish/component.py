"""publish as a KFP component."""

from kfp import dsl

from components.images import DATA


@dsl.component(base_image=DATA, install_kfp_package=False)
def publish(
    dataset: dsl.Input[dsl.Dataset],
    version: dsl.Output[dsl.Dataset],
    store: str,
    datasets: str,
    name: str = "corpus",
    settings: str = "{}",
) -> None:
    """Makes a dataset a version that people and training can name; the same content again is no new version.

    Args:
      dataset: what extract made.
      version: the folder of the version.
      store: folder of all keyed work.
      datasets: folder of all published datasets.
      name: the dataset's name there.
      settings: JSON of the other keys of the config's section `publish`.
    """
    from components.publish.settings import PublishSettings
    from components.publish.step import run
    from components.speech.attempts import attempt
    from components.speech.work import place_of

    with attempt(store):
        run(place_of(dataset), store, datasets, PublishSettings.of(settings, "publish", name=name)).publish(version)
