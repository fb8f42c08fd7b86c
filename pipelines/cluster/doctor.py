"""Checks everything that a run needs before it starts: one line for each check, with a fix for each problem.

Nothing is written, created or started. What cannot be checked from here is reported as not checked, with the reason.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import Any

import yaml

from voxline.errors import MissingPackageError, NoCredentialsError, VoxlineError
from voxline.pipelines.cluster.access import HOST, PORT_FORWARD, KfpEndpoint
from voxline.pipelines.cluster.compiler import RUN_LIMITS_SINCE
from voxline.pipelines.cluster.image_registry import ImageReference, ImageUnknownError, image_exists
from voxline.pipelines.cluster.kfp_client import KfpServer, find_named
from voxline.pipelines.cluster.namespace_checks import check_namespace, check_retries, with_kubernetes
from voxline.pipelines.cluster.schedules import Schedules, is_enabled
from voxline.pipelines.config.locations import SHARED_KEYS, is_http_corpus
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.local.doctor import Diagnostic, catch_errors
from voxline.store.objects import open_store
from voxline.store.uris import is_remote

GROUP = "pipelines.kubeflow.org"
CREATED_RESOURCES = {"experiments": "experiments", "runs": "runs", "jobs": "schedules", "pipelines": "pipelines"}
"""Resource of KFP's RBAC → its name in messages."""
ABSENT_NAME = "voxline-doctor-looks-for-none"


def check_permissions(cluster: KfpServer) -> Iterator[Diagnostic]:
    """Checks that this account may list objects, by listing them, and create them, by asking Kubernetes."""
    namespace = cluster.namespace
    client = cluster.client
    listings: dict[str, tuple[Callable[..., Any], str]] = {
        "pipelines": (client.pipelines.pipeline_service_list_pipelines, "pipelines"),
        "experiments": (client.experiments.experiment_service_list_experiments, "experiments"),
        "runs": (client.runs.run_service_list_runs, "runs"),
        "schedules": (client.recurring_runs.recurring_run_service_list_recurring_runs, "recurring_runs"),
    }

    # Looking for a name that nothing has is the cheapest listing: the server checks the right, and returns no items.
    for kind, (method, key) in listings.items():
        try:
            find_named(method, key, ABSENT_NAME, namespace=namespace or "")
        except VoxlineError as error:
            fix = (
                f"kubectl -n {namespace or 'kubeflow'} create rolebinding voxline-submits --role=voxline-ci --user=YOU"
            )
            yield Diagnostic.problem("permissions", f"{kind} cannot be listed: {error}", fix)
            return  # who may not list one kind may rarely list the others: one fix is enough
    yield Diagnostic.ok("permissions", f"{', '.join(listings)} can be listed")

    # KFP has no dry run of a creation. A server with several users asks Kubernetes for the right, and so does this.
    if not namespace:
        yield Diagnostic.ok("permissions", "everyone who reaches a single-user server may create runs")
        return
    yield from with_kubernetes("permissions", lambda kubernetes: _check_creation(kubernetes, namespace))


def check_schedules(cluster: KfpServer) -> Iterator[Diagnostic]:
    """Finds the schedules that a crash has left with none or two enabled."""
    generations = Schedules(cluster).all()
    for name in sorted({str(generation.display_name) for generation in generations}):
        enabled = sum(is_enabled(generation) for generation in generations if generation.display_name == name)
        if enabled == 1:
            yield Diagnostic.ok("schedule", name)
        else:
            yield Diagnostic.problem(
                "schedule", f"{name}: {enabled} are enabled instead of 1", "run its `voxline schedule` command again"
            )


def _check_creation(kubernetes: Any, namespace: str) -> Iterator[Diagnostic]:
    missing = [
        name
        for resource, name in CREATED_RESOURCES.items()
        if not kubernetes.is_allowed("create", resource, namespace, GROUP)
    ]
    if missing:
        yield Diagnostic.problem(
            "permissions",
            f"this kubeconfig's account may not create {', '.join(missing)} in {namespace}",
            f"kubectl -n {namespace} create rolebinding voxline-submits --role=voxline-ci --user=YOU",
        )
    else:
        yield Diagnostic.ok("permissions", f"{', '.join(CREATED_RESOURCES.values())} can be created in {namespace}")


READ = ("storage.objects.get", "storage.objects.list")
WRITE = (*READ, "storage.objects.create", "storage.objects.delete")

# The storages' own variable: seconds of retries for one answer.
DEADLINE = "VOXLINE_BUCKETS_DEADLINE_SECONDS"


def check_locations(config: RunConfig, deadline: float) -> Iterator[Diagnostic]:
    """Checks the config's locations with the user's credentials; a pod has those of its service account.

    Args:
      deadline: seconds that one answer of a bucket may take, unless the environment says how many.
    """
    unknown: dict[str, str] = {}  # scheme of a storage → why it cannot be asked from here; asking takes seconds
    for key, place in config.locations().items():
        needed = WRITE if key in SHARED_KEYS else READ

        # The query of an address may be a signature, and what doctor prints lands in logs.
        if is_http_corpus(key, place):
            yield Diagnostic.not_checked(key, f"{place.partition('?')[0]}: requested by the step ingest")
            continue
        if not is_remote(place):
            yield _check_path(config, key, place)
            continue
        scheme = place.partition("://")[0]
        if scheme in unknown:
            yield Diagnostic.not_checked(key, f"{place}: {unknown[scheme]}")
            continue

        # A list, so that the environment is as before when the caller gets the first diagnostic.
        try:
            with _short_deadline(deadline):
                diagnostics = list(_check_bucket(key, place, needed))
            yield from diagnostics
        except NoCredentialsError:
            unknown[scheme] = "there are no credentials for it here; pods have those of their service account"
            yield Diagnostic.not_checked(key, f"{place}: {unknown[scheme]}")
        except MissingPackageError as error:  # the client's installation has not every storage
            unknown[scheme] = str(error)
            yield Diagnostic.not_checked(key, f"{place}: {unknown[scheme]}")
        except VoxlineError as error:
            yield Diagnostic.problem(key, str(error))


@contextlib.contextmanager
def _short_deadline(seconds: float) -> Iterator[None]:
    """Shortens the deadline for a storage, so that a person does not wait for minutes, as a run does."""
    if DEADLINE in os.environ:
        yield
        return
    os.environ[DEADLINE] = str(seconds)
    try:
        yield
    finally:
        del os.environ[DEADLINE]


def _check_path(config: RunConfig, key: str, path: str) -> Diagnostic:
    if config.cluster.mounts(path):
        return Diagnostic.not_checked(key, f"{path}: it is on a volume, which only pods see")
    return Diagnostic.problem(
        key, f"{path}: no volume of the config is mounted there, so pods do not see it",
        f"--set {key}=gs://bucket/folder, or a claim under cluster.claims whose mount contains it",
    )  # fmt: skip


def _check_bucket(key: str, uri: str, needed: tuple[str, ...]) -> Iterator[Diagnostic]:
    bucket = open_store(uri)

    # A store or a registry is empty before the first run; an empty corpus is a wrong address.
    first = next(iter(bucket.list()), None)
    if key.startswith("corpus.") and first is None:
        yield Diagnostic.problem(
            key, f"{uri}: it is empty", f"gcloud storage cp -r /your/corpus/* {uri}/, or another {key}"
        )
        return

    # Google Cloud Storage says which of some permissions the caller has, so nothing needs to be written to find out.
    try:
        granted = bucket.held_permissions(needed)
    except Exception as error:  # other storages with Google's protocol may not support this call
        yield Diagnostic.ok(key, f"{uri}: can be listed")
        yield Diagnostic.not_checked(key, f"{uri}: the storage does not report permissions ({type(error).__name__})")
        return

    missing = [permission for permission in needed if permission not in granted]
    if missing:
        role = "roles/storage.objectViewer" if needed == READ else "roles/storage.objectUser"
        yield Diagnostic.problem(
            key,
            f"{uri}: you lack {', '.join(missing)}",
            f"gcloud storage buckets add-iam-policy-binding gs://{uri.split('/')[2]} --member=… --role={role}",
        )
    else:
        yield Diagnostic.ok(key, f"{uri}: can be {'read' if needed == READ else 'read and written'}")


@dataclass(frozen=True)
class DoctorRequest:
    """The server and the config to check.

    Attributes:
      access: makes the endpoint; a function, so that a wrong option is one diagnostic and not the end. None: nobody
        says where the server is, and what needs it is not checked.
      config: loads the config; None: none was given.
      deadline: seconds for one response of the server or of a bucket.
    """

    access: Callable[[], KfpEndpoint] | None
    config: Callable[[], RunConfig] | None
    deadline: float


def diagnose(request: DoctorRequest) -> Iterator[Diagnostic]:
    """Yields each diagnostic as soon as it is known."""
    yield Diagnostic.ok("client", f"kfp {version_of('kfp')}, voxline {version_of('voxline')}")

    # The server first: its version decides how the config is compiled.
    access: KfpEndpoint | None = None
    cluster: KfpServer | None = None
    reached = False
    try:
        access = request.access() if request.access else None
        cluster = KfpServer(access, deadline=request.deadline) if access else None
    except VoxlineError as error:
        yield Diagnostic.problem("server", str(error))
    if not request.access:
        for subject in ("server", "permissions", "namespace", "quota"):
            yield Diagnostic.not_checked(subject, f"no endpoint: give --host or {HOST}")
    if cluster:
        server = cluster
        reached = yield from _check_server(cluster)
        if reached:
            yield from catch_errors("permissions", lambda: check_permissions(server))
            yield from catch_errors("schedules", lambda: check_schedules(server))
            yield from check_retries()

    # A server that does not respond hides no fault of the config: the checks below need no server.
    if not request.config:
        for subject in ("images", "locations"):
            yield Diagnostic.not_checked(subject, "no --config was given")
        return
    try:
        config = request.config()
        compiled = _compiled_images(config, cluster.version if reached and cluster else ())
    except VoxlineError as error:
        yield Diagnostic.problem("config", str(error))
        return
    yield Diagnostic.ok("config", f"{config.name} compiles to {len(compiled)} steps")

    if access:
        yield from check_namespace(access, config, list(compiled))
    for image in sorted(set(compiled.values())):
        yield _check_image(image)
    yield from check_locations(config, request.deadline)


def _check_server(cluster: KfpServer) -> Any:
    try:
        health = cluster.health()
        namespace = cluster.namespace
    except VoxlineError as error:
        yield Diagnostic.problem(
            "server",
            str(error),
            f"run `{PORT_FORWARD}` for a server without a gateway; give a token and --ca for others",
        )
        return False
    users = f"namespace {namespace}" if namespace else "one user"
    yield Diagnostic.ok("server", f"{cluster.access.host}: KFP {health.get('tag_name', 'unknown')}, {users}")
    yield _check_version(cluster.version)
    return True


OLDEST = (2, 5)
NEWEST = (2, 17)
"""From `OLDEST` to `NEWEST`: the servers whose specs take what we compile (tests/cluster/kubeflow/test_versions.py)."""


def _check_version(version: tuple[int, ...]) -> Diagnostic:
    text = _dotted(version)
    tested = f"tested with {_dotted(OLDEST)} to {_dotted(NEWEST)}"
    if not version:
        return Diagnostic.not_checked("version", f"the server does not say its version; {tested}")

    if version < OLDEST:
        return Diagnostic.problem("version", f"KFP {text}; {tested}", "upgrade Kubeflow Pipelines to 2.5 or later")
    if version[:2] > NEWEST:
        more = "; KFP 3 has no ML Metadata, and its steps need more permissions than k8s/ grants"
        return Diagnostic.not_checked(
            "version", f"KFP {text} is newer than what we test ({tested}){more if version >= (3,) else ''}"
        )

    # Each of these fields is left out of the compiled file, or ignored by the server, and the run works without it.
    missing = []
    if version < RUN_LIMITS_SINCE:
        missing.append("cluster.deadline_hours and cluster.kept_days have no effect before 2.17")
    if version < (2, 16):
        missing.append("cluster.user has no effect before 2.16, and pods do not pass `restricted`")
    return Diagnostic.ok("version", "; ".join([f"KFP {text}, {tested}", *missing]))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _compiled_images(config: RunConfig, version: tuple[int, ...]) -> dict[str, str]:
    """Step → its image."""
    from voxline.pipelines.cluster.submit import CompiledPipeline

    text = CompiledPipeline.of(config, version).text
    # The first document is the pipeline; the second is for Kubernetes alone. The loader in Python takes seconds.
    document = next(iter(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
    executors = document["deploymentSpec"]["executors"]
    return {name.removeprefix("exec-"): executor["container"]["image"] for name, executor in executors.items()}


def _check_image(name: str) -> Diagnostic:
    image = ImageReference.read(name)
    if not image.names_a_host:
        return Diagnostic.not_checked(
            "image", f"{name}: it names no registry, so only the nodes know; set cluster.images.registry"
        )

    try:
        exists = image_exists(image)
    except ImageUnknownError as reason:
        return Diagnostic.not_checked("image", f"{name}: {reason}")

    if exists:
        return Diagnostic.ok("image", name)
    return Diagnostic.problem(
        "image",
        f"{name}: {image.registry} does not have it",
        "`make images`, then push it; or give a tag that exists: --set cluster.images.tag=…",
    )
