"""The family `intents`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from voxline.families.family import EvaluateFamily, Family, PushFamily, StepTexts, TextJudge
from voxline.families.intents.settings import IntentsEvaluateSettings, IntentsPushSettings, IntentsTrainSettings
from voxline.metrics.catalog import Metric

if TYPE_CHECKING:
    from voxline.families.intents.inference import IntentClassifier
    from voxline.training.task import TrainingTask

METRICS = (
    # A recognizer that is evaluated with a classifier of intents is measured by it too.
    Metric(
        "intent_error_rate", "intent error rate of what was heard", ("intents", "asr"), "rate", unit="%",
        headline=True, label="intents wrong",
    ),
    Metric(
        "text_intent_error_rate", "intent error rate of the reference texts", ("intents",), "rate", unit="%",
        headline=True, label="of the texts",
    ),
)  # fmt: skip


class IntentsFamily(Family):
    """A classifier of the intents of texts: see `Family`."""

    name = "intents"
    hub_task = "text-classification"
    train_settings = IntentsTrainSettings
    evaluate_settings = IntentsEvaluateSettings
    push_settings = IntentsPushSettings
    description = "Trains a classifier of the intents of transcripts, and puts it into service if it passes the gate."
    copied_keys: ClassVar[Mapping[str, str]] = {"evaluate.field": "train.field"}
    metrics = METRICS
    reads_texts_alone = True
    step_texts: ClassVar[StepTexts] = {
        "train": {
            "": "Trains a classifier of the intents of texts and exports it.",
            "dataset": "the output of extract; its texts are read, not its features.",
            "registry": "folder or bucket URI of the model registry.",
        },
        "evaluate": {
            "": "Classifies the texts of the test split, and what a recognizer hears, "
            "and compares with the model in service.",
            "metrics": "intent error rates, to compare runs.",
            "report": "error rates by slice, confusions, the worst utterances.",
        },
    }

    def config_defaults(self, document: dict[str, Any]) -> dict[str, Any]:
        return {"validate": {"ctc_feasibility": {"severity": "off"}}}  # texts need no frames for their labels

    def models_in_service(self, config: Any) -> list[tuple[str, str, str]]:
        return [("evaluate.recognizer", config.evaluate.recognizer, "asr")]

    def load_model(self, folder: Path) -> "IntentClassifier":
        from voxline.families.intents.inference import IntentClassifier

        return IntentClassifier(folder)

    def text_judge(self, folder: Path) -> TextJudge:
        from voxline.families.intents.inference import IntentJudge

        return IntentJudge(folder)

    def task(self) -> type["TrainingTask"]:
        from voxline.families.intents.task import IntentsTask

        return IntentsTask

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.intents.evaluate import IntentsEvaluateFamily

        return IntentsEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.intents.push import IntentsPushFamily

        return IntentsPushFamily()
