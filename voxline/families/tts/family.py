"""The family `tts`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from voxline.errors import SettingsError
from voxline.families.family import (
    Companion,
    DemoCorpus,
    EvaluateFamily,
    Family,
    PostTrainingStage,
    PushFamily,
    StepTexts,
)
from voxline.families.tts.settings import TtsEvaluateSettings, TtsExportForm, TtsPushSettings, TtsTrainSettings
from voxline.registry.hub import is_hub_location
from voxline.settings import merge

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.data.dataset import Dataset
    from voxline.inference.synthesizer import Synthesizer
    from voxline.registry.parents import Parent
    from voxline.training.task import TrainingTask

DEFAULT_FRONTEND = "english"
FRONTEND_ALPHABETS = {
    "english": "english_speech",
    "english_phonemes": "phonemes",
    "phonemes": "ipa",
    "mandarin": "pinyin_speech",
    "pinyin": "pinyin_speech",
}
"""Text frontend → the alphabet of its output, for configs that name none."""

_VITS_DEFAULTS = {
    "train": {
        "learning_rate": 2e-4,
        "beta_1": 0.8,
        "beta_2": 0.99,
        "epsilon": 1e-9,
        "weight_decay": 0.01,
        "clip_norm": 1_000.0,
    }
}
"""The authors' optimizer; gradients of sums over the latent are far larger than those of mels."""

# Symbols that the recordings lack are known to the model that a voice starts from.
_STARTED_DEFAULTS = {"validate": {"unseen_characters": {"severity": "warning"}}}

# The speakers of a TTS corpus are in train and in test. Attention does not limit labels to frames, as CTC does.
_SPEECH_DEFAULTS = {
    "corpus": {"format": "ljspeech"},
    "convert": {"frontend": {"kind": DEFAULT_FRONTEND}},
    "validate": {
        "schema": "tts",
        "ctc_feasibility": {"severity": "off"},
        "speaker_overlap": {"severity": "off"},
        "dominant_speaker": {"severity": "off"},
    },
}


def speech_defaults(document: dict[str, Any], network: str) -> dict[str, Any]:
    """Defaults of a pipeline for a model that makes speech: a voice, or a vocoder on the voice's dataset.

    Args:
      document: what the config sets.
      network: the default of `train.model.kind`.
    """
    kind = _value_at(document, "convert", "frontend", "kind")
    alphabet = FRONTEND_ALPHABETS.get(DEFAULT_FRONTEND if kind is None else str(kind))
    derived: dict[str, Any] = {"convert": {"alphabet": alphabet}} if alphabet else {}
    return merge(_SPEECH_DEFAULTS, {**derived, "train": {"model": {"kind": network}}})


def _value_at(document: dict[str, Any], *keys: str) -> Any:
    """What a config sets at a key of nested sections; None: nothing."""
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


class TtsFamily(Family):
    """A voice: see `Family`."""

    name = "tts"
    hub_task = "text-to-speech"
    train_settings = TtsTrainSettings
    evaluate_settings = TtsEvaluateSettings
    push_settings = TtsPushSettings
    description = "Trains a TTS model, and puts it into service if it passes the gate."
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

    def config_defaults(self, document: dict[str, Any]) -> dict[str, Any]:
        defaults = speech_defaults(document, "tacotron2")
        if _value_at(document, "train", "start", "model"):
            defaults = merge(defaults, _STARTED_DEFAULTS)
        return merge(defaults, _VITS_DEFAULTS) if _value_at(document, "train", "model", "kind") == "vits" else defaults

    def training_inputs(self, settings: Any, dataset: "Dataset") -> dict[str, str]:
        from voxline.families.tts.speakers import speakers_of
        from voxline.store.hashing import hash_file, hash_value
        from voxline.store.localize import localize

        # Batches of few lengths: the noise that a step draws follows from them.
        inputs = {"batches": "few lengths"} if settings.model.kind == "vits" else {}
        # Of a public voice: speech of the whole noise, and the rate warms up behind the posterior encoder's steps.
        if settings.model.kind == "vits" and settings.start.model and settings.vits.posterior_steps:
            inputs |= {"warm_up": "of each phase", "posterior": "of whole noise"}
        # By search it was for every voice once, and then by the parent's speech whatever symbols that one lacks. Which
        # of both it is follows from the dataset, its alphabet and the parent, which are in the key.
        if settings.model.kind == "vits" and settings.aligns_by_parent:
            inputs |= {"alignment": "by the parent's speech, of symbols that it has"}
        if settings.fastspeech.speaker_encoder:
            wheel = localize(settings.fastspeech.speaker_encoder)
            if not wheel.is_file():
                raise SettingsError(
                    f"train.fastspeech.speaker_encoder: {wheel} is not here; pip download --no-deps Resemblyzer==0.1.4"
                )
            inputs |= {"speaker_encoder": hash_file(wheel)}
        names = speakers_of(dataset, settings)
        return inputs | ({"speakers": hash_value(names)} if names else {})

    def public_parent(self, model: str) -> "Parent | None":
        from voxline.families.tts.published_tacotron2 import is_tacotron2, open_tacotron2
        from voxline.families.tts.vits.parents import open_public_voice
        from voxline.families.tts.vits.piper import is_piper_voice

        if is_tacotron2(model):
            return open_tacotron2(model)
        if is_hub_location(model) or is_piper_voice(model):
            return open_public_voice(model)
        return super().public_parent(model)

    def check_config(self, config: Any) -> None:
        # The sample rate of the features follows from convert's only afterwards.
        features = config.extract.features.model_copy(update={"sample_rate": config.convert.sample_rate})
        config.train.check_features(features)
        if config.train.model.kind == "vits" and config.extract.speeds != [1.0]:
            raise SettingsError(
                f"extract.speeds is {config.extract.speeds}; a vits learns from recordings as they are: set it to [1.0]"
            )
        if config.convert.max_negative_share:
            raise SettingsError(
                f"convert.max_negative_share is {config.convert.max_negative_share:g}, and a voice speaks texts alone; "
                "set it to 0"
            )

    def models_in_service(self, config: Any) -> list[tuple[str, str, str]]:
        listening = ("round_trip_recognizer", "public_recognizer")
        needed = [(f"evaluate.{setting}", getattr(config.evaluate, setting), "asr") for setting in listening]
        name, _, version = config.train.sharpen.recognizer.partition("@")
        if config.train.sharpens and version == "production" and "/" not in name:
            needed.append(("train.sharpen.recognizer", name, "asr"))
        return needed

    def export_published(
        self,
        parent: "Parent",
        folder: Path,
        form: Mapping[str, Any],
        name: str = "",
        onnx: str = "none",
        precision: str = "float32",
    ) -> bool:
        if parent.info.kind == "tacotron2":
            from voxline.families.tts.export import export_published_tacotron2

            export_published_tacotron2(folder, parent, name, onnx, precision)
            return True

        from voxline.families.tts.vits.export import export_published_vits

        export_published_vits(folder, parent, name, onnx, precision)
        return True

    def demo_corpora(self) -> Mapping[str, DemoCorpus]:
        from voxline.components.demo_corpus.settings import RoundTripCorpusSettings, TtsCorpusSettings
        from voxline.families.tts.demo_corpora import write_round_trip_corpus, write_tts_corpus

        english = DemoCorpus(TtsCorpusSettings, write_tts_corpus, "LJSpeech")
        return {
            "digits": english,
            "phrases": english,
            "mandarin": DemoCorpus(TtsCorpusSettings, write_tts_corpus, "data_thchs30"),
            "round_trip": DemoCorpus(RoundTripCorpusSettings, write_round_trip_corpus),
        }

    def load_model(self, folder: Path) -> "Synthesizer":
        from voxline.inference.synthesizer import Synthesizer

        return Synthesizer(folder)

    def task(self) -> type["TrainingTask"]:
        from voxline.families.tts.task import TtsTask

        return TtsTask

    def task_of(self, settings: Any) -> type["TrainingTask"]:
        if not isinstance(settings, TtsTrainSettings) or settings.model.kind != "vits":
            return self.task()
        from voxline.families.tts.vits.task import VitsTask

        return VitsTask

    def training_settings(self, settings: TtsTrainSettings) -> TtsTrainSettings:
        return settings.of_voice_alone()

    def post_training(
        self, settings: TtsTrainSettings, registry: Path | str, dataset: "Dataset"
    ) -> list[PostTrainingStage]:
        """Sharpens the voice."""
        from voxline.families.tts.sharpened_voice import find_listening_recognizer, sharpen_voice

        if not settings.sharpens:
            return []
        recognizer = find_listening_recognizer(settings, registry)
        return [lambda voice, store: sharpen_voice(voice, dataset, settings, store, recognizer)]

    def check_form(self, settings: TtsTrainSettings, features: "FeatureSettings") -> None:
        if settings.export.onnx != "none" and settings.model.kind != "vits":
            from voxline.families.tts.onnx import check_onnx_voice

            check_onnx_voice(settings.model.kind, settings.export.onnx)

    def companions(
        self, settings: TtsTrainSettings, registry: Path | str, features: "FeatureSettings"
    ) -> list[Companion]:
        """The vocoder that the voice speaks through."""
        from voxline.families.tts.shipped_vocoder import find_shipped_vocoder, ship_vocoder

        vocoder = find_shipped_vocoder(settings, registry, features)
        if vocoder is None:
            return []
        label = f"the vocoder {vocoder.label}"
        return [Companion("vocoder", vocoder.ancestor.digest, label, partial(ship_vocoder, vocoder))]

    def export_again(self, model: Path, form: TtsExportForm, folder: Path) -> None:
        from voxline.families.tts.vits.export import export_vits_again, is_vits

        if is_vits(model):
            export_vits_again(model, form, folder)
            return

        from voxline.families.tts.sharpening import export_tts_again

        export_tts_again(model, form, folder)

    def evaluation(self) -> EvaluateFamily:
        from voxline.families.tts.evaluate import TtsEvaluateFamily

        return TtsEvaluateFamily()

    def promotion(self) -> PushFamily:
        from voxline.families.tts.push import TtsPushFamily

        return TtsPushFamily()
