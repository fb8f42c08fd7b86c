"""The family `asr`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from voxline.errors import SettingsError
from voxline.families.asr.settings import AsrEvaluateSettings, AsrExportForm, AsrPushSettings, AsrTrainSettings
from voxline.families.family import DemoCorpus, EvaluateFamily, Family, PushFamily, StepTexts, text_judging_families
from voxline.inference.model_info import ATTENTION
from voxline.registry.hub import is_hub_location, is_release

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.inference.recognizer import Recognizer
    from voxline.registry.parents import Parent
    from voxline.training.task import TrainingTask

PUBLISHED_SUFFIX = ".safetensors"
"""Of a file of published weights of Mozilla's DeepSpeech."""


class AsrFamily(Family):
    """A speech recognizer: see `Family`."""

    name = "asr"
    hub_task = "automatic-speech-recognition"
    train_settings = AsrTrainSettings
    evaluate_settings = AsrEvaluateSettings
    push_settings = AsrPushSettings
    description = "Trains a speech recognizer from a corpus, and puts it into service if it passes the gate."
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

    def config_defaults(self, document: dict[str, Any]) -> dict[str, Any]:
        # What a public model has fixed: the sizes of its network, and the features that it reads.
        train = document.get("train")
        start = train.get("start") if isinstance(train, dict) else None
        named = [start.get(key) for key in ("model", "fallback")] if isinstance(start, dict) else []
        model = next((name for name in named if isinstance(name, str) and is_hub_location(name)), "")
        if not model or is_release(model, "train.start.model"):
            return {}
        from voxline.families.asr.public_parents import public_config

        return public_config(model)

    def check_config(self, config: Any) -> None:
        from voxline.families.asr.export_checks import check_export
        from voxline.text.alphabet import Alphabet
        from voxline.text.subwords import check_size

        train = config.train
        if train.start.fallback and is_hub_location(train.start.model):
            raise SettingsError(
                f"train.start.fallback is {train.start.fallback!r}, and train.start.model is {train.start.model!r}, a "
                "public model, which is there each night: name the model that is started from once it is in service, "
                "such as asr@production, or leave the fallback out"
            )
        train.model.check_features(config.extract.features)
        if train.output_kind == ATTENTION and config.language.kind != "none":
            raise SettingsError(
                f"language.kind is {config.language.kind}, and train.model.head is decoder: a language model needs the "
                "output of a CTC model for each frame; set language.kind to none, or train.model.head to ctc"
            )
        features = config.extract.features.model_copy(update={"sample_rate": config.convert.sample_rate})
        check_export(train.model, train.export, features)
        if train.subwords and not train.start.model:  # a child keeps the subwords of its parent
            check_size(train.subwords, Alphabet.from_name(config.convert.alphabet))

    def derived_values(self, config: Any) -> dict[str, tuple[Any, str]]:
        from voxline.families.asr.networks.settings import WHOLE_UTTERANCE

        derived: dict[str, tuple[Any, str]] = {}
        pooled = config.train.model.time_stride == WHOLE_UTTERANCE  # train leaves out what is more than one symbol
        start = config.train.start
        pieces = config.train.model.parents_have_pieces and start.model and start.keep == "all"
        # Labels are fewer than characters, and not known before train learns subwords or has the parent's tokenizer.
        # A decoder needs no frame for a label.
        attends = config.train.output_kind == ATTENTION
        if not (config.train.subwords or pieces or pooled or attends):
            origin = "extract.features.hop_seconds, train.model's stride and the fastest of extract.speeds"
            derived["validate.frames_per_second"] = (_frames_per_second(config), origin)
        if "wer" in config.push.max_regression:
            derived["validate.gate_margin.margin"] = (config.push.max_regression["wer"], "push.max_regression.wer")
            derived["validate.gate_margin.confidence"] = (config.push.confidence, "push.confidence")
        if config.language.kind != "none" and config.language.text:
            text = config.language.text_settings().plain() | {
                "frontend": config.convert.frontend.plain(),
                "alphabet": config.convert.alphabet,
            }
            derived["train.language_text"] = (text, "language")
        return derived

    def check_inputs(self, config: Any) -> None:
        from voxline.data.language_text import check_text_exists

        arpa = config.language.arpa if config.language.kind != "none" else ""
        check_text_exists(config.language.text_settings(), arpa)

    def models_in_service(self, config: Any) -> list[tuple[str, str, str]]:
        judge = config.evaluate.text_judge
        return [("evaluate.text_judge", judge, " or ".join(text_judging_families()))] if judge else []

    def public_parent(self, model: str) -> "Parent | None":
        if is_hub_location(model):
            from voxline.families.asr.public_parents import find_public_parent

            return find_public_parent(model)
        if model.endswith(PUBLISHED_SUFFIX):
            from voxline.families.asr.published_weights import find_published

            return find_published(model)
        return None

    def published_form(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        # Whisper hears with its decoder, which is asked for a language; its encoder alone, under CTC, hears nothing.
        model = settings.get("model", {})
        return {"head": "decoder", "prompt": model.get("prompt", {})} if model.get("head") == "decoder" else {}

    def export_published(
        self,
        parent: "Parent",
        folder: Path,
        form: Mapping[str, Any],
        name: str = "",
        onnx: str = "none",
        precision: str = "float32",
    ) -> bool:
        info = parent.info
        writes = info.tokenizer is not None and form.get("head") == "decoder"
        if not (writes if info.kind == ATTENTION else info.alphabet):
            return False
        from voxline.families.asr.published_export import export_published_asr

        export_published_asr(folder, parent, form, name, onnx, precision)
        return True

    def demo_corpora(self) -> Mapping[str, DemoCorpus]:
        from voxline.components.demo_corpus.settings import CommandsCorpusSettings, WordsCorpusSettings
        from voxline.families.asr.demo_corpora import write_commands_corpus, write_words_corpus

        return {
            "commands": DemoCorpus(CommandsCorpusSettings, write_commands_corpus),
            "words": DemoCorpus(WordsCorpusSettings, write_words_corpus),
        }

    def load_model(self, folder: Path) -> "Recognizer":
        from voxline.inference.recognizer import Recognizer

        return Recognizer(folder)

    def task(self) -> type["TrainingTask"]:
        from voxline.families.asr.task import AsrTask

        return AsrTask

    def task_of(self, settings: AsrTrainSettings) -> type["TrainingTask"]:
        if settings.output_kind != ATTENTION:
            return self.task()
        from voxline.families.asr.attention import AttentionTask

        return AttentionTask

    def check_form(self, settings: AsrTrainSettings, features: "FeatureSettings") -> None:
        from voxline.families.asr.export_checks import check_export

        check_export(settings.model, settings.export, features)

    def export_again(self, model: Path, form: AsrExportForm, folder: Path) -> None:
        from voxline.families.asr.published_export import export_asr_again

        export_asr_again(model, form, folder)

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.asr.evaluate import AsrEvaluateFamily

        return AsrEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.asr.push import AsrPushFamily

        return AsrPushFamily()


def _frames_per_second(config: Any) -> float:
    """The model's output frames per second of a recording at the fastest speed; CTC needs one for each label."""
    rate = config.convert.sample_rate
    features = config.extract.features.model_copy(update={"sample_rate": rate})
    return round(rate / (features.hop_length * config.train.model.time_stride * max(config.extract.speeds)), 6)
