"""train as a KFP component."""

from kfp import dsl

from voxline.components.images import MODEL_IMAGE


@dsl.component(base_image=MODEL_IMAGE, install_kfp_package=False)
def train(
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    store: str,
    name: str = "asr",
    epochs: int = 15,
    batch_size: int = 16,
    learning_rate: float = 0.003,
    model_layers: int = 2,
    model_units: int = 96,
    precision: str = "float32",
    seed: int = 1,
    settings: str = "{}",
) -> None:
    """Trains a recogniser and exports it.

    Args:
      dataset: what extract made.
      model: the SavedModel with model.json, and the TensorBoard logs beside it.
      store: folder of all keyed work.
      name: the model's name.
      epochs: times through the training split, at most.
      batch_size: utterances in a step, over all devices.
      learning_rate: highest rate, reached after warm-up.
      model_layers: bidirectional recurrent layers.
      model_units: units in each direction of a recurrent layer.
      precision: float32 or mixed_bfloat16.
      seed: of initial weights, order, augmentation and dropout.
      settings: JSON of the other keys of the config's section `train`.
    """
    from voxline.components.train.asr.settings import AsrTrainSettings
    from voxline.components.train.step import run
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = AsrTrainSettings.of(
        settings,
        "train",
        name=name,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        model__layers=model_layers,
        model__units=model_units,
        precision=precision,
        seed=seed,
    )
    with fail_fast(store):
        run(artifact_uri(dataset), store, chosen).publish(model)
