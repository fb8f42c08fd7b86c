"""Puts a vocoder into an exported voice, so that the voice that is evaluated, judged and pushed speaks through it.

model/vocoder/     the vocoder's exported files, byte for byte
model/model.json   "vocoder": its name, version and digest

The step export puts it there, under a key with the digests of both: another vocoder costs a copy, and no training.
"""

import shutil
from pathlib import Path

import msgspec

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.licences import NOT_STATED
from voxline.families.tts.settings import TtsTrainSettings
from voxline.inference.model_info import ShippedVocoder
from voxline.inference.saved_model import VOCODER, model_files, read_model_info, write_model_info
from voxline.inference.vocoder import check_same_mels
from voxline.registry.parents import Parent, find_other_model, licences_of
from voxline.registry.training_data import TRAINED_ON, read_training_data

SETTING = "train.export.vocoder"


def find_shipped_vocoder(settings: TtsTrainSettings, registry: Path | str, features: FeatureSettings) -> Parent | None:
    """The vocoder that a voice is to ship with; None if the settings name none.

    Args:
      features: of the voice.

    Raises:
      SettingsError: it does not exist, is of another family, or reads mels of other settings than the voice makes.
    """
    if not settings.export.vocoder:
        return None
    vocoder = find_other_model(settings.export.vocoder, registry, family="vocoder", setting=SETTING)
    own_features = FeatureSettings.of(vocoder.info.features, vocoder.label)
    check_same_mels(own_features, features, f"{SETTING}: {vocoder.label}", "this voice")
    return vocoder


def ship_vocoder(vocoder: Parent, target: Path) -> None:
    """Writes its files into a voice's folder, and says so in the voice's model.json and in its training data."""

    # Byte for byte, so that the digest of the vocoder stays.
    folder = vocoder.load_folder()
    ancestor = vocoder.ancestor
    shutil.rmtree(target / VOCODER, ignore_errors=True)  # another one, if the voice had one
    for file in model_files(folder):
        (target / VOCODER / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file, target / VOCODER / file)

    # The voice's model.json and its training data name the vocoder, so that a purge finds it.
    info = read_model_info(target)
    info.settings.setdefault("export", {})["vocoder"] = vocoder.pinned
    licences = sorted({name for names in licences_of(vocoder.info).values() for name in names})
    shipped = ShippedVocoder(
        name=ancestor.name,
        version=ancestor.version,
        digest=ancestor.digest,
        licences=[] if licences == [NOT_STATED] else licences,
    )
    write_model_info(target, msgspec.structs.replace(info, vocoder=shipped))
    trained_on = target / TRAINED_ON
    read_training_data(trained_on.read_bytes(), str(trained_on)).with_ancestors(vocoder.training_data).write(trained_on)
