"""The family `vocoder`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from voxline.errors import SettingsError
from voxline.families.family import AuxiliaryModel, EvaluateFamily, Family, PushFamily, StepTexts
from voxline.families.tts.family import speech_defaults
from voxline.families.vocoder.settings import (
    VocoderEvaluateSettings,
    VocoderExportForm,
    VocoderPushSettings,
    VocoderTrainSettings,
)
from voxline.registry.hub import is_hub_location

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.inference.vocoder import Vocoder
    from voxline.registry.parents import Parent
    from voxline.training.task import TrainingTask


class VocoderFamily(Family):
    """A vocoder: see `Family`."""

    name = "vocoder"
    hub_task = "audio-to-audio"
    train_settings = VocoderTrainSettings
    evaluate_settings = VocoderEvaluateSettings
    push_settings = VocoderPushSettings
    description = "Trains a vocoder on the dataset of a voice, and puts it into service if it passes the gate."
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

    def config_defaults(self, document: dict[str, Any]) -> dict[str, Any]:
        return speech_defaults(document, "vocos")

    def check_config(self, config: Any) -> None:
        features = config.extract.features.model_copy(update={"sample_rate": config.convert.sample_rate})
        config.train.check_features(features)
        if config.extract.speeds != [1.0]:
            raise SettingsError(
                f"extract.speeds is {config.extract.speeds}; a vocoder learns from recordings as they are: set it to "
                "[1.0]"
            )

    def models_in_service(self, config: Any) -> list[tuple[str, str, str]]:
        return [("evaluate.round_trip_recognizer", config.evaluate.round_trip_recognizer, "asr")]

    def public_parent(self, model: str) -> "Parent | None":
        from voxline.families.vocoder.parents import open_public_vocoder

        return open_public_vocoder(model) if is_hub_location(model) else super().public_parent(model)

    def export_published(
        self,
        parent: "Parent",
        folder: Path,
        form: Mapping[str, Any],
        name: str = "",
        onnx: str = "none",
        precision: str = "float32",
    ) -> bool:
        from voxline.families.vocoder.task import export_published_vocoder

        export_published_vocoder(folder, parent, name, onnx, precision)
        return True

    def load_model(self, folder: Path) -> "Vocoder":
        from voxline.inference.vocoder import Vocoder

        return Vocoder(folder)

    def task(self) -> type["TrainingTask"]:
        from voxline.families.vocoder.task import VocoderTask

        return VocoderTask

    def auxiliary_models(self, settings: VocoderTrainSettings) -> list[AuxiliaryModel]:
        return [AuxiliaryModel("voice", "train.voice", settings.voice, "tts")] if settings.voice else []

    def check_form(self, settings: VocoderTrainSettings, features: "FeatureSettings") -> None:
        if settings.export.onnx != "none":
            from voxline.families.vocoder.onnx import check_onnx_vocoder

            check_onnx_vocoder(settings.model)

    def export_again(self, model: Path, form: VocoderExportForm, folder: Path) -> None:
        from voxline.families.vocoder.task import export_vocoder_again

        export_vocoder_again(model, form, folder)

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.vocoder.evaluate import VocoderEvaluateFamily

        return VocoderEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.vocoder.push import VocoderPushFamily

        return VocoderPushFamily()
