"""train, of a voice, as a KFP component."""

from kfp import dsl

from voxline.components.images import MODEL_IMAGE


@dsl.component(base_image=MODEL_IMAGE, install_kfp_package=False)
def train(
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    store: str,
    name: str = "tts",
    model_kind: str = "tacotron2",
    model_reduction: int = 2,
    epochs: int = 100,
    batch_size: int = 16,
    learning_rate: float = 0.001,
    precision: str = "float32",
    seed: int = 1,
    settings: str = "{}",
) -> None:
    """Trains a voice and exports it.

    Args:
      dataset: what extract made.
      model: the SavedModel with model.json, and the TensorBoard logs beside it.
      store: folder of all keyed work.
      name: the model's name.
      model_kind: tacotron or tacotron2.
      model_reduction: frames that the decoder makes in a step.
      epochs: times through the training split, at most.
      batch_size: utterances in a step, over all devices.
      learning_rate: highest rate, reached after warm-up.
      precision: float32 or mixed_bfloat16.
      seed: of initial weights, order and dropout.
      settings: JSON of the other keys of the config's section `train`.
    """
    from voxline.components.train.step import run
    from voxline.components.train.tts.settings import TtsTrainSettings
    from voxline.store.permanent_failures import fail_fast
    from voxline.store.step_cache import artifact_uri

    chosen = TtsTrainSettings.of(
        settings,
        "train",
        name=name,
        model__kind=model_kind,
        model__reduction=model_reduction,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        precision=precision,
        seed=seed,
    )
    with fail_fast(store):
        run(artifact_uri(dataset), store, chosen).publish(model)
