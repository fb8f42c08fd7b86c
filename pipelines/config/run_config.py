"""The config of a run: its name, its locations, and a section for each step. Each pipeline has a class of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
import yaml

from voxline.components.convert.settings import ConvertSettings
from voxline.components.evaluate.settings import (
    AsrEvaluateSettings,
    EvaluateSettings,
    IntentsEvaluateSettings,
    TtsEvaluateSettings,
    VocoderEvaluateSettings,
)
from voxline.components.extract.settings import ExtractSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.language.settings import LanguageSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.push.settings import (
    AsrPushSettings,
    IntentsPushSettings,
    PushSettings,
    TtsPushSettings,
    VocoderPushSettings,
)
from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.intents.settings import IntentsTrainSettings
from voxline.components.train.settings import TrainSettings
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.components.train.vocoder.settings import VocoderTrainSettings
from voxline.components.validate.settings import ValidateSettings
from voxline.data.language_text import check_text_exists
from voxline.errors import SettingsError
from voxline.notify.settings import MlflowUri, NotifySettings
from voxline.pipelines.config.cluster import ClusterSettings
from voxline.pipelines.config.keys import Values, get_key, set_key
from voxline.pipelines.config.locations import is_http_corpus, path_keys
from voxline.registry.registry import Registry
from voxline.registry.signing import PRIVATE_KEY_ENV, PUBLIC_KEY_ENV
from voxline.settings import Settings, merge
from voxline.store.uris import is_remote
from voxline.text.alphabet import Alphabet
from voxline.text.subwords import check_size

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
Name = Annotated[str, pydantic.Field(pattern=NAME_PATTERN)]


class TrackingSettings(Settings):
    """Experiment tracking; off by default. It needs `pip install mlflow-skinny`."""

    mlflow: MlflowUri = pydantic.Field(
        "",
        description="MLflow's tracking URI, or a folder for its file store, such as runs/mlruns; empty: not logged",
    )
    experiment: str = pydantic.Field("", description="of MLflow; the model's name if empty")


class SigningSettings(Settings):
    """Signatures of model versions by OpenSSF Model Signing; they need `pip install model-signing pyopenssl`."""

    private_key: str = pydantic.Field(
        "",
        description="file of the elliptic curve key, in PEM, that signs each version which is pushed; empty: unsigned",
    )
    public_key: str = pydantic.Field(
        "", description="file of the public key: a version without its signature is not loaded; empty: not checked"
    )

    def environment(self) -> dict[str, str]:
        """The variables that steps read the locations of the keys from."""
        keys = {PRIVATE_KEY_ENV: self.private_key, PUBLIC_KEY_ENV: self.public_key}
        return {name: file for name, file in keys.items() if file}


class RunConfig(Settings):
    """A run of a pipeline; each pipeline has a class of its own."""

    copied_keys: ClassVar[Mapping[str, str]] = {
        "extract.alphabet": "convert.alphabet",
        "extract.features.sample_rate": "convert.sample_rate",
        "extract.frontend": "convert.frontend",
    }
    """Key → the key whose value it takes."""

    default_folders: ClassVar[Mapping[str, str]] = {"store": "store", "registry": "registry"}
    """Key of a location → the folder in the run's folder that it defaults to."""

    required_on_a_cluster: ClassVar[Sequence[str]] = ("store", "registry", "corpus__uri")
    """Parameters of the KFP pipeline without a default."""

    account: ClassVar[str] = "voxline-data"
    """The ServiceAccount of k8s/ with the rights that the pipeline needs."""

    pipeline: str = pydantic.Field(..., description="the graph that this config is for")
    name: Name = pydantic.Field(..., description="of the run; its folder is runs/<name>")
    store: str = pydantic.Field(
        "",
        description="folder or bucket URI of all step outputs; a run on this machine defaults to <run-dir>/store",
    )
    registry: str = pydantic.Field(
        "",
        description="folder or bucket URI of the model registry; a run on this machine defaults to <run-dir>/registry",
    )
    model: str = pydantic.Field("", description="name of the model in the registry")
    corpus: CorporaSettings = pydantic.Field(..., description="the recordings")
    convert: ConvertSettings = pydantic.Field(default_factory=ConvertSettings, description="any audio to wav")
    validate_: ValidateSettings = pydantic.Field(
        default_factory=ValidateSettings, alias="validate", description="checks before training"
    )
    extract: ExtractSettings = pydantic.Field(default_factory=ExtractSettings, description="features, shards")
    tracking: TrackingSettings = pydantic.Field(
        default_factory=TrackingSettings, description="where a run on this machine is logged to besides its folder"
    )
    signing: SigningSettings = pydantic.Field(default_factory=SigningSettings, description="signatures of models")
    notify: NotifySettings = pydantic.Field(
        default_factory=NotifySettings,
        description="where a run's outcome is sent",
    )
    cluster: ClusterSettings = pydantic.Field(
        default_factory=ClusterSettings, description="resources and placement on a cluster; ignored on this machine"
    )

    @classmethod
    def defaults(cls, document: Values) -> Values:
        """Defaults of this pipeline that differ from those of its steps."""
        return {"cluster": {"service_account": cls.account}}

    @classmethod
    def pipeline_name(cls) -> str:
        return str(cls.model_fields["pipeline"].default)

    @classmethod
    def example(cls) -> Values:
        """A config in which every key has its default, as JSON values."""
        document = merge(cls.defaults({}), {"name": cls.pipeline_name(), "corpus": {"uri": ""}})
        return cls.model_validate(document).plain()

    def derived_values(self) -> dict[str, tuple[Any, str]]:
        """Key → its value, and the key or the rule that it follows from."""
        values = self.plain()
        return {key: (get_key(values, origin), origin) for key, origin in self.copied_keys.items()}

    def optional_steps(self) -> tuple[str, ...]:
        """The steps that this run has, and others of its pipeline have not; see `graph.OPTIONAL_STEPS`."""
        return ()

    def history_root(self) -> str:
        """The location that the run's result goes to, beside which its history is kept."""
        return self.registry

    def check_inputs(self) -> None:
        """Refuses a run if a file that a later step reads does not exist.

        Raises:
          SettingsError: names the file.
        """

    def check_registry(self) -> None:
        """Refuses a run if a model that a step will need is not in the registry.

        Raises:
          SettingsError: names the model.
        """

    def locations(self) -> dict[str, str]:
        """The keys that hold a path or URI of this pipeline, with their values."""
        values = self.plain()
        found: dict[str, str] = {}
        for key in path_keys(values):
            value = get_key(values, key)
            if isinstance(value, list):
                found |= {f"{key}.{number}": str(one) for number, one in enumerate(value)}
            elif value:
                found[key] = str(value)
        return found

    def section(self, step: str) -> Settings:
        """The settings of a step."""
        name = {"ingest": "corpus", "validate": "validate_"}.get(step, step)
        section: Settings = getattr(self, name)
        return section

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def recorded(self) -> dict[str, Any]:
        """The values for records and pages, without the query of a corpus' http(s) address: it may be a signature.

        A run from such a record finds the archive in the store by its checksum, or needs the address again.
        """
        values = self.plain()
        for key in path_keys(values):
            value = get_key(values, key)
            if is_http_corpus(key, value or ""):
                set_key(values, key, value.partition("?")[0])
        return values

    def to_yaml(self) -> str:
        """The effective config with every default; it starts the same run again.

        The section `cluster` is left out if nothing in it is set: this records a run on this machine.
        """
        values = self.recorded()
        if self.cluster == ClusterSettings(service_account=self.account):
            del values["cluster"]
        return yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=100)

    def with_default_folders(self, run_dir: Path) -> Self:
        """A copy in which every location is set; those that are not are folders of the run's folder."""
        update = {key: getattr(self, key) or str(run_dir / folder) for key, folder in self.default_folders.items()}
        return self.model_copy(update=update)

    def unmounted_paths(self) -> dict[str, str]:
        """By key, the paths that are not on a volume of the cluster, so that pods would not see them."""
        return {
            key: path
            for key, path in self.locations().items()
            if not is_http_corpus(key, path) and not is_remote(path) and not self.cluster.mounts(path)
        }


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
        """Raises: SettingsError: a setting of evaluate names a model that is not in the registry."""
        if name and Registry(self.registry, name).in_service() is None:
            raise SettingsError(
                f"evaluate.{setting} is {name!r}, but {self.registry}/{name} has no version; push a model there first "
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
        self.train.model.check_features(self.extract.features)
        if self.train.subwords and not self.train.start.model:  # a child keeps the subwords of its parent
            check_size(self.train.subwords, Alphabet.from_name(self.convert.alphabet))
        return self

    def optional_steps(self) -> tuple[str, ...]:
        return (*super().optional_steps(), *(() if self.language.kind == "none" else ("language",)))

    def derived_values(self) -> dict[str, tuple[Any, str]]:
        origin = "extract.features.hop_seconds, train.model's stride and the fastest of extract.speeds"
        derived = super().derived_values()
        if not self.train.subwords:  # fewer than characters, and not known before train learns them
            derived["validate.frames_per_second"] = (self.frames_per_second(), origin)
        if self.language.kind != "none" and self.language.text:
            text = self.language.text_settings().plain() | {"frontend": self.convert.frontend.plain()}
            derived["train.language_text"] = (text, "language")
        return derived

    def check_inputs(self) -> None:
        check_text_exists(self.language.text_settings())

    def check_registry(self) -> None:
        self._check_in_service("intents", self.evaluate.intents, "intents")

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
        self._check_in_service("round_trip_recognizer", self.evaluate.round_trip_recognizer, "asr")

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
        self._check_in_service("recognizer", self.evaluate.recognizer, "asr")
