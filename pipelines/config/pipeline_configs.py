"""The class of each pipeline's config. That of a pipeline which trains is made from its model family."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pydantic

from voxline.components.publish.settings import PublishSettings
from voxline.errors import SettingsError
from voxline.pipelines.config.run_config import NAME_PATTERN, Name, RunConfig
from voxline.pipelines.graphs import check_pipeline, pipeline_names, steps_of
from voxline.pipelines.steps import STEPS
from voxline.settings import Settings

if TYPE_CHECKING:
    from voxline.families.family import Family


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
    from voxline.families.family import find_family  # not at the top: a refresh needs no family

    return _training_config(find_family(pipeline))


def config_classes() -> dict[str, type[RunConfig]]:
    """The class of each pipeline's config."""
    return {name: config_class_of(name) for name in pipeline_names()}


@functools.cache
def _training_config(family: "Family") -> type[RunConfig]:
    """The class for a family: its settings, and the sections of the steps that only its pipeline has."""
    from voxline.pipelines.config.training_config import TrainingRunConfig

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
