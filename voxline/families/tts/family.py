"""The family `tts`."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from voxline.families.family import EvaluateFamily, Family, PostTrainingStage, PushFamily, StepTexts
from voxline.families.tts.settings import TtsEvaluateSettings, TtsPushSettings, TtsTrainSettings

if TYPE_CHECKING:
    from voxline.data.dataset import Dataset
    from voxline.training.task import TrainingTask


class TtsFamily(Family):
    """A voice: see `Family`."""

    name = "tts"
    train_settings = TtsTrainSettings
    evaluate_settings = TtsEvaluateSettings
    push_settings = TtsPushSettings
    step_texts: ClassVar[StepTexts] = {
        "train": {
            "": "Trains a TTS model and exports it.",
        },
        "evaluate": {
            "": "Synthesizes the test split with the exported model, and compares it with the model in service.",
            "metrics": "distances and error rates, to compare runs.",
            "report": "recorded and synthesized speech side by side, spectrograms, alignments.",
        },
    }

    def task(self) -> type["TrainingTask"]:
        from voxline.families.tts.task import TtsTask

        return TtsTask

    def training_settings(self, settings: TtsTrainSettings) -> TtsTrainSettings:
        return settings.of_voice_alone()

    def post_training(
        self, settings: TtsTrainSettings, registry: Path | str, dataset: "Dataset"
    ) -> list[PostTrainingStage]:
        """Sharpens the voice, then ships it with a vocoder."""
        from voxline.families.tts.sharpened_voice import find_listening_recognizer, sharpen_voice
        from voxline.families.tts.shipped_vocoder import find_shipped_vocoder, ship_with_vocoder

        stages: list[PostTrainingStage] = []
        vocoder = find_shipped_vocoder(settings, registry, dataset)
        if settings.sharpens:
            recognizer = find_listening_recognizer(settings, registry)
            stages.append(lambda voice, store: sharpen_voice(voice, dataset, settings, store, recognizer))
        if vocoder is not None:
            stages.append(lambda voice, store: ship_with_vocoder(voice, vocoder, store))
        return stages

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.tts.evaluate import TtsEvaluateFamily

        return TtsEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.tts.push import TtsPushFamily

        return TtsPushFamily()
