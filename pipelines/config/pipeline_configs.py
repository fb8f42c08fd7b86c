"""The class of each pipeline's config. That of a pipeline which trains is made from its model family."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pydantic

from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.push.settings import PushSettings
from voxline.errors import SettingsError
from voxline.families.family import Family, find_family
from voxline.pipelines.config.dataset_version import apply_version, read_version, version_defaults
from voxline.pipelines.config.keys import Values, get_key, set_key
from voxline.pipelines.config.run_config import NAME_PATTERN, Name, RunConfig
from voxline.pipelines.graphs import check_pipeline, graph_of, pipeline_names, steps_of
from voxline.pipelines.steps import STEPS
from voxline.registry.registry import Registry
from voxline.settings import Settings, merge
from voxline.store.hashing import hash_value
from voxline.text.alphabet import Alphabet
from voxline.training.settings import TrainSettings


class TrainingRunConfig(RunConfig):
    """A run of a pipeline from a corpus to a pushed model; `config_class_of` makes the class of each model family."""

    account: ClassVar[str] = "voxline-train"

    computed_keys = frozenset({"publish.training"})

    required_on_a_cluster: ClassVar[Sequence[str]] = (*RunConfig.required_on_a_cluster, "datasets", "corpus__dataset")

    datasets: str = pydantic.Field(
        "",
        description="folder or bucket URI of dataset versions, for corpus.dataset and publish; "
        "a run on this machine defaults to <run-dir>/datasets",
    )
    model: Name = pydantic.Field(..., description="name of the model in the registry")
    publish: PublishSettings = pydantic.Field(
        default_factory=lambda: PublishSettings(dataset=""), description=STEPS["publish"].description
    )
    forecast: ForecastSettings = pydantic.Field(
        default_factory=ForecastSettings, description=STEPS["forecast"].description
    )
    train: TrainSettings = pydantic.Field(..., description=STEPS["train"].description)
    evaluate: EvaluateSettings = pydantic.Field(..., description=STEPS["evaluate"].description)
    push: PushSettings = pydantic.Field(..., description=STEPS["push"].description)

    @classmethod
    def family(cls) -> Family:
        """The family of the models that the pipeline trains."""
        return find_family(cls.pipeline_name())

    @classmethod
    def copied_keys(cls) -> dict[str, str]:
        return {**super().copied_keys(), **cls.family().copied_keys}

    @classmethod
    def defaults(cls, document: Values) -> Values:
        values = merge(super().defaults(document), {"publish": {"dataset": ""}})
        values = merge(values, cls.family().config_defaults(document))
        return merge(values, version_defaults(document))

    @pydantic.model_validator(mode="after")
    def _check_with_family(self) -> Self:
        """Refuses before the first step what train would refuse after extract."""
        if self.corpus.pseudo.uri and not hasattr(self.train, "pseudo_weight"):
            raise ValueError("corpus.pseudo.uri: drafts train recognizers alone (asr); --set corpus.pseudo.uri=")
        if self.corpus.dataset and self.forecast.skip_below:
            raise SettingsError(
                "forecast.skip_below needs the drift that validate measures, and a run on a version (corpus.dataset) "
                "does not validate; --set forecast.skip_below=0"
            )
        # A version is the outcome of a publication, so a run has one or the other.
        if self.corpus.dataset and self.publish.dataset:
            raise SettingsError(
                f"corpus.dataset is {self.corpus.dataset}, which is published already; leave publish.dataset out"
            )
        if self.publish.then not in ("", self.pipeline):
            raise SettingsError(f"publish.then is {self.publish.then!r}; this config is for {self.pipeline!r}")
        if self.publish.then and not self.publish.dataset:
            raise SettingsError(f"publish.then is {self.publish.then}, and publish.dataset names no dataset; give one")
        self.family().check_config(self)
        return self

    def with_default_folders(self, run_dir: Path) -> Self:
        config = super().with_default_folders(run_dir)
        if not (config.corpus.dataset or config.publish.dataset) or config.datasets:
            return config
        return config.model_copy(update={"datasets": str(run_dir / "datasets")})

    def for_this_machine(self, run_dir: Path) -> Self:
        config = super().for_this_machine(run_dir)
        if not config.corpus.dataset:
            return config

        # `latest` is resolved once, so that all steps of the run have the same version.
        reference, decided = read_version(config.datasets, config.corpus.dataset)
        values = config.plain()
        apply_version(values, reference, decided, type(self).example(), self._given)

        # What follows from the values that the version decides, follows from them now.
        for _ in range(2):
            config = type(self).model_validate(values)
            for key, (value, _origin) in config.derived_values().items():
                set_key(values, key, value)
        return type(self).model_validate(values)

    def derived_values(self) -> dict[str, tuple[Any, str]]:
        derived = super().derived_values()
        if self.corpus.corpora:
            derived["train.corpus_weights"] = (self.corpus.weights(), "the weights in corpus.corpora")
        # Only a publication that starts a training judges by it.
        if self.publish.then:
            derived["publish.training"] = (self._training_digest(), "train and the sections after it")
        return {**derived, **self.family().derived_values(self)}

    def _training_digest(self) -> str:
        """Names the settings of train and of the steps after it, by what counts in their keys."""
        # What follows a publication may decide how it is judged: margins count as much as epochs.
        steps = list(graph_of(self.pipeline, self.optional_steps()))
        sections = {STEPS[step].config_section: self.section(step) for step in steps[steps.index("train") :]}
        values = {name: section.key_values() for name, section in sections.items()}

        # In keys, a digest takes the place of a model, and the form of the exported one is the step export's.
        train: Any = self.section("train")
        plain = self.plain()
        models = [f"train.{key}" for step in steps for key in STEPS[step].models]
        further = {key: value for key in (*models, "evaluate.probe") if (value := get_key(plain, key))}
        defaults = type(train.start)().plain()
        further |= {f"start.{key}": value for key, value in train.start.plain().items() if value != defaults[key]}
        if form := train.export_form().key_values():
            further["form"] = form
        return hash_value({**values, **({"further": further} if further else {})})

    def check_inputs(self) -> None:
        self.family().check_inputs(self)
        if self.evaluate.probe:
            from voxline.components.probe import validate_probe  # it reads manifests, which most commands do not

            validate_probe(self.evaluate.probe, Alphabet.from_name(self.convert.alphabet), self.convert.sample_rate)

    def check_registry(self) -> None:
        for setting, name, family in self.family().models_in_service(self):
            if name and Registry(self.registry, name).in_service() is None:
                raise SettingsError(
                    f"{setting} is {name!r}, but {self.registry}/{name} has no version; push a model there first "
                    f"(voxline run {family}, with this registry), or leave the setting empty"
                )


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
    publish: PublishSettings = pydantic.Field(default_factory=PublishSettings, description=STEPS["publish"].description)

    @pydantic.model_validator(mode="after")
    def _check_publish(self) -> Self:
        if not self.publish.dataset:
            raise SettingsError("publish.dataset is empty; a refresh needs the name of the dataset that it publishes")
        return self

    def history_root(self) -> str:
        return self.datasets


def config_class_of(pipeline: str) -> type[RunConfig]:
    """The class of a pipeline's config.

    Raises:
      SettingsError: the pipeline is unknown; the message lists the pipelines.
    """
    check_pipeline(pipeline)
    if pipeline == "refresh":
        return _with_sections_of_steps(RefreshConfig, pipeline)
    return _training_config(find_family(pipeline))


def config_classes() -> dict[str, type[RunConfig]]:
    """The class of each pipeline's config."""
    return {name: config_class_of(name) for name in pipeline_names()}


@functools.cache
def _training_config(family: Family) -> type[RunConfig]:
    """The class for a family: its settings, and the sections of the steps that only its pipeline has."""
    # A literal for `pipeline`, so that a validator and the JSON schema know the class by it.
    fields: dict[str, Any] = {
        "pipeline": (
            Literal[family.name],
            pydantic.Field(family.name, description="the graph that this config is for"),
        ),
        "model": (Name, pydantic.Field(family.name, description="name of the model in the registry")),
    }

    # The steps whose settings the family has: train, evaluate and push.
    for name in steps_of(family.name):
        if STEPS[name].settings is None and not STEPS[name].section:
            settings = getattr(family, f"{name}_settings")
            fields[name] = (settings, pydantic.Field(default_factory=settings, description=STEPS[name].description))

    # `tts` becomes TtsConfig; `__getattr__` below finds it again by that name.
    name = f"{family.name.title().replace('_', '').replace('-', '')}Config"
    config: type[RunConfig] = pydantic.create_model(
        name, __base__=TrainingRunConfig, __doc__=f"A run of the `{family.name}` pipeline.", **fields
    )
    return _with_sections_of_steps(config, family.name)


@functools.cache
def _with_sections_of_steps(config: type[RunConfig], pipeline: str) -> type[RunConfig]:
    """The class with a section for each of the pipeline's steps that it has none for."""
    present = {field.alias or name for name, field in config.model_fields.items()}
    missing = [STEPS[name] for name in steps_of(pipeline) if STEPS[name].config_section not in present]
    if not missing:
        return config

    fields: dict[str, Any] = {
        step.config_section: (
            step.settings,
            pydantic.Field(default_factory=step.settings or Settings, description=step.description),
        )
        for step in missing
    }
    return pydantic.create_model(config.__name__, __base__=config, __doc__=config.__doc__, **fields)


def __getattr__(name: str) -> type[RunConfig]:
    """The class of a pipeline by its own name, as pickle looks one up for a process of a run."""
    # Any other name fails at once: to look through the families would import each of them.
    for pipeline in pipeline_names() if name.endswith("Config") else ():
        config = config_class_of(pipeline)
        if config.__name__ == name:
            return config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
