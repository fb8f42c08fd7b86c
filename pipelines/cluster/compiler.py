"""Compiles a pipeline to IR YAML, with the section `cluster` of the config applied to each task.

KFP's own cache is off for every task. Its key is the image, the component's source and the arguments, so it would not
notice a changed folder of recordings. Our steps look at the content (docs/decisions/0001).
"""

import functools
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import yaml
from kfp import compiler, dsl, kubernetes
from kfp.dsl.pipeline_context import Pipeline

from voxline.components.on_cluster import RUN_ID_ENV, NotifiedRun
from voxline.errors import SettingsError, WorkError
from voxline.notify.settings import NOTIFY_ENV
from voxline.pipelines.cluster import vertex
from voxline.pipelines.cluster.run_logs import RUN_LABEL
from voxline.pipelines.config.cluster import (
    Accelerator,
    ClusterSettings,
    ImageSettings,
    Placement,
    StepPlacement,
    Toleration,
)
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.locations import corpus_locations
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import graph_of, steps_until
from voxline.pipelines.images import ROOT, content_tag
from voxline.pipelines.kfp_graph import ParallelTrials, load_pipeline, pipeline_arguments
from voxline.pipelines.steps import STEPS, step_of, writer_of
from voxline.store.artifacts import ARTIFACT_URIS_ENV, REFUSE_LATER_ENV
from voxline.store.permanent_failures import ATTEMPT_ENV, RESTART_SECONDS_ENV, RESTARTS_ENV
from voxline.training.settings import ACCELERATOR_ENV, TrainSettings

RUN_LIMITS_SINCE = (2, 17)
"""The first KFP server that accepts a deadline of the run and times to keep it; earlier ones refuse such a file."""

Platform = Literal["kfp", "vertex"]
"""Kubeflow Pipelines on Kubernetes, or Vertex AI Pipelines."""
MOST_ARGUMENT_BYTES = 131_072 - 8_192
"""Linux starts no process with an argument of 128 KiB (MAX_ARG_STRLEN), and KFP passes a step's parameters as one, with
the places of its inputs and outputs."""


def compile_pipeline(
    config: RunConfig,
    output: Path,
    kfp_version: tuple[int, ...] = (),
    platform: Platform = "kfp",
    trials: ParallelTrials | None = None,
) -> None:
    """Writes the IR YAML; the config's values become the defaults of the form in the UI.

    A store and a registry that the config does not set have no default: the form requires them.

    Args:
      kfp_version: of the server, such as (2, 17, 0). `deadline_hours` and `kept_days` are left out for a server that
        would refuse them, and if it is empty, so that every server since 2.5 takes the file.
      platform: Vertex AI takes one document, without Kubernetes' settings.
      trials: of a search, in place of train; it always trains, and sends nothing.

    Raises:
      SettingsError: the output is not a `.yaml` file, or the config has what the platform cannot do.
    """
    # In a thread, whose stack is short: KFP reads the source of every function on it, for each setting of each task.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_compile, config, output, kfp_version, platform, trials).result()


def _compile(
    config: RunConfig, output: Path, kfp_version: tuple[int, ...], platform: Platform, trials: ParallelTrials | None
) -> None:
    # KFP's compiler refuses a wrong suffix only after it has compiled everything.
    if output.suffix != ".yaml" or output.is_dir():
        raise SettingsError(f"--output {output}: a file whose name ends in .yaml is accepted")

    optional = [step for step in config.optional_steps() if not (trials and STEPS[step].decides)]
    _check_needs(config, optional)
    _check_tpu(config)

    if platform == "vertex":
        vertex.check_config(config)
        pipeline = pipeline_on_vertex(config.pipeline, config.cluster, config.optional_steps())
    else:
        pipeline = pipeline_with_placement(
            config.pipeline,
            config.cluster,
            limits=kfp_version >= RUN_LIMITS_SINCE,
            notified="" if trials else _notified(config),
            environment=config.signing.environment(),
            optional=optional,
            trials=trials,
            locations=config.locations(),
        )

    # A parameter without a default is one that the form requires, so an empty value must not become one.
    arguments = pipeline_arguments(config.plain(), list(pipeline.component_spec.inputs))
    defaults = {name: value for name, value in arguments.items() if value != ""}
    _check_size(defaults)
    if config.corpus.corpora:  # then no corpus stands alone, and the form does not require its location
        defaults["corpus__uri"] = ""

    # Read back before it has its name: KFP writes some texts as YAML that is another text, or none.
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f".{output.stem}.{os.getpid()}.yaml")
    try:
        compiler.Compiler().compile(pipeline, str(draft), pipeline_parameters=defaults)
        _check_written(draft, defaults)
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _check_size(defaults: Mapping[str, Any]) -> None:
    """Raises a SettingsError if the settings of a step are more than its pod can start with."""
    by_step: dict[str, dict[str, Any]] = {}
    for name, value in defaults.items():
        by_step.setdefault(name.partition("__")[0], {})[name] = value
    for step, values in by_step.items():
        size = len(json.dumps(values, ensure_ascii=False).encode())
        if size > MOST_ARGUMENT_BYTES:
            longest = max(values, key=lambda name: len(str(values[name])))
            raise SettingsError(
                f"{step}: its settings have {size:,} bytes, and a pod takes {MOST_ARGUMENT_BYTES:,} as one argument; "
                f"shorten {longest}, such as a long lexicon or list in it, or run this on one machine: voxline run"
            )


def _check_written(file: Path, defaults: Mapping[str, Any]) -> None:
    """Raises a WorkError if a compiled file is no YAML, or has other values than the config."""
    try:
        with file.open(encoding="utf-8") as stream:
            document = next(yaml.load_all(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        parameters = document["root"]["inputDefinitions"]["parameters"]
        written = {name: parameters[name]["defaultValue"] for name in defaults}
    except (yaml.YAMLError, UnicodeError, KeyError, TypeError, StopIteration) as error:
        raise WorkError(f"the compiled pipeline cannot be read back, so it was not written: {error}") from None
    for name, value in defaults.items():
        if written[name] != value:
            raise WorkError(
                f"the compiled pipeline has {written[name]!r} for {name}, and not {value!r}; write it plainer"
            )


def _check_needs(config: RunConfig, optional: Collection[str]) -> None:
    """Refuses a config without a value that one of its steps needs on a cluster, although not on this machine."""
    values = config.plain()
    for step in graph_of(config.pipeline, optional):
        for key, refusal in STEPS[step].needed_on_cluster.items():
            if not get_key(values, key):
                raise SettingsError(refusal)


def _check_tpu(config: RunConfig) -> None:
    """Refuses TPUs for a training that they cannot run, before a node is booked for it."""
    for step in graph_of(config.pipeline):
        devices = config.cluster.steps.for_step(step).devices
        settings = config.section(step)
        if devices and devices.kind == "tpu" and isinstance(settings, TrainSettings) and settings.not_on_tpus():
            raise SettingsError(
                f"cluster.steps.{step}.accelerator is a TPU, and {settings.not_on_tpus()}; give a GPU, or "
                "accelerator: null"
            )


def _notified(config: RunConfig) -> str:
    """The JSON that each step needs to send the run's outcome; empty if nothing is to be sent."""
    if not config.notify.addresses():
        return ""
    steps = steps_until(config.pipeline, optional=config.optional_steps())
    run = NotifiedRun(
        config.pipeline,
        config.name,
        config.model,
        corpora=corpus_locations(config.plain()),
        steps=steps,
        settings=config.notify.plain(),
        links={step: STEPS[step].link for step in steps if STEPS[step].link},
        training=str(get_key(config.plain(), "publish.training") or ""),
        prices=config.cost.plain(),
        reserved={step: [pod.cores, pod.accelerators] for step, pod in config.reserved(steps).items()},
        like=config.cost_digest(on_cluster=True),
    )
    return run.to_json()


def pipeline_with_placement(
    name: str,
    cluster: ClusterSettings,
    *,
    limits: bool = False,
    notified: str = "",
    environment: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
    trials: ParallelTrials | None = None,
    locations: Mapping[str, str] | None = None,
) -> Any:
    """The pipeline with resources and placement on each task.

    Args:
      notified: value of `NOTIFY_ENV`; empty: nothing is sent about the run.
      environment: further variables of each step.
      limits: whether to set the run's deadline, and the times for which it is kept.
      optional: steps that the config turns on.
      trials: of a search, in place of train.
      locations: the config's paths by key. They say which volume each step needs.
    """
    graph = load_pipeline(name, optional=optional)
    if trials:
        graph = graph.with_trials(trials)

    def apply(task: Any, step: str) -> None:
        apply_placement(task, step, name, cluster)
        _mount_claims(task, step, cluster, locations or {})
        for variable, value in (environment or {}).items():
            task.set_env_variable(variable, value)
        if notified:
            # The id exists only once the run does, so a pod reads it from the label that KFP gives to it.
            task.set_env_variable(NOTIFY_ENV, notified)
            kubernetes.use_field_path_as_env(task, RUN_ID_ENV, f"metadata.labels['{RUN_LABEL}']")

    ttl_seconds = math.ceil(cluster.kept_days * 86400) if limits else 0
    # KFP 2.17 configures Argo with an hour after success and after failure, and each of them wins over the common one.
    config = dsl.PipelineConfig(
        active_deadline_seconds=(math.ceil(cluster.deadline_hours * 3600) if limits else 0) or None,
        ttl_seconds_after_finished=ttl_seconds or None,
        ttl_seconds_after_success=ttl_seconds or None,
        ttl_seconds_after_failure=ttl_seconds or None,
    )

    decorate = dsl.pipeline(name=graph.name, description=graph.description, pipeline_config=config)
    return decorate(_with_each_task(graph, apply))


def pipeline_on_vertex(name: str, cluster: ClusterSettings, optional: Collection[str] = ()) -> Any:
    """The pipeline for Vertex AI, with a machine for each task.

    Args:
      optional: steps that the config turns on.
    """

    def apply(task: Any, step: str) -> None:
        own = cluster.steps.for_step(step)
        task.set_caching_options(False)
        task.set_container_image(image_reference(step, own, cluster))
        vertex.apply_limits(task, step, own)
        task.set_env_variable(ARTIFACT_URIS_ENV, "1")
        _set_variables(task, step, own, cluster)

    graph = load_pipeline(name, optional=optional)
    decorate = dsl.pipeline(
        name=graph.name, description=graph.description, pipeline_root=cluster.vertex.pipeline_root or None
    )
    return decorate(_with_each_task(graph, apply))


def _with_each_task(graph: Any, apply: Callable[[Any, str], None]) -> Callable[..., None]:
    """The pipeline's function, which then applies something to each of its tasks."""

    # KFP reads the parameters of a pipeline from the signature of its function, which `wraps` keeps.
    @functools.wraps(graph.pipeline_func)
    def placed(*arguments: Any, **named: Any) -> None:
        graph.pipeline_func(*arguments, **named)
        for step, task in Pipeline.get_default_pipeline().tasks.items():
            apply(task, step)

    return placed


RESOURCES = {"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"}
TYPE_LABELS = {"gpu": "cloud.google.com/gke-accelerator", "tpu": "cloud.google.com/gke-tpu-accelerator"}
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
NODE_NAME_ANNOTATION = "workflows.argoproj.io/node-name"
"""Argo's annotation of every pod: the run, the step and the number of the attempt."""


def apply_placement(task: Any, step: str, pipeline: str, cluster: ClusterSettings) -> None:
    """Applies the section `cluster` to the task of a step."""
    own = cluster.steps.for_step(step)
    task.set_caching_options(False)
    task.set_container_image(image_reference(step, own, cluster))

    _set_resources(task, own)
    _set_nodes(task, own, cluster)
    _set_variables(task, step, own, cluster)
    _set_secrets_and_volumes(task, own, cluster)
    _set_retries(task, own)

    # The level `restricted` of Kubernetes' Pod Security Standards admits no pod that may run as root.
    kubernetes.set_security_context(
        task, run_as_user=cluster.user.uid, run_as_group=cluster.user.gid, run_as_non_root=True
    )
    kubernetes.set_image_pull_policy(task, cluster.images.pull_policy)
    if cluster.images.pull_secrets:
        kubernetes.set_image_pull_secrets(task, cluster.images.pull_secrets)

    # `run_logs` finds the pods of a step by these labels. The config's own come later and win, the step's last.
    labels = {
        "app.kubernetes.io/name": "voxline",
        "app.kubernetes.io/component": step,
        "app.kubernetes.io/part-of": pipeline,
    }
    for key, value in {**labels, **cluster.labels, **own.labels}.items():
        kubernetes.add_pod_label(task, key, value)
    for key, value in {**cluster.annotations, **own.annotations}.items():
        kubernetes.add_pod_annotation(task, key, value)


def image_reference(step: str, own: StepPlacement, cluster: ClusterSettings) -> str:
    """The reference of a step's image, by digest if the config has one, else by tag."""
    # Only `model` has variants with the libraries of GPUs and TPUs; see docker/.
    image = step_of(step).image
    variant = f"{image}-{own.devices.kind}" if own.devices and image == "model" else image
    name = own.image or variant

    # A config wins over the environment, where CI sets the registry and the tag that it has just pushed.
    environment = _images_from_environment()
    repository = f"{(cluster.images.registry or environment.registry).rstrip('/') or 'voxline'}/{name}"
    digest = {str(image): digest for image, digest in cluster.images.digests.items()}.get(name)
    if digest:
        return f"{repository}@{digest}"
    return f"{repository}:{cluster.images.tag or environment.tag or code_tag()}"


def _images_from_environment() -> ImageSettings:
    """The registry and the tag in the environment, validated like those of a config."""
    values = {key: os.environ.get(f"VOXLINE_IMAGE_{key.upper()}", "") for key in ("registry", "tag")}
    return ImageSettings.of(values, "the environment (VOXLINE_IMAGE_REGISTRY, VOXLINE_IMAGE_TAG)")


@functools.cache
def code_tag(root: Path = ROOT) -> str:
    """The tag of the images that `make images` builds from the code in a folder.

    Raises:
      SettingsError: there are no sources.
    """
    try:
        return content_tag(root, os.environ.get("VOXLINE_IMAGE_BASE", ""))
    except OSError as error:
        raise SettingsError(
            f"cluster: 'images.tag' is not set, and the sources of the images are not here to derive it ({error}); "
            "give the tag: --set cluster.images.tag=…, or VOXLINE_IMAGE_TAG"
        ) from None


def _set_resources(task: Any, own: StepPlacement) -> None:
    task.set_cpu_request(own.cpu)
    if own.cpu_limit:
        task.set_cpu_limit(own.cpu_limit)
    task.set_memory_request(own.memory)
    task.set_memory_limit(own.memory_limit or own.memory)  # a pod above its request gets other pods evicted

    if own.devices:
        task.set_accelerator_type(own.devices.resource or RESOURCES[own.devices.kind])
        task.set_accelerator_limit(own.devices.count)

    # A container has 64 MB of /dev/shm, and processes that share arrays need more.
    if own.shared_memory:
        kubernetes.empty_dir_mount(task, "shared-memory", "/dev/shm", medium="Memory", size_limit=own.shared_memory)  # noqa: S108

    # /tmp is always a volume with a limit: what a step leaves in its container could fill the node's disk.
    folder = "/tmp"  # noqa: S108 - the pod's own
    if own.scratch_class:
        once = ["ReadWriteOnce"]
        kubernetes.add_ephemeral_volume(
            task, "scratch", folder, once, own.scratch, storage_class_name=own.scratch_class
        )
    else:
        kubernetes.empty_dir_mount(task, "scratch", folder, size_limit=own.scratch)


def _set_nodes(task: Any, own: StepPlacement, cluster: ClusterSettings) -> None:
    selector = {**cluster.node_selector, **own.node_selector}
    tolerations = [*cluster.tolerations, *own.tolerations]

    # A provider taints its Spot nodes as it labels them, so that no other pod goes there by chance.
    if cluster.spot or own.spot:
        label = cluster.spot_label
        selector[label.key] = label.value
        tolerations.append(Toleration(key=label.key, operator="Equal", value=label.value))

    # Nodes with devices have a taint of the resource's name; GKE sets it by itself.
    if own.devices:
        selector.update(accelerator_labels(own.devices))
        tolerations.append(Toleration(key=own.devices.resource or RESOURCES[own.devices.kind]))

    for key, value in selector.items():
        kubernetes.add_node_selector(task, key, value)
    for toleration in tolerations:
        kubernetes.add_toleration(
            task,
            key=toleration.key,
            operator=toleration.operator,
            value=toleration.value or None,
            effect=toleration.effect,
        )


def accelerator_labels(accelerator: Accelerator) -> dict[str, str]:
    """The labels of the nodes that have an accelerator."""
    labels = {}
    if accelerator.type:
        labels[accelerator.type_label or TYPE_LABELS[accelerator.kind]] = accelerator.type
    if accelerator.topology:
        labels[TOPOLOGY_LABEL] = accelerator.topology
    return labels


def _set_variables(task: Any, step: str, own: StepPlacement, cluster: ClusterSettings) -> None:
    for name, value in {**cluster.env, **own.env}.items():
        task.set_env_variable(name, value)

    # Train refuses to start without the devices that it was placed for: on a CPU it would take weeks.
    if own.devices:
        task.set_env_variable(ACCELERATOR_ENV, f"{own.devices.kind}:{own.devices.count}")
    if any(other.after == step for other in STEPS.values()):  # KFP keeps no page of a task that failed
        task.set_env_variable(REFUSE_LATER_ENV, "1")
    if own.retries:
        task.set_env_variable(RESTARTS_ENV, str(own.retries))
        task.set_env_variable(RESTART_SECONDS_ENV, str(own.retry_seconds))


def _set_secrets_and_volumes(task: Any, own: StepPlacement, cluster: ClusterSettings) -> None:
    placements: Iterable[Placement] = (cluster, own)
    for placement in placements:
        for secret in placement.secrets:
            if secret.env:
                kubernetes.use_secret_as_env(task, secret.name, dict(secret.env))
            if secret.mount:
                kubernetes.use_secret_as_volume(task, secret.name, secret.mount)


def _mount_claims(task: Any, step: str, cluster: ClusterSettings, locations: Mapping[str, str]) -> None:
    """Mounts the volumes that a step needs; kfp-kubernetes itself cannot mount a claim read-only.

    A step gets the registry's volume only if it reads the registry, by its input or by a path of its section: convert,
    which decodes strangers' recordings, does not.

    Raises:
      SettingsError: a claim that every step writes has a read-only name.
    """
    section = step_of(step).config_section
    for claim in cluster.claims:
        # The locations on the volume say who writes it; one that has no single writer is written by every step.
        keys = [key for key, path in locations.items() if claim.holds(path)]
        writers = {writer for key in keys if (writer := writer_of(key))}
        if claim.read_only_name and ("store" in keys or not writers):
            raise SettingsError(
                f"cluster.claims: {claim.name} has a read_only_name, and holds {', '.join(keys) or 'no location'}; "
                "give the registry, or the datasets, a claim without the store"
            )

        if "registry" in keys and "store" not in keys:
            reads = "registry" in task.inputs or any(key.partition(".")[0] == section for key in keys)
            if not reads and step not in writers:
                continue

        # A read-only volume is another claim of the same files: the mode is a property of the volume.
        name = claim.name if step in writers else claim.read_only_name or claim.name
        kubernetes.mount_pvc(task, name, claim.mount, claim.sub_path)


def _set_retries(task: Any, own: StepPlacement) -> None:
    """Sets the timeout and the retries.

    Argo counts the maximum back-off from the start of the first attempt, and ends the running attempt when it is over;
    kfp's default is an hour. It is set to the time of all attempts and waits.
    """
    seconds = math.ceil(own.timeout_hours * 3600)
    kubernetes.set_timeout(task, seconds)

    if own.retries:
        # The annotation ends in the attempt's number, by which a step knows a first attempt from a retry.
        kubernetes.use_field_path_as_env(task, ATTEMPT_ENV, f"metadata.annotations['{NODE_NAME_ANNOTATION}']")

        # The waits double: r + 2r + … + 2^(n-1) r = (2^n - 1) r seconds.
        waits = own.retry_seconds * (2**own.retries - 1)
        task.set_retry(
            own.retries,
            backoff_duration=f"{own.retry_seconds}s",
            backoff_factor=2,
            backoff_max_duration=f"{seconds * (own.retries + 1) + waits}s",
        )
