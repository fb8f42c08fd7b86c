"""The config of a run: its name, its locations, and a section for each step of every pipeline."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import pydantic
import yaml

from voxline.components.convert.settings import ConvertSettings
from voxline.components.extract.settings import ExtractSettings
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.validate.settings import ValidateSettings
from voxline.notify.cost import CostSettings, Reserved
from voxline.notify.settings import MlflowUri, NotifySettings
from voxline.pipelines.config.cluster import ClusterSettings, attribute_of, parse_quantity
from voxline.pipelines.config.keys import Values, get_key, set_key
from voxline.pipelines.config.locations import is_http_corpus, path_keys
from voxline.pipelines.graphs import steps_by_config, steps_of
from voxline.pipelines.steps import STEPS
from voxline.registry.signing import PRIVATE_KEY_ENV, PUBLIC_KEY_ENV
from voxline.settings import Settings, merge
from voxline.store.hashing import hash_value
from voxline.store.uris import is_remote

# A name becomes a folder, part of a KFP run's name and of an artifact's, so it has no / and does not begin with a dot.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
Name = Annotated[str, pydantic.Field(pattern=NAME_PATTERN)]


class TrackingSettings(Settings):
    """Experiment tracking; off by default. It needs `pip install mlflow-skinny` or `pip install wandb`."""

    mlflow: MlflowUri = pydantic.Field(
        "",
        description="MLflow's tracking URI, or a folder for its file store, such as runs/mlruns; empty: not logged",
    )
    experiment: str = pydantic.Field("", description="of MLflow; the model's name if empty")
    wandb: str = pydantic.Field(
        "",
        # The first part has no limit: \w{1,128} takes pydantic 50 ms to compile, in each command that loads a config.
        pattern=r"^$|^(?:[\w.-]+/)?[^/\\#?%:\x00-\x1f]{1,128}$",
        description="Weights & Biases: a project, or entity/project; empty: not logged. Without WANDB_API_KEY or a "
        "login the run is kept in its folder, for `wandb sync`",
    )


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
        # Only what is set: an empty variable would take one of the shell's away.
        return {name: file for name, file in keys.items() if file}


class RunConfig(Settings):
    """A run of a pipeline; each pipeline has a class of its own."""

    _given: frozenset[str] | None = None
    """Keys of the values that a person gave, of a config with `corpus.dataset`; None if that is not known."""

    computed_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that follow from the config alone: a value that a recorded config has is replaced."""

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
    cost: CostSettings = pydantic.Field(
        default_factory=CostSettings, description="prices, and the most that a run may cost"
    )
    cluster: ClusterSettings = pydantic.Field(
        default_factory=ClusterSettings, description="resources and placement on a cluster; ignored on this machine"
    )

    @classmethod
    def copied_keys(cls) -> dict[str, str]:
        """Key → the key whose value it takes."""
        steps = [STEPS[name] for name in steps_of(cls.pipeline_name())]
        return {f"{step.config_section}.{key}": source for step in steps for key, source in step.copies.items()}

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
        return {key: (get_key(values, origin), origin) for key, origin in self.copied_keys().items()}

    def optional_steps(self) -> tuple[str, ...]:
        """The steps that this run has, and others of its pipeline have not."""
        return tuple(name for name in steps_by_config(self.pipeline) if STEPS[name].is_on(self))

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
        locations: dict[str, str] = {}
        # A key of another pipeline, or one that is empty, is absent from the result; a list has a key for each element.
        for key in path_keys(values):
            value = get_key(values, key)
            if isinstance(value, list):
                locations |= {f"{key}.{number}": str(path) for number, path in enumerate(value)}
            elif value:
                locations[key] = str(value)
        return locations

    def reserved(self, steps: Iterable[str]) -> dict[str, Reserved]:
        """Step → what its pod reserves. A training of several workers is absent: a template of k8s/ has their pods."""
        pods = {step: self.cluster.steps.for_step(step) for step in steps}
        several = {"train"} if self._worker_count() > 1 else set()
        return {
            step: Reserved(parse_quantity(pod.cpu), pod.devices.count if pod.devices else 0)
            for step, pod in pods.items()
            if step not in several
        }

    def cost_digest(self, *, on_cluster: bool) -> str:
        """Names what the time of a training depends on, but for its epochs and its data."""
        train = getattr(self, "train", None)
        settings = train.key_values() if train else {}
        settings.pop("epochs", None)
        pod = self.cluster.steps.for_step("train")
        place = [pod.cpu, pod.devices.plain() if pod.devices else None, self._worker_count()] if on_cluster else []
        return hash_value({"pipeline": self.pipeline, "train": settings, "place": place})[:16]

    def _worker_count(self) -> int:
        train = getattr(self, "train", None)
        return train.workers.count if train else 1

    def section(self, step: str) -> Settings:
        """The settings of a step."""
        section: Settings = getattr(self, attribute_of(STEPS[step].config_section))
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
        # The account is the one default of the section that differs between pipelines.
        if self.cluster == ClusterSettings(service_account=self.account):
            del values["cluster"]
        return yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=100)

    def with_default_folders(self, run_dir: Path) -> Self:
        """A copy in which every location is set; those that are not are folders of the run's folder."""
        update = {key: getattr(self, key) or str(run_dir / folder) for key, folder in self.default_folders.items()}
        return self.model_copy(update=update)

    def for_this_machine(self, run_dir: Path) -> Self:
        """A copy for a run on this machine: every location is set, and `corpus.dataset` has the version's number.

        Raises:
          SettingsError: the version does not exist, or a setting contradicts it.
          WorkError: the version is damaged.
        """
        return self.with_default_folders(run_dir)

    def unmounted_paths(self) -> dict[str, str]:
        """Key → path, of those that are not on a volume of the cluster, so that pods would not see them."""
        # A bucket needs no volume, and ingest fetches an http corpus by itself.
        return {
            key: path
            for key, path in self.locations().items()
            if not is_http_corpus(key, path) and not is_remote(path) and not self.cluster.mounts(path)
        }
