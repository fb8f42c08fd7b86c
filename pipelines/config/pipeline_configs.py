"""The class of each pipeline's config: its own sections, defaults, and checks across sections."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import pydantic

from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.language.settings import LanguageSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.push.settings import PushSettings
from voxline.data.language_text import check_text_exists
from voxline.errors import SettingsError
from voxline.families.asr.export_checks import check_export
from voxline.families.asr.networks.settings import WHOLE_UTTERANCE
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings, AsrTrainSettings
from voxline.families.intents.settings import IntentsEvaluateSettings, IntentsPushSettings, IntentsTrainSettings
from voxline.families.tts.settings import TtsEvaluateSettings, TtsPushSettings, TtsTrainSettings
from voxline.families.vocoder.settings import VocoderEvaluateSettings, VocoderPushSettings, VocoderTrainSettings
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.config.run_config import NAME_PATTERN, Name, RunConfig
from voxline.registry.registry import Registry
from voxline.settings import merge
from voxline.text.alphabet import Alphabet
from voxline.text.subwords import check_size
from voxline.training.settings import TrainSettings


class TrainingRunConfig(RunConfig):
    """A run of a pipeline from a corpus to a pushed model; each model family has a class of its own."""

    copied_keys: ClassVar[Mapping[str, str]] = {
        **RunConfig.copied_keys,
        "train.name": "model",
        "evaluate.model_name": "model",
        "push.model_name": "model",
        "forecast.history": "notify.history",
    }

    account: ClassVar[str] = "voxline-train"

    model: Name = pydantic.Field(..., description="name of the model in the registry")
    forecast: ForecastSettings = pydantic.Field(
        default_factory=ForecastSettings, description="whether a training is worth it"
    )
    train: TrainSettings = pydantic.Field(..., description="the model and its training")
    evaluate: EvaluateSettings = pydantic.Field(..., description="what is measured")
    push: PushSettings = pydantic.Field(..., description="the gate")

    def derived_values(self) -> dict[str, tuple[Any, str]]:
        derived = super().derived_values()
        if self.corpus.corpora:
            derived["train.corpus_weights"] = (self.corpus.weights(), "the weights in corpus.corpora")
        return derived

    def optional_steps(self) -> tuple[str, ...]:
        return ("forecast",) if self.forecast.skip_below else ()

    def _check_in_service(self, setting: str, name: str, family: str) -> None:
        """Raises: SettingsError: a setting names a model that is not in the registry."""
        if name and Registry(self.registry, name).in_service() is None:
            raise SettingsError(
                f"{setting} is {name!r}, but {self.registry}/{name} has no version; push a model there first "
                f"(voxline run {family}, with this registry), or leave the setting empty"
            )


class AsrConfig(TrainingRunConfig):
    """A run of the `asr` pipeline."""

    copied_keys: ClassVar[Mapping[str, str]] = {
        **TrainingRunConfig.copied_keys,
        "language.frontend": "convert.frontend",
    }

    pipeline: Literal["asr"] = pydantic.Field("asr", description="the graph that this config is for")
    model: Name = pydantic.Field("asr", description="name of the model in the registry")
    train: AsrTrainSettings = pydantic.Field(default_factory=AsrTrainSettings, description="the model and its training")
    language: LanguageSettings = pydantic.Field(default_factory=LanguageSettings, description="the language model")
    evaluate: AsrEvaluateSettings = pydantic.Field(default_factory=AsrEvaluateSettings, description="error rates")
    push: AsrPushSettings = pydantic.Field(default_factory=AsrPushSettings, description="the gate")

    @pydantic.model_validator(mode="after")
    def _check_features(self) -> Self:
        """Refuses before the first step what train would refuse after extract."""
        self.train.model.check_features(self.extract.features)
        features = self.extract.features.model_copy(update={"sample_rate": self.convert.sample_rate})
        check_export(self.train.model, self.train.export, features)
        if self.train.subwords and not self.train.start.model:  # a child keeps the subwords of its parent
            check_size(self.train.subwords, Alphabet.from_name(self.convert.alphabet))
        return self

    def optional_steps(self) -> tuple[str, ...]:
        return (*super().optional_steps(), *(() if self.language.kind == "none" else ("language",)))

    def derived_values(self) -> dict[str, tuple[Any, str]]:
        origin = "extract.features.hop_seconds, train.model's stride and the fastest of extract.speeds"
        derived = super().derived_values()
        pooled = self.train.model.time_stride == WHOLE_UTTERANCE  # train leaves out what is more than one symbol
        if not self.train.subwords and not pooled:  # fewer than characters, and not known before train learns them
            derived["validate.frames_per_second"] = (self.frames_per_second(), origin)
        if self.language.kind != "none" and self.language.text:
            text = self.language.text_settings().plain() | {"frontend": self.convert.frontend.plain()}
            derived["train.language_text"] = (text, "language")
        return derived

    def check_inputs(self) -> None:
        check_text_exists(self.language.text_settings())

    def check_registry(self) -> None:
        self._check_in_service("evaluate.intents", self.evaluate.intents, "intents")

    def frames_per_second(self) -> float:
        """The model's output frames per second of a recording at the fastest speed; CTC needs one for each label."""
        rate = self.convert.sample_rate
        features = self.extract.features.model_copy(update={"sample_rate": rate})
        return round(rate / (features.hop_length * self.train.model.time_stride * max(self.extract.speeds)), 6)


class RefreshConfig(RunConfig):
    """A run of the `refresh` pipeline."""

    default_folders: ClassVar[Mapping[str, str]] = {**RunConfig.default_folders, "datasets": "datasets"}

    required_on_a_cluster: ClassVar[Sequence[str]] = ("store", "datasets", "corpus__uri")

    pipeline: Literal["refresh"] = pydantic.Field("refresh", description="the graph that this config is for")
    model: str = pydantic.Field(
        "",
        pattern=NAME_PATTERN.replace("^", "^(").replace("$", ")?$"),
        description="name of the model whose dataset is the baseline for drift; empty: no check for drift",
    )
    datasets: str = pydantic.Field(
        "", description="folder or bucket URI of dataset versions; a run on this machine defaults to <run-dir>/datasets"
    )
    publish: PublishSettings = pydantic.Field(default_factory=PublishSettings, description="the published dataset")

    def history_root(self) -> str:
        return self.datasets


DEFAULT_FRONTEND = "english"
FRONTEND_ALPHABETS = {
    "english": "english_speech",
    "english_phonemes": "phonemes",
    "mandarin": "pinyin_speech",
    "pinyin": "pinyin_speech",
}
"""Text frontend → the alphabet of its output, for configs that name none."""

# A TTS corpus has one speaker, in train and in test. Attention does not limit labels to frames, as CTC does.
SPEECH_DEFAULTS = {
    "corpus": {"format": "ljspeech"},
    "convert": {"frontend": {"kind": DEFAULT_FRONTEND}},
    "validate": {
        "schema": "tts",
        "ctc_feasibility": {"severity": "off"},
        "speaker_overlap": {"severity": "off"},
        "dominant_speaker": {"severity": "off"},
    },
}


class SpeechRunConfig(TrainingRunConfig):
    """A run of a pipeline that trains a model which makes speech: a voice, or a vocoder on the voice's dataset."""

    network: ClassVar[str]
    """The default of `train.model.kind`."""

    evaluate: TtsEvaluateSettings | VocoderEvaluateSettings = pydantic.Field(..., description="what is measured")

    def check_registry(self) -> None:
        self._check_in_service("evaluate.round_trip_recognizer", self.evaluate.round_trip_recognizer, "asr")

    @classmethod
    def defaults(cls, document: Values) -> Values:
        kind = get_key(document, "convert.frontend.kind")
        alphabet = FRONTEND_ALPHABETS.get(DEFAULT_FRONTEND if kind is None else str(kind))
        derived: Values = {"convert": {"alphabet": alphabet}} if alphabet else {}
        derived["train"] = {"model": {"kind": cls.network}}
        return merge(super().defaults(document), merge(SPEECH_DEFAULTS, derived))


class TtsConfig(SpeechRunConfig):
    """A run of the `tts` pipeline."""

    network: ClassVar[str] = "tacotron2"

    pipeline: Literal["tts"] = pydantic.Field("tts", description="the graph that this config is for")
    model: Name = pydantic.Field("tts", description="name of the model in the registry")
    train: TtsTrainSettings = pydantic.Field(default_factory=TtsTrainSettings, description="the model and its training")
    evaluate: TtsEvaluateSettings = pydantic.Field(
        default_factory=TtsEvaluateSettings, description="distances, attention and the round trip"
    )
    push: TtsPushSettings = pydantic.Field(default_factory=TtsPushSettings, description="the gate")

    def check_registry(self) -> None:
        super().check_registry()
        name, _, version = self.train.sharpen.recognizer.partition("@")
        if self.train.sharpens and version == "production" and "/" not in name:
            self._check_in_service("train.sharpen.recognizer", name, "asr")

    @pydantic.model_validator(mode="after")
    def _features_suit_the_network(self) -> Self:
        """Refuses before the first step what train would refuse after extract."""
        self.train.check_features(self.extract.features)
        return self


class VocoderConfig(SpeechRunConfig):
    """A run of the `vocoder` pipeline."""

    network: ClassVar[str] = "vocos"

    pipeline: Literal["vocoder"] = pydantic.Field("vocoder", description="the graph that this config is for")
    model: Name = pydantic.Field("vocoder", description="name of the model in the registry")
    train: VocoderTrainSettings = pydantic.Field(
        default_factory=VocoderTrainSettings, description="the model and its training"
    )
    evaluate: VocoderEvaluateSettings = pydantic.Field(
        default_factory=VocoderEvaluateSettings, description="distances of spectra, beside Griffin-Lim's"
    )
    push: VocoderPushSettings = pydantic.Field(default_factory=VocoderPushSettings, description="the gate")

    @pydantic.model_validator(mode="after")
    def _features_suit_the_network(self) -> Self:
        """Refuses before the first step what train would refuse after extract."""
        features = self.extract.features.model_copy(update={"sample_rate": self.convert.sample_rate})
        self.train.check_features(features)
        if self.extract.speeds != [1.0]:
            raise SettingsError(
                f"extract.speeds is {self.extract.speeds}; a vocoder learns from recordings as they are: set it to "
                "[1.0]"
            )
        return self


class IntentsConfig(TrainingRunConfig):
    """A run of the `intents` pipeline."""

    copied_keys: ClassVar[Mapping[str, str]] = {**TrainingRunConfig.copied_keys, "evaluate.field": "train.field"}

    pipeline: Literal["intents"] = pydantic.Field("intents", description="the graph that this config is for")
    model: Name = pydantic.Field("intents", description="name of the model in the registry")
    train: IntentsTrainSettings = pydantic.Field(
        default_factory=IntentsTrainSettings, description="the model and its training"
    )
    evaluate: IntentsEvaluateSettings = pydantic.Field(
        default_factory=IntentsEvaluateSettings, description="intent error rates"
    )
    push: IntentsPushSettings = pydantic.Field(default_factory=IntentsPushSettings, description="the gate")

    @classmethod
    def defaults(cls, document: Values) -> Values:
        # A classifier of texts needs no frames for its labels.
        return merge(super().defaults(document), {"validate": {"ctc_feasibility": {"severity": "off"}}})

    def check_registry(self) -> None:
        self._check_in_service("evaluate.recognizer", self.evaluate.recognizer, "asr")


CONFIG_CLASSES: dict[str, type[RunConfig]] = {
    "asr": AsrConfig,
    "tts": TtsConfig,
    "vocoder": VocoderConfig,
    "intents": IntentsConfig,
    "refresh": RefreshConfig,
}
"""Pipeline → the class of its config."""
