"""What the config of every run has, whatever it is for: its name, its places, and a section a step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import pydantic

from voxline.components.convert.settings import ConvertSettings
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.extract.settings import ExtractSettings
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.push.settings import PushSettings
from voxline.components.train.settings import TrainSettings
from voxline.components.validate.settings import ValidateSettings
from voxline.pipelines.config.cluster import ClusterSettings
from voxline.pipelines.config.keys import Values, get_key, merge
from voxline.pipelines.config.yaml_files import dump_yaml
from voxline.settings import Settings

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
Name = Annotated[str, pydantic.Field(pattern=NAME_PATTERN)]


class RunConfig(Settings):
    """A run of a pipeline; each pipeline has a class of its own."""

    copied_keys: ClassVar[Mapping[str, str]] = {
        "extract.alphabet": "convert.alphabet",
        "extract.features.sample_rate": "convert.sample_rate",
        "extract.frontend": "convert.frontend",
    }
    """Key → the key whose value it takes."""

    places: ClassVar[Mapping[str, str]] = {"store": "store", "registry": "registry"}
    """Key of a folder → the folder in the run's own that it is, where the config names none."""

    required_on_a_cluster: ClassVar[Sequence[str]] = ("store", "registry", "corpus__uri")
    """Parameters of the KFP pipeline without a default."""

    account: ClassVar[str] = "voxline-data"
    """The ServiceAccount of k8s/ that has the rights which a run of this pipeline needs."""

    pipeline: str = pydantic.Field(..., description="the graph that this config is for")
    name: Name = pydantic.Field(..., description="of the run; its folder is runs/<name>")
    store: str = pydantic.Field(
        "",
        description="folder or gs:// URI of all cached step outputs; a run on this machine defaults to <run-dir>/store",
    )
    registry: str = pydantic.Field(
        "",
        description="folder or gs:// URI of the model registry; a run on this machine defaults to <run-dir>/registry",
    )
    model: str = pydantic.Field("", description="name of the model in the registry that a run is for, or compares with")
    corpus: CorpusSettings = pydantic.Field(..., description="the recordings")
    convert: ConvertSettings = pydantic.Field(default_factory=ConvertSettings, description="any audio to wav")
    validate_: ValidateSettings = pydantic.Field(
        default_factory=ValidateSettings, alias="validate", description="checks before training"
    )
    extract: ExtractSettings = pydantic.Field(default_factory=ExtractSettings, description="features, shards")
    cluster: ClusterSettings = pydantic.Field(
        default_factory=ClusterSettings, description="what a cluster is asked for; nothing of a run on this machine"
    )

    @classmethod
    def defaults(cls, document: Values) -> Values:
        """What this pipeline takes where a document says nothing and the steps would take something else."""
        return {"cluster": {"service_account": cls.account}}

    @classmethod
    def pipeline_name(cls) -> str:
        return str(cls.model_fields["pipeline"].default)

    @classmethod
    def example(cls) -> Values:
        """A config in which every key has its default, as JSON values."""
        document = merge(cls.defaults({}), {"name": cls.pipeline_name(), "corpus": {"uri": ""}})
        return cls.model_validate(document).plain()

    def follows(self) -> dict[str, tuple[Any, str]]:
        """Key → its value, and what makes it so: a key, or words."""
        values = self.plain()
        return {key: (get_key(values, origin), origin) for key, origin in self.copied_keys.items()}

    def check_places(self) -> None:
        """Refuses, before any work starts, what a step would miss in the registry days later."""

    def section(self, step: str) -> Settings:
        """The settings of a step."""
        name = {"ingest": "corpus", "validate": "validate_"}.get(step, step)
        section: Settings = getattr(self, name)
        return section

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def to_yaml(self) -> str:
        """The config as it took effect, every default written out; it starts the same run again.

        The section of the cluster stands there only where it says something: this is the record of a run here.
        """
        values = self.plain()
        if self.cluster == ClusterSettings(service_account=self.account):
            del values["cluster"]
        return dump_yaml(values)

    def placed(self, run_dir: Path) -> Self:
        """The config with the store and its like where a run in this folder has them."""
        update = {key: getattr(self, key) or str(run_dir / folder) for key, folder in self.places.items()}
        return self.model_copy(update=update)


class TrainingRunConfig(RunConfig):
    """A run of a pipeline, from a corpus to a pushed model; each family of models has a class of its own."""

    copied_keys: ClassVar[Mapping[str, str]] = {
        **RunConfig.copied_keys,
        "train.name": "model",
        "evaluate.model_name": "model",
        "push.model_name": "model",
    }

    account: ClassVar[str] = "voxline-train"

    model: Name = pydantic.Field(..., description="name of the model in the registry")
    train: TrainSettings = pydantic.Field(..., description="the model and its training")
    evaluate: EvaluateSettings = pydantic.Field(..., description="what is measured")
    push: PushSettings = pydantic.Field(..., description="the gate")
