"""The family `conversion`, which a command trains and no pipeline."""

from pathlib import Path
from typing import TYPE_CHECKING

from voxline.families.conversion.settings import ConversionTrainSettings
from voxline.families.family import Family

if TYPE_CHECKING:
    from voxline.inference.voice_converter import VoiceConverter
    from voxline.training.task import TrainingTask


class ConversionFamily(Family):
    """A converter of voices: see `Family`."""

    name = "conversion"
    hub_task = "audio-to-audio"
    train_settings = ConversionTrainSettings

    def load_model(self, folder: Path) -> "VoiceConverter":
        from voxline.inference.voice_converter import VoiceConverter

        return VoiceConverter(folder)

    def task(self) -> type["TrainingTask"]:
        from voxline.families.conversion.task import ConversionTask

        return ConversionTask
