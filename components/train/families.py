"""The model families that the train step knows.

A family is a folder beside this file with settings and a `TrainingTask`, and one line in `FAMILIES`. Nothing else in
the train step asks which family it works for. See docs/extend/family.md.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.conversion.settings import ConversionTrainSettings
from voxline.components.train.intents.settings import IntentsTrainSettings
from voxline.components.train.settings import TrainSettings
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.components.train.vocoder.settings import VocoderTrainSettings
from voxline.inference.saved_model import hidden_packages

if TYPE_CHECKING:
    from voxline.components.train.task import TrainingTask
    from voxline.data.dataset import Dataset


@dataclasses.dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
      settings: the class of the config's section `train`; its `family` is the key in `FAMILIES`.
      task: "module:class" of its `TrainingTask`; imported when training starts, since it imports TensorFlow.
    """

    settings: type[TrainSettings]
    task: str

    def build_task(
        self, settings: TrainSettings, dataset: "Dataset", parent: Mapping[str, Any] | None = None
    ) -> "TrainingTask":
        """The task, on the dataset as it prepares it.

        Args:
          parent: `model.json` of the model to start from.
        """
        # Keras looks for both, for wrappers and plots that training does not use: a fifth of the time to import it.
        with hidden_packages("sklearn", "matplotlib"):
            importlib.import_module("keras")
        module, name = self.task.split(":")
        chosen: type[TrainingTask] = getattr(importlib.import_module(module), name)
        return chosen(settings, chosen.prepare(settings, dataset, parent or {}))


FAMILIES: dict[str, Family] = {
    "asr": Family(AsrTrainSettings, "voxline.components.train.asr.task:AsrTask"),
    "tts": Family(TtsTrainSettings, "voxline.components.train.tts.task:TtsTask"),
    "vocoder": Family(VocoderTrainSettings, "voxline.components.train.vocoder.task:VocoderTask"),
    "intents": Family(IntentsTrainSettings, "voxline.components.train.intents.task:IntentsTask"),
    "conversion": Family(ConversionTrainSettings, "voxline.components.train.conversion.task:ConversionTask"),
}
