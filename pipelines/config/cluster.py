"""The section `cluster` of a config: the resources, nodes, volumes and secrets of each step's pod on Kubernetes.

Only `voxline compile` and what builds on it use the section: no step reads it, no key in the store depends on it, and
a run on this machine ignores it. It names secrets; their values stay in the cluster.
"""

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic
import pydantic_core.core_schema

from voxline.pipelines.steps import STEPS, Step, step_of
from voxline.settings import Settings, merge


@dataclasses.dataclass(frozen=True)
class _Matches:
    """Accepts a text that matches a pattern. The error, the reference and the JSON schema describe it in words."""

    pattern: str
    accepted: str

    def __get_pydantic_core_schema__(self, source: Any, handler: pydantic.GetCoreSchemaHandler) -> Any:
        return pydantic_core.core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: pydantic.GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^({self.pattern})$"}

    def _check(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"accepted: {self.accepted}")
        return text


def _number_as_text(value: Any) -> Any:
    """`cpu: 4` in YAML is a number, and means the text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _refuse_number(value: Any) -> Any:
    """YAML reads 1.10 as 1.1, so a name that was read as a number may be wrong."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        message = "a number in YAML, which may have lost digits; put it in quotes"
        raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError only
    return value


_AS_TEXT = pydantic.BeforeValidator(_number_as_text, json_schema_input_type=str | int | float)
_IN_QUOTES = pydantic.BeforeValidator(_refuse_number)

# Patterns are Kubernetes' own rules, so that a config is refused here and not by the API server after an hour. Several
# types share each: one that must be set, and one that may be empty.

# A DNS subdomain (RFC 1123), of at most 253 characters: names of objects.
_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_ACCEPTED_NAME = "a Kubernetes name: lower-case letters, digits, - and ."

# A qualified name: keys of labels, annotations, taints and resources.
_KEY = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_ACCEPTED_KEY = "a word, or domain/word, such as team or nvidia.com/gpu"

# Quantities: 500m are 500 thousandths of a core; Ki is 1024 bytes and K is 1000.
_CPU = r"[0-9]+(\.[0-9]+)?|[0-9]+m"
_ACCEPTED_CPU = "cores, such as 2, 0.5 or 500m"
_BYTES = r"[1-9][0-9]*(K|M|G|T|P|Ki|Mi|Gi|Ti|Pi)"
_ACCEPTED_BYTES = "a number and a unit, such as 500Mi or 16Gi"

# Without a colon, which Kubernetes refuses in a mount path, and without a / at its end: paths are compared by prefix.
_FOLDER = r"/[^:]*[^:/]"
_ACCEPTED_FOLDER = "an absolute path, such as /mnt/store"

ObjectName = Annotated[str, _Matches(_NAME, _ACCEPTED_NAME)]
OptionalName = Annotated[str, _Matches(f"({_NAME})?", _ACCEPTED_NAME)]
LabelKey = Annotated[str, _Matches(_KEY, _ACCEPTED_KEY)]
OptionalKey = Annotated[str, _Matches(f"({_KEY})?", _ACCEPTED_KEY)]
LabelValue = Annotated[
    str,
    _IN_QUOTES,
    _Matches(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", "at most 63 letters, digits, -, _ and ."),
]
VariableName = Annotated[str, _Matches(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, such as LOG_LEVEL")]
AbsolutePath = Annotated[str, _Matches(_FOLDER, _ACCEPTED_FOLDER)]
OptionalPath = Annotated[str, _Matches(f"({_FOLDER})?", _ACCEPTED_FOLDER)]
SubPath = Annotated[
    str, _Matches(r"([^/.][^/]*(/[^/.][^/]*)*)?", "a folder in the volume, without a leading / and without ..")
]
CpuQuantity = Annotated[str, _AS_TEXT, _Matches(_CPU, _ACCEPTED_CPU)]
OptionalCpuQuantity = Annotated[str, _AS_TEXT, _Matches(f"({_CPU})?", _ACCEPTED_CPU)]
MemoryQuantity = Annotated[str, _Matches(_BYTES, _ACCEPTED_BYTES)]
OptionalMemoryQuantity = Annotated[str, _Matches(f"({_BYTES})?", _ACCEPTED_BYTES)]
Topology = Annotated[str, _Matches(r"([0-9]+x[0-9]+(x[0-9]+)?)?", "chips by chips, such as 2x2 or 2x2x1")]
RegistryPath = Annotated[
    str,
    _Matches(
        r"([a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*/?)?",
        "a host and a path without https://, such as europe-docker.pkg.dev/team/voxline",
    ),
]
ImageTag = Annotated[
    str, _IN_QUOTES, _Matches(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?", "at most 128 letters, digits, -, _ and .")
]
ImageDigest = Annotated[
    str, _Matches(r"sha256:[0-9a-f]{64}", "sha256: and 64 hexadecimal digits, as `docker push` prints them")
]

# Unit of a quantity → its factor, in cores or bytes.
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

# The ends of names of variables that usually hold secrets, such as AWS_SECRET_ACCESS_KEY or HF_TOKEN.
_SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key|access_?key|private_?key|credentials?)$")


class ImageSettings(Settings):
    """The names of the images: `<registry>/<name>:<tag>`, or `<registry>/<name>@<digest>`."""

    registry: RegistryPath = pydantic.Field(
        "",
        description="registry, such as europe-docker.pkg.dev/team/voxline; empty: VOXLINE_IMAGE_REGISTRY, else voxline",
    )
    tag: ImageTag = pydantic.Field(
        "",
        description="tag of every image; empty: VOXLINE_IMAGE_TAG, else the one that `make images` gives to this code",
    )
    digests: dict[ImageName, ImageDigest] = pydantic.Field(
        {}, description="image → sha256:…; images named here are pulled by digest instead of the tag"
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = pydantic.Field(
        "IfNotPresent", description="when nodes pull; IfNotPresent suits a tag that never moves"
    )
    pull_secrets: list[ObjectName] = pydantic.Field(
        [], description="names of the Secrets with the registry's credentials"
    )

    @pydantic.field_validator("tag")
    @classmethod
    def _never_latest(cls, tag: str) -> str:
        if tag == "latest":
            raise ValueError("a compiled pipeline must run the same code next year; give a tag that does not move")
        return tag


class Toleration(Settings):
    """A taint that pods tolerate."""

    key: LabelKey = pydantic.Field(..., description="key of the taint")
    operator: Literal["Equal", "Exists"] = pydantic.Field(
        "Exists", description="Exists ignores the value, Equal compares it"
    )
    value: LabelValue = pydantic.Field("", description="value of the taint, for Equal")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = pydantic.Field(
        "NoSchedule", description="effect that is tolerated"
    )

    @pydantic.model_validator(mode="after")
    def _value_goes_with_equal(self) -> "Toleration":
        if self.operator == "Exists" and self.value:
            raise ValueError(f"operator Exists takes no value, but value is {self.value!r}; write operator: Equal")
        return self


class SecretReference(Settings):
    """A Secret of the namespace: some of its keys as environment variables, or all of them as files."""

    name: ObjectName = pydantic.Field(..., description="name of the Secret")
    env: dict[str, VariableName] = pydantic.Field({}, description="key of the Secret → variable that holds its value")
    mount: OptionalPath = pydantic.Field("", description="folder for its files, one for each key")

    @pydantic.model_validator(mode="after")
    def _goes_somewhere(self) -> "SecretReference":
        if not self.env and not self.mount:
            raise ValueError("give `env`, `mount` or both; otherwise the Secret is not used")
        return self


class VolumeClaim(Settings):
    """A PersistentVolumeClaim of the namespace, mounted into the steps that need it.

    One with the registry and without the store is mounted into the steps that read the registry, and push alone gets it
    for writing where `read_only_name` names another claim for the others. All other claims go into every step.
    """

    name: ObjectName = pydantic.Field(
        ..., description="name of the claim; it must be ReadWriteMany if pods run on several nodes"
    )
    mount: AbsolutePath = pydantic.Field(..., description="folder in the pods, such as /mnt/voxline")
    sub_path: SubPath = pydantic.Field("", description="folder in the volume; empty: the whole volume")
    read_only_name: OptionalName = pydantic.Field(
        "",
        description="claim of a read-only volume of the same files, for all steps but the one that writes them (push "
        "the registry, publish the datasets); empty: kfp mounts for writing",
    )

    def holds(self, path: str) -> bool:
        """True if a path is on the volume."""
        return path == self.mount or path.startswith(f"{self.mount}/")


MOST_CHIPS = 8
"""TPU chips of one host (cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus)."""


class Accelerator(Settings):
    """The devices of a step, and the nodes that have them."""

    kind: Literal["gpu", "tpu"] = pydantic.Field(
        ..., description="kind of device; it also selects the image, model-gpu or model-tpu"
    )
    count: int = pydantic.Field(
        1,
        ge=0,
        le=256,
        description="GPUs of the pod, or TPU chips of its host; 0: none, even if an overlay names a type",
    )
    resource: OptionalKey = pydantic.Field(
        "",
        description="resource name of the devices; empty: nvidia.com/gpu or google.com/tpu",
    )
    type: LabelValue = pydantic.Field("", description="type, such as nvidia-l4 or tpu-v5-lite-podslice; empty: any")
    type_label: OptionalKey = pydantic.Field(
        "",
        description="node label that names the type; empty: GKE's",
    )
    topology: Topology = pydantic.Field("", description="topology of the TPU chips, such as 2x2; not for GPUs")

    @pydantic.model_validator(mode="after")
    def _topology_is_of_tpus(self) -> "Accelerator":
        if self.kind == "gpu" and self.topology:
            raise ValueError(f"kind gpu has no topology, but topology is {self.topology!r}; remove it")
        if self.kind == "tpu" and not (self.type and self.topology):
            raise ValueError("kind tpu requires a type and a topology, such as tpu-v5-lite-podslice and 2x2")
        # A pod sees the chips of its host. Of a slice of several, each host needs a pod of its own, which wait for one
        # another: one pod alone would wait until its time is up, and be paid for.
        chips = math.prod(map(int, self.topology.split("x"))) if self.topology else 0
        if self.kind == "tpu" and self.count and (chips != self.count or chips > MOST_CHIPS):
            raise ValueError(
                f"topology {self.topology} has {chips} chips, and count is {self.count}: a step trains on the chips of "
                "one host, all of them; give the count of the topology, such as 4 for 2x2 or 8 for 2x4 (of a machine "
                "that has 8); slices of several hosts are not supported"
            )
        return self


class Placement(Settings):
    """Nodes, variables and secrets of pods; for all steps, and again for a single step."""

    node_selector: dict[LabelKey, LabelValue] = pydantic.Field({}, description="labels that a node must have")
    tolerations: list[Toleration] = pydantic.Field([], description="taints that the pods tolerate")
    spot: bool = pydantic.Field(False, description="use Spot nodes (spot_label); a preempted step resumes")
    env: dict[VariableName, str] = pydantic.Field(
        {}, description="environment variables; no secrets, anyone can read them"
    )
    secrets: list[SecretReference] = pydantic.Field([], description="Secrets that the pods use")
    labels: dict[LabelKey, LabelValue] = pydantic.Field({}, description="labels of the pods")
    annotations: dict[LabelKey, str] = pydantic.Field({}, description="annotations of the pods")

    @pydantic.field_validator("env")
    @classmethod
    def _no_secret_in_the_open(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            # GOOGLE_APPLICATION_CREDENTIALS and its like hold a path, which is no secret.
            if _SECRET.search(name) and not value.startswith("/"):
                raise ValueError(
                    f"{name} looks like a secret, and many people can read a compiled pipeline; put it into a Secret "
                    "and name that under `secrets` (the path of a mounted file is accepted here)"
                )
        return env


class StepPlacement(Placement):
    """Resources of one step's pod, and what it has in addition to all steps."""

    image: Literal["", "data", "model", "model-gpu", "model-tpu", "validate"] = pydantic.Field(
        "", description="image; empty: the step's own, according to its accelerator"
    )
    cpu: CpuQuantity = pydantic.Field("1", description="reserved cores, such as 2, 0.5 or 500m")
    cpu_limit: OptionalCpuQuantity = pydantic.Field("", description="most cores; empty: whatever the node has idle")
    memory: MemoryQuantity = pydantic.Field("4Gi", description="reserved memory")
    memory_limit: OptionalMemoryQuantity = pydantic.Field(
        "", description="most memory, beyond which the pod is killed; empty: as reserved"
    )
    accelerator: Accelerator | None = pydantic.Field(None, description="GPUs or TPUs; empty: CPU only")
    shared_memory: OptionalMemoryQuantity = pydantic.Field(
        "", description="size of /dev/shm, part of the pod's memory; empty: the container engine's 64 MB"
    )
    scratch: MemoryQuantity = pydantic.Field(
        "20Gi",
        description="size of /tmp on the node's disk, where a bucket's files are cached; beyond it the pod is evicted",
    )
    scratch_class: OptionalName = pydantic.Field(
        "",
        description="StorageClass of a volume made for /tmp of each pod, and deleted with it; empty: the node's disk, "
        "of which Kubernetes reserves nothing",
    )
    timeout_hours: float = pydantic.Field(24.0, gt=0, le=24 * 365, description="longest time of one attempt")
    retries: int = pydantic.Field(3, ge=0, le=12, description="further attempts; a permanent failure is not retried")
    retry_seconds: int = pydantic.Field(30, ge=0, le=3600, description="wait before the first retry; doubles with each")

    @pydantic.model_validator(mode="after")
    def _no_limit_is_less_than_what_is_reserved(self) -> "StepPlacement":
        for name in ("cpu", "memory"):
            reserved = getattr(self, name)
            limit = getattr(self, f"{name}_limit")
            if limit and parse_quantity(limit) < parse_quantity(reserved):
                raise ValueError(f"{name}_limit {limit} is less than {name} {reserved}; such a pod cannot start")
        return self

    @pydantic.model_validator(mode="after")
    def _image_uses_the_accelerator(self) -> "StepPlacement":
        if self.devices and self.image not in ("", f"model-{self.devices.kind}"):
            raise ValueError(
                f"image {self.image} cannot use the accelerator, {self.devices.count} of kind {self.devices.kind}; "
                f"write image: model-{self.devices.kind}, leave `image` empty, or write accelerator: null"
            )
        return self

    @property
    def devices(self) -> Accelerator | None:
        """The accelerator, if its count is above 0."""
        return self.accelerator if self.accelerator and self.accelerator.count else None


class _PlacementOfEachStep(Settings):
    """A section for each step; sections of steps that a pipeline does not have are ignored."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _over_defaults(cls, values: Any) -> Any:
        # Merged before validation: a config that sets one resource of a step leaves the step its other defaults.
        defaults = {step.name: dict(step.pod) for step in STEPS.values()}
        return merge(defaults, values) if isinstance(values, dict) else values

    def for_step(self, task: str) -> StepPlacement:
        """The section of a task's step; a search's trial is a training, and what chooses among them is as small as
        push."""
        placement: StepPlacement = getattr(self, attribute_of(step_of(task).name))
        return placement


def attribute_of(section: str) -> str:
    """The attribute for a section of this name: `validate` is a method of pydantic's models."""
    return f"{section}_" if hasattr(pydantic.BaseModel, section) else section


def _pod_field(step: Step) -> Any:
    description = f"the pod of {step.name}{', if the run has one' if step.off else ''}"
    return StepPlacement, pydantic.Field(default_factory=StepPlacement, alias=step.name, description=description)


# The section has a field for each entry of `STEPS`, so that a new step has its own without a change here. Type checkers
# cannot follow a class that is made at run time, and no code names its fields.
if TYPE_CHECKING:
    StepPlacements = _PlacementOfEachStep
else:
    StepPlacements = pydantic.create_model(
        "StepPlacements",
        __base__=_PlacementOfEachStep,
        __doc__=_PlacementOfEachStep.__doc__,
        **{attribute_of(step.name): _pod_field(step) for step in STEPS.values()},
    )


class PodUser(Settings):
    """The user of the pods; as a number, because Kubernetes cannot check that a name is not root."""

    uid: int = pydantic.Field(65532, ge=1, lt=2**31, description="user id; the default is that of our images")
    gid: int = pydantic.Field(65532, ge=1, lt=2**31, description="group id")


class SpotLabel(Settings):
    """The label by which a provider marks Spot nodes; a taint of that name and value is tolerated."""

    key: LabelKey = pydantic.Field("cloud.google.com/gke-spot", description="key; the default is GKE's")
    value: LabelValue = pydantic.Field("true", description="value")


class VertexSettings(Settings):
    """The project that `--platform vertex` submits to. Kubernetes does not read it."""

    project: Annotated[str, _Matches(r"([a-z][a-z0-9-]{4,28}[a-z0-9])?", "a project's id, such as team-speech")] = (
        pydantic.Field("", description="id of the Google Cloud project")
    )
    location: Annotated[str, _Matches(r"([a-z]+-[a-z]+[0-9]+)?", "a region, such as europe-west4")] = pydantic.Field(
        "", description="region of the runs; take the one of the bucket"
    )
    pipeline_root: Annotated[str, _Matches(r"(gs://[^/]+(/.+)?)?", "a folder of a bucket, gs://bucket/artifacts")] = (
        pydantic.Field("", description="where Vertex AI keeps artifacts, such as gs://bucket/artifacts")
    )
    service_account: Annotated[
        str, _Matches(r"([^@ ]+@[^@ ]+)?", "the address of an account, name@project.iam.gserviceaccount.com")
    ] = pydantic.Field("", description="account of all steps; empty: the project's Compute Engine account")
    network: Annotated[str, _Matches(r"(projects/.+/global/networks/.+)?", "projects/NUMBER/global/networks/NAME")] = (
        pydantic.Field("", description="VPC network to peer with; empty: none")
    )


class ClusterSettings(Placement):
    """The placement of a run's pods on a cluster."""

    images: ImageSettings = pydantic.Field(default_factory=ImageSettings, description="names of the images")
    service_account: OptionalName = pydantic.Field(
        "",
        description="ServiceAccount of the pods, by default voxline-data or voxline-train; empty: the cluster's own",
    )
    user: PodUser = pydantic.Field(default_factory=PodUser, description="user of the pods")
    spot_label: SpotLabel = pydantic.Field(default_factory=SpotLabel, description="the nodes that `spot` means")
    claims: list[VolumeClaim] = pydantic.Field([], description="volumes, for a store or corpus given as a path")
    deadline_hours: float = pydantic.Field(
        192.0,
        ge=0,
        le=24 * 365,
        description="longest time of the whole run, its waiting for quota and nodes included, on KFP 2.17 or later; "
        "0: no limit",
    )
    kept_days: float = pydantic.Field(
        7.0,
        ge=0,
        le=3650,
        description="days to keep the pods and logs of a finished run, on KFP 2.17 or later; 0: as the server is set",
    )
    vertex: VertexSettings = pydantic.Field(
        default_factory=VertexSettings, description="project and account on Vertex AI, for --platform vertex"
    )
    steps: StepPlacements = pydantic.Field(default_factory=StepPlacements, description="a section for each step")

    @property
    def names_kubernetes(self) -> bool:
        """True if volumes or a registry say which cluster runs the steps; resources of steps alone do not."""
        return bool(self.claims or self.images.registry) and not self.vertex.project

    def mounts(self, path: str) -> bool:
        """True if a path is on one of the volumes.

        >>> settings = ClusterSettings.of({"claims": [{"name": "voxline-store", "mount": "/mnt/store"}]})
        >>> settings.mounts("/mnt/store/speech"), settings.mounts("/mnt/stored")
        (True, False)
        """
        return any(claim.holds(path) for claim in self.claims)
