"""The section `cluster` of a config: what a step's pod asks of a Kubernetes cluster, and what it may see there.

It changes what `voxline compile` writes, and nothing else: no step reads it, no key in the store depends on it, and
a run on this machine passes it over. Secrets stand here by name alone; their values live in the cluster.
"""

import re
from typing import Annotated, Any, Literal

import pydantic

from voxline.pipelines.config.keys import Values, merge
from voxline.settings import Settings


def _matches(pattern: str, accepted: str) -> pydantic.AfterValidator:
    """Accepts a text that matches a pattern. The error describes the pattern in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"accepted: {accepted}")
        return text

    return pydantic.AfterValidator(check)


def _number_as_text(value: Any) -> Any:
    """`cpu: 4` in YAML is a number, and means the text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _refuse_number(value: Any) -> Any:
    """YAML reads 1.10 as 1.1, and 0123 as 83: what names something must not be guessed from a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        told = "a number in YAML, which may have lost digits; put it in quotes"
        raise ValueError(told)  # noqa: TRY004 - what pydantic tells on
    return value


_AS_TEXT = pydantic.BeforeValidator(_number_as_text)
_IN_QUOTES = pydantic.BeforeValidator(_refuse_number)
_NAME, _TOLD_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "a Kubernetes name: small letters, digits, - and ."
_KEY, _TOLD_KEY = (
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    "a word, or domain/word, such as team or nvidia.com/gpu",
)
_CPU, _TOLD_CPU = r"[0-9]+(\.[0-9]+)?|[0-9]+m", "cores, such as 2, 0.5 or 500m"
_BYTES, _TOLD_BYTES = r"[1-9][0-9]*(K|M|G|T|P|Ki|Mi|Gi|Ti|Pi)", "a number and a unit, such as 500Mi or 16Gi"
_FOLDER, _TOLD_FOLDER = r"/[^:]*[^:/]", "a folder from the root on, such as /mnt/store"

ObjectName = Annotated[str, _matches(_NAME, _TOLD_NAME)]
OptionalName = Annotated[str, _matches(f"({_NAME})?", _TOLD_NAME)]
LabelKey = Annotated[str, _matches(_KEY, _TOLD_KEY)]
OptionalKey = Annotated[str, _matches(f"({_KEY})?", _TOLD_KEY)]
LabelValue = Annotated[
    str,
    _IN_QUOTES,
    _matches(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", "63 letters, digits, -, _ and . at most"),
]
VariableName = Annotated[str, _matches(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, such as LOG_LEVEL")]
AbsolutePath = Annotated[str, _matches(_FOLDER, _TOLD_FOLDER)]
OptionalPath = Annotated[str, _matches(f"({_FOLDER})?", _TOLD_FOLDER)]
SubPath = Annotated[str, _matches(r"([^/.][^/]*(/[^/.][^/]*)*)?", "a folder in the volume, without / before it and ..")]
CpuQuantity = Annotated[str, _AS_TEXT, _matches(_CPU, _TOLD_CPU)]
OptionalCpuQuantity = Annotated[str, _AS_TEXT, _matches(f"({_CPU})?", _TOLD_CPU)]
MemoryQuantity = Annotated[str, _matches(_BYTES, _TOLD_BYTES)]
OptionalMemoryQuantity = Annotated[str, _matches(f"({_BYTES})?", _TOLD_BYTES)]
Topology = Annotated[str, _matches(r"([0-9]+x[0-9]+(x[0-9]+)?)?", "chips by chips, such as 2x2 or 2x2x1")]
RegistryPath = Annotated[
    str,
    _matches(
        r"([a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*/?)?",
        "a host and a path without https://, such as europe-docker.pkg.dev/team/voxline",
    ),
]
ImageTag = Annotated[
    str, _IN_QUOTES, _matches(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?", "128 letters, digits, -, _ and . at most")
]
ImageDigest = Annotated[str, _matches(r"sha256:[0-9a-f]{64}", "sha256: and 64 digits, as `docker push` prints it")]
_UNITS = {"": 1.0, "m": 1e-3, **{unit: 1000.0**power for power, unit in enumerate("KMGTP", start=1)}}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", start=1)}


def parse_quantity(quantity: str) -> float:
    """Cores or bytes.

    >>> parse_quantity("500m"), parse_quantity("16Gi") / 2**30
    (0.5, 16.0)
    """
    number = quantity.rstrip("KMGTPim")
    return float(number) * _UNITS[quantity.removeprefix(number)]


ImageName = Literal["data", "model", "model-gpu", "model-tpu", "validate"]

_SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key|access_?key|private_?key|credentials?)$")


class ImageSettings(Settings):
    """Where the images lie: `<registry>/<name>:<tag>`, or `<registry>/<name>@<digest>`."""

    registry: RegistryPath = pydantic.Field(
        "",
        description="such as europe-docker.pkg.dev/team/voxline; empty: VOXLINE_IMAGE_REGISTRY, else voxline",
    )
    tag: ImageTag = pydantic.Field(
        "",
        description="of every image; empty: VOXLINE_IMAGE_TAG, else the one that `make images` gives to this code",
    )
    digests: dict[ImageName, ImageDigest] = pydantic.Field(
        {}, description="image → sha256:…; those named here are taken by digest, whatever the tag"
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = pydantic.Field(
        "IfNotPresent", description="right for a tag that never moves; Always for one that does"
    )
    pull_secrets: list[ObjectName] = pydantic.Field([], description="names of the Secrets that the registry asks for")

    @pydantic.field_validator("tag")
    @classmethod
    def _never_latest(cls, tag: str) -> str:
        if tag == "latest":
            raise ValueError("a compiled pipeline must run the same code next year; give a tag that does not move")
        return tag


class Toleration(Settings):
    """A taint that a pod does not mind."""

    key: LabelKey = pydantic.Field(..., description="of the taint")
    operator: Literal["Equal", "Exists"] = pydantic.Field("Exists", description="Equal compares the value")
    value: LabelValue = pydantic.Field("", description="of the taint, for Equal")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = pydantic.Field(
        "NoSchedule", description="which effect is tolerated"
    )

    @pydantic.model_validator(mode="after")
    def _value_goes_with_equal(self) -> "Toleration":
        if self.operator == "Exists" and self.value:
            raise ValueError(f"operator Exists takes no value, and it is {self.value!r}; say operator: Equal")
        return self


class SecretReference(Settings):
    """A Secret of the namespace, by name: keys into variables of the environment, or all of it as files."""

    name: ObjectName = pydantic.Field(..., description="of the Secret")
    env: dict[str, VariableName] = pydantic.Field({}, description="key of the Secret → variable that holds its value")
    mount: OptionalPath = pydantic.Field("", description="folder that holds a file for each key")

    @pydantic.model_validator(mode="after")
    def _goes_somewhere(self) -> "SecretReference":
        if not self.env and not self.mount:
            raise ValueError("give `env`, `mount` or both; as it is, nothing would be read from it")
        return self


class VolumeClaim(Settings):
    """A PersistentVolumeClaim of the namespace, mounted into every step."""

    name: ObjectName = pydantic.Field(..., description="of the claim; ReadWriteMany, where pods run on several nodes")
    mount: AbsolutePath = pydantic.Field(..., description="folder in the pods, such as /mnt/voxline")
    sub_path: SubPath = pydantic.Field("", description="folder in the volume; empty: all of it")


class Accelerator(Settings):
    """Devices that a step gets, and the nodes that have them."""

    kind: Literal["gpu", "tpu"] = pydantic.Field(..., description="which image a step takes: model-gpu or model-tpu")
    count: int = pydantic.Field(
        1, ge=0, le=256, description="GPUs, or TPU chips of one host, of the step's pod; 0: none, whatever lies over it"
    )
    resource: OptionalKey = pydantic.Field(
        "",
        description="what the devices are called; empty: nvidia.com/gpu, or google.com/tpu",
    )
    type: LabelValue = pydantic.Field(
        "", description="such as nvidia-l4 or tpu-v5-lite-podslice; empty: whichever the cluster has"
    )
    type_label: OptionalKey = pydantic.Field(
        "",
        description="the nodes' label that names the type; empty: GKE's",
    )
    topology: Topology = pydantic.Field("", description="of TPU chips, such as 2x2; none for GPUs")

    @pydantic.model_validator(mode="after")
    def _topology_is_of_tpus(self) -> "Accelerator":
        if self.kind == "gpu" and self.topology:
            raise ValueError(f"kind gpu has no topology, and it is {self.topology!r}; leave it out")
        if self.kind == "tpu" and not (self.type and self.topology):
            raise ValueError("kind tpu takes a type and a topology, such as tpu-v5-lite-podslice and 2x2")
        return self


class Placement(Settings):
    """Where pods run and what they see; given for all steps, and once more for one."""

    node_selector: dict[LabelKey, LabelValue] = pydantic.Field({}, description="labels that a node must have")
    tolerations: list[Toleration] = pydantic.Field([], description="taints that are no hindrance")
    spot: bool = pydantic.Field(
        False, description="on nodes that may be taken away (GKE's Spot); what was done by then is kept"
    )
    env: dict[VariableName, str] = pydantic.Field({}, description="variables; no secrets, these are readable")
    secrets: list[SecretReference] = pydantic.Field([], description="Secrets that are seen")
    labels: dict[LabelKey, LabelValue] = pydantic.Field({}, description="of the pods")
    annotations: dict[LabelKey, str] = pydantic.Field({}, description="of the pods")

    @pydantic.field_validator("env")
    @classmethod
    def _no_secret_in_the_open(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if _SECRET.search(name) and not value.startswith("/"):
                raise ValueError(
                    f"{name} is a secret by its name, and a compiled pipeline is read by many; put it into a Secret "
                    "and name that under `secrets` (the path of a mounted file may stand here)"
                )
        return env


class StepPlacement(Placement):
    """What one step's pod asks for, in addition to what holds for all."""

    image: Literal["", "data", "model", "model-gpu", "model-tpu", "validate"] = pydantic.Field(
        "", description="empty: the step's own, by its accelerator"
    )
    cpu: CpuQuantity = pydantic.Field("1", description="cores that are reserved: 2, 0.5 or 500m")
    cpu_limit: OptionalCpuQuantity = pydantic.Field("", description="cores at most; empty: what the node has idle")
    memory: MemoryQuantity = pydantic.Field("4Gi", description="memory that is reserved")
    memory_limit: OptionalMemoryQuantity = pydantic.Field(
        "", description="past which the pod is killed; empty: as reserved"
    )
    accelerator: Accelerator | None = pydantic.Field(None, description="GPUs or TPUs; none: the CPU")
    shared_memory: OptionalMemoryQuantity = pydantic.Field(
        "", description="size of /dev/shm, out of the pod's memory; empty: the container engine's 64 MB"
    )
    scratch: MemoryQuantity = pydantic.Field(
        "20Gi",
        description="size of /tmp, on the node's disk: what is fetched from a bucket; past it the pod is evicted",
    )
    timeout_hours: float = pydantic.Field(24.0, gt=0, le=24 * 365, description="after which an attempt is ended")
    retries: int = pydantic.Field(3, ge=0, le=12, description="attempts after the first; what cannot be mended has one")
    retry_seconds: int = pydantic.Field(30, ge=0, le=3600, description="before the first retry; doubles with each")

    @pydantic.model_validator(mode="after")
    def _no_limit_is_less_than_what_is_reserved(self) -> "StepPlacement":
        for name in ("cpu", "memory"):
            reserved, limit = getattr(self, name), getattr(self, f"{name}_limit")
            if limit and parse_quantity(limit) < parse_quantity(reserved):
                raise ValueError(f"{name}_limit {limit} is less than {name} {reserved}; no such pod can start")
        return self

    @property
    def devices(self) -> Accelerator | None:
        """The accelerator, where there is at least one of it."""
        return self.accelerator if self.accelerator and self.accelerator.count else None


STEP_DEFAULTS: dict[str, Values] = {
    "ingest": {"memory": "2Gi"},
    "convert": {"cpu": "4", "memory": "8Gi"},
    "validate": {"cpu": "2", "memory": "8Gi"},
    "extract": {"cpu": "4", "memory": "8Gi"},
    "train": {"cpu": "4", "memory": "16Gi", "shared_memory": "2Gi", "timeout_hours": 24.0 * 7, "retries": 5},
    "evaluate": {"cpu": "4", "memory": "8Gi", "timeout_hours": 12.0},
    "push": {"cpu": "2", "timeout_hours": 2.0},
}
"""What a step takes where the config says nothing and `StepPlacement` would take something else."""


class StepPlacements(Settings):
    """A section a step; those that a pipeline does not have are passed over."""

    ingest: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="reads the corpus")
    convert: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="decodes, on every core")
    validate_: StepPlacement = pydantic.Field(default_factory=StepPlacement, alias="validate", description="checks")
    extract: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="features, on every core")
    publish: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="a version of the dataset")
    train: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="the one that learns")
    evaluate: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="the exported model at work")
    push: StepPlacement = pydantic.Field(default_factory=StepPlacement, description="the gate")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _over_defaults(cls, values: Any) -> Any:
        return merge(STEP_DEFAULTS, values) if isinstance(values, dict) else values

    def for_step(self, step: str) -> StepPlacement:
        placement: StepPlacement = getattr(self, {"validate": "validate_"}.get(step, step))
        return placement


class PodUser(Settings):
    """Who the steps run as; a number, since Kubernetes cannot tell of a name that it is not root."""

    uid: int = pydantic.Field(65532, ge=1, lt=2**31, description="user; that of the images, unless yours has another")
    gid: int = pydantic.Field(65532, ge=1, lt=2**31, description="group")


class ClusterSettings(Placement):
    """What a cluster is asked for."""

    images: ImageSettings = pydantic.Field(default_factory=ImageSettings, description="where the images lie")
    service_account: OptionalName = pydantic.Field(
        "", description="that a submitted run has, in a config voxline-data or voxline-train; empty: the cluster's own"
    )
    user: PodUser = pydantic.Field(default_factory=PodUser, description="who the steps run as")
    claims: list[VolumeClaim] = pydantic.Field([], description="volumes, for a store or a corpus that is a path")
    deadline_hours: float = pydantic.Field(
        0.0, ge=0, le=24 * 365, description="after which the whole run is ended; 0: never"
    )
    kept_days: float = pydantic.Field(
        7.0, ge=0, le=3650, description="that a run's pods and their logs are kept for after its end; 0: for ever"
    )
    steps: StepPlacements = pydantic.Field(default_factory=StepPlacements, description="a section a step")

    def mounts(self, path: str) -> bool:
        """Whether a path lies on one of the volumes.

        >>> chosen = ClusterSettings.of({"claims": [{"name": "voxline-store", "mount": "/mnt/store"}]})
        >>> chosen.mounts("/mnt/store/speech"), chosen.mounts("/mnt/stored")
        (True, False)
        """
        return any(path == claim.mount or path.startswith(f"{claim.mount}/") for claim in self.claims)
