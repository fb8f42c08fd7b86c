"""The config of a run that trains: the class that those of all families are made from.

A module of its own, since it imports what families and training declare, and a refresh needs none of it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pydantic

from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.push.settings import PushSettings
from voxline.errors import SettingsError
from voxline.families.family import Family, find_family
from voxline.pipelines.config.dataset_version import apply_version, read_version, version_defaults
from voxline.pipelines.config.keys import Values, get_key, set_key
from voxline.pipelines.config.run_config import Name, RunConfig
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.steps import STEPS
from voxline.registry.registry import Registry
from voxline.settings import merge
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
