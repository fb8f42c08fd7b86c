"""Puts a vocoder into an exported voice, so that the voice that is evaluated, judged and pushed speaks through it.

model/vocoder/     the vocoder's exported files, byte for byte
model/model.json   "vocoder": its name, version and digest

The voice is trained first, under a key without the vocoder: another vocoder costs a copy, and no training. It is a step
output of its own, named by the digests of both.
"""

import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.families.tts.settings import TtsTrainSettings
from voxline.inference.model_info import ShippedVocoder
from voxline.inference.saved_model import (
    MODEL_JSON,
    VOCODER,
    model_digest,
    model_files,
    read_model_info,
    write_model_info,
)
from voxline.inference.vocoder import check_same_mels
from voxline.progress import print_status
from voxline.registry.parents import Parent, find_other_model
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.settings import Settings
from voxline.store.files import atomic_folder
from voxline.store.step_cache import StepOutput, cached_step

REVISION = 1
SETTING = "train.export.vocoder"


def find_shipped_vocoder(settings: TtsTrainSettings, registry: Path | str, dataset: Dataset) -> Parent | None:
    """The vocoder that a voice is to ship with; None if the settings name none.

    Raises:
      SettingsError: it does not exist, is of another family, or reads mels of other settings than the dataset has.
    """
    if not settings.export.vocoder:
        return None
    vocoder = find_other_model(settings.export.vocoder, registry, family="vocoder", setting=SETTING)
    features = FeatureSettings.of(vocoder.info.features, vocoder.label)
    check_same_mels(features, dataset.features, f"{SETTING}: {vocoder.label}", "this voice")
    return vocoder


def ship_with_vocoder(trained: StepOutput, vocoder: Parent, store: Path | str) -> StepOutput:
    """Train's output with the vocoder in its model."""
    inputs = {"model": model_digest(trained.path("model")), "vocoder": vocoder.ancestor.digest}
    with cached_step(store, "train", Settings(), inputs, revision=REVISION) as work:
        if not work.reused:
            work.unverified = ("logs",)
            with atomic_folder(work.folder / "model") as unfinished:
                shutil.copytree(trained.path("model"), unfinished, copy_function=_link_or_copy, dirs_exist_ok=True)
                _copy_vocoder(vocoder, unfinished)
            for name in set(trained.outputs) - {"model"}:
                source = trained.path(name)
                target = work.folder / trained.outputs[name]
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)  # a killed run may have copied some of it
                else:
                    shutil.copyfile(source, target)
            work.outputs.update(trained.outputs)
            work.counts.update(trained.counts)
            work.metrics.update(trained.metrics)
            print_status(f"train: the voice ships with the vocoder {vocoder.label}")

    return work


def _copy_vocoder(vocoder: Parent, target: Path) -> None:
    """Writes its files into a voice's folder, and says so in the voice's model.json and in its training data."""

    # Byte for byte, so that the digest of the vocoder stays.
    folder = vocoder.load_folder()
    ancestor = vocoder.ancestor
    for file in model_files(folder):
        (target / VOCODER / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file, target / VOCODER / file)

    # The voice's model.json and its training data name the vocoder, so that a purge finds it.
    info = read_model_info(target)
    info.settings["export"]["vocoder"] = vocoder.pinned
    shipped = ShippedVocoder(name=ancestor.name, version=ancestor.version, digest=ancestor.digest)
    write_model_info(target, msgspec.structs.replace(info, vocoder=shipped))
    trained_on = target / TRAINED_ON
    read_training_data(trained_on.read_bytes(), str(trained_on)).with_ancestors(vocoder.training_data).write(trained_on)


def _link_or_copy(source: str, target: str) -> None:
    """A second name for a weight file, which never changes; a copy of what is rewritten here."""
    if Path(source).name not in (MODEL_JSON, TRAINED_ON):
        with contextlib.suppress(OSError):  # not every disk has such names
            os.link(source, target)
            return
    shutil.copyfile(source, target)
