"""The family `asr`."""

from typing import TYPE_CHECKING, ClassVar

from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings, AsrTrainSettings
from voxline.families.family import EvaluateFamily, Family, PushFamily, StepTexts

if TYPE_CHECKING:
    from voxline.training.task import TrainingTask


class AsrFamily(Family):
    """A speech recognizer: see `Family`."""

    name = "asr"
    train_settings = AsrTrainSettings
    evaluate_settings = AsrEvaluateSettings
    push_settings = AsrPushSettings
    step_texts: ClassVar[StepTexts] = {
        "train": {
            "": "Trains a speech recognizer and exports it.",
        },
        "evaluate": {
            "": "Transcribes the test split with the exported model, and compares it with the model in service.",
            "metrics": "error rates, to compare runs.",
            "report": "plots, slices, and the worst utterances to listen to.",
        },
    }

    def task(self) -> type["TrainingTask"]:
        from voxline.families.asr.task import AsrTask

        return AsrTask

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.asr.evaluate import AsrEvaluateFamily

        return AsrEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.asr.push import AsrPushFamily

        return AsrPushFamily()
