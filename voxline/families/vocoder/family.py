"""The family `vocoder`."""

from typing import TYPE_CHECKING, ClassVar

from voxline.families.family import AuxiliaryModel, EvaluateFamily, Family, PushFamily, StepTexts
from voxline.families.vocoder.settings import VocoderEvaluateSettings, VocoderPushSettings, VocoderTrainSettings

if TYPE_CHECKING:
    from voxline.training.task import TrainingTask


class VocoderFamily(Family):
    """A vocoder: see `Family`."""

    name = "vocoder"
    train_settings = VocoderTrainSettings
    evaluate_settings = VocoderEvaluateSettings
    push_settings = VocoderPushSettings
    step_texts: ClassVar[StepTexts] = {
        "train": {
            "": "Trains a vocoder and exports it.",
        },
        "evaluate": {
            "": "Vocodes the mels of the test split with the exported model, "
            "and compares it with the model in service.",
            "metrics": "distances and error rates, to compare runs.",
            "report": "speech as recorded, by Griffin-Lim and by the model, with spectrograms.",
        },
    }

    def task(self) -> type["TrainingTask"]:
        from voxline.families.vocoder.task import VocoderTask

        return VocoderTask

    def auxiliary_models(self, settings: VocoderTrainSettings) -> list[AuxiliaryModel]:
        return [AuxiliaryModel("voice", "train.voice", settings.voice, "tts")] if settings.voice else []

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.vocoder.evaluate import VocoderEvaluateFamily

        return VocoderEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.vocoder.push import VocoderPushFamily

        return VocoderPushFamily()
