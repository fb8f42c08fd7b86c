"""Trains a sharpener for a trained voice, and writes the voice again with the sharpener in its graphs.

The voice is trained first, under a key without `train.sharpen`: another sharpener costs no training of the voice. It is
a step output of its own, named by the digest of the voice, the dataset and the sharpener's settings.
"""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from voxline.data.dataset import Dataset
from voxline.families.tts.settings import SharpenTrainSettings, TtsTrainSettings
from voxline.inference.model_info import Normalization
from voxline.inference.saved_model import model_digest, read_model_info, write_model_info
from voxline.progress import print_status
from voxline.registry.parents import Parent, find_other_model
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.store.step_cache import StepOutput, cached_step
from voxline.text.alphabet import Alphabet

REVISION = 1
WORK = "sharpening"
"""Folder of the training, and of its logs among those of the voice."""
VOICE_MELS = "mels"


def find_listening_recognizer(settings: TtsTrainSettings, registry: Path | str) -> Parent | None:
    """The recognizer whose convolutions a sharpener learns from; None if the settings name none.

    Raises:
      SettingsError: it does not exist, or is of another family.
    """
    if not settings.sharpens or not settings.sharpen.recognizer:
        return None
    return find_other_model(settings.sharpen.recognizer, registry, family="asr", setting="train.sharpen.recognizer")


def sharpen_voice(
    trained: StepOutput,
    dataset: Dataset,
    settings: TtsTrainSettings,
    store: Path | str,
    recognizer: Parent | None = None,
) -> StepOutput:
    """Train's output with a sharpener in its model; resumes if a killed run left a checkpoint.

    Args:
      trained: of the voice alone.
      dataset: that it was trained on.
      settings: the voice's, with `sharpen`.
      recognizer: that listens (`find_listening_recognizer`). It is in the key by its digest.
    """
    sharpen_settings = SharpenTrainSettings.of_voice(settings)
    if os.environ.get("TF_CONFIG"):  # a chief trains it alone, when the other workers have left
        sharpen_settings = sharpen_settings.model_copy(update={"strategy": "one"})

    # The key holds digests, not paths: the same voice and recognizer give the same key anywhere.
    inputs = {"model": model_digest(trained.path("model")), "dataset": dataset.key}
    inputs |= {"recognizer": recognizer.ancestor.digest} if recognizer else {}
    with cached_step(store, "train", sharpen_settings, inputs, revision=REVISION) as work:
        if not work.reused:
            _sharpen(trained, dataset, sharpen_settings, work, recognizer)

    return work


def _sharpen(
    trained: StepOutput,
    dataset: Dataset,
    sharpen_settings: SharpenTrainSettings,
    work: StepOutput,
    recognizer: Parent | None,
) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from voxline.families.tts.sharpening import SharpenTask, export_sharpened
    from voxline.training.trainer import Trainer
    from voxline.training.warm_start import read_exported_weights

    voice = trained.path("model")
    model = work.folder / "model"
    folder = work.folder / WORK
    info = read_model_info(voice)
    # What the voice's weights expect: a warm start keeps the statistics of its parent.
    normalization = info.normalization or Normalization(mean=dataset.mean, deviation=dataset.deviation)
    dataset = dataclasses.replace(
        dataset,
        alphabet=Alphabet(info.alphabet),
        mean=normalization.mean,
        deviation=normalization.deviation,
    )
    work.scratch_dirs = (WORK,)
    work.unverified = ("logs",)
    print_status("train: a sharpener for the voice")
    recognizer_folder = recognizer.load_folder() if recognizer else None
    task = SharpenTask(sharpen_settings, dataset, voice, folder / VOICE_MELS, recognizer_folder)

    # Trains the sharpener; a checkpoint of a killed run is resumed.
    result = Trainer(task, folder, work.begin_save).fit()
    best = result.best
    training: dict[str, Any] = {
        **info.provenance.trained,
        **({"start": msgspec.to_builtins(info.start)} if info.start else {}),
        "sharpener": {
            "steps": result.state.step,
            "best_step": best.step,
            **best.metrics,
            **({"recognizer": dataclasses.asdict(recognizer.ancestor)} if recognizer else {}),
        },
    }

    # model.json names the recognizer by version, even if the config says @production.
    pinned = sharpen_settings.sharpen.model_copy(update={"recognizer": recognizer.pinned} if recognizer else {})
    settings = TtsTrainSettings.of(info.settings).model_copy(update={"sharpen": pinned})
    export_sharpened(model, settings, dataset, read_exported_weights(voice), result.weights, training, info.speakers)
    write_model_info(model, msgspec.structs.replace(read_model_info(model), dataset=info.dataset))
    training_data = read_training_data((voice / TRAINED_ON).read_bytes(), str(voice / TRAINED_ON))
    training_data.with_ancestors(recognizer.training_data if recognizer else None).write(model / TRAINED_ON)

    # The rest of the voice's output: logs, curves, metrics.
    for name in set(trained.outputs) - {"model"}:
        source = trained.path(name)
        target = work.folder / trained.outputs[name]
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)

    shutil.copytree(folder / "logs", work.folder / trained.outputs["logs"] / WORK, dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    work.outputs.update(trained.outputs)
    work.counts.update(trained.counts)
    work.metrics.update(trained.metrics)
    work.metrics.update({f"sharpener_{name}": value for name, value in best.metrics.items()})
    summary = f", {task.describe(best.metrics)}" if best.score is not None else ""
    print_status(f"train: the voice is sharpened with the weights of step {best.step}{summary}")
