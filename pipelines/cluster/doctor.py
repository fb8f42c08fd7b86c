"""All that a run needs, looked at before anything is booked: a line each, and for each problem what mends it.

Nothing is written, created or started. What cannot be known from here is said to be not checked, and why.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import yaml

from voxline.errors import VoxlineError
from voxline.pipelines.cluster import checks
from voxline.pipelines.cluster.access import PORT_FORWARD, KfpEndpoint
from voxline.pipelines.cluster.checks import Diagnostic, catch_errors
from voxline.pipelines.cluster.image_registry import ImageReference, ImageUnknownError, image_exists
from voxline.pipelines.cluster.kfp_client import KfpServer
from voxline.pipelines.config.run_config import RunConfig


@dataclass(frozen=True)
class DoctorRequest:
    """What is looked at."""

    access: Callable[[], KfpEndpoint]
    config: Callable[[], RunConfig] | None
    deadline: float


def diagnose(asked: DoctorRequest) -> Iterator[Diagnostic]:
    """Each finding as soon as it is made."""
    yield Diagnostic.ok("client", f"kfp {version_of('kfp')}, voxline {version_of('voxline')}")
    access = None
    try:
        access = asked.access()
    except VoxlineError as error:
        yield Diagnostic.problem("server", str(error))
    if access:
        cluster = KfpServer(access, deadline=asked.deadline)
        reached = yield from _check_server(cluster)
        if reached:
            yield from catch_errors("permissions", lambda: checks.check_permissions(cluster))
            yield from catch_errors("schedules", lambda: checks.check_schedules(cluster))
    if not asked.config:
        for what in ("images", "places"):
            yield Diagnostic.not_checked(what, "no --config was given")
        return
    try:
        config = asked.config()
        compiled = _compiled_images(config)
    except VoxlineError as error:
        yield Diagnostic.problem("config", str(error))
        return
    yield Diagnostic.ok("config", f"{config.name} compiles to {len(compiled)} steps")
    if access:
        yield from checks.check_kubernetes_objects(access, config)
    for image in sorted(set(compiled)):
        yield _check_image(image)
    yield from checks.check_locations(config, asked.deadline)


def _check_server(cluster: KfpServer) -> Any:
    try:
        health = cluster.health()
        namespace = cluster.namespace
    except VoxlineError as error:
        yield Diagnostic.problem(
            "server", str(error), f"`{PORT_FORWARD}` leads to a server without a gateway; a token and --ca to others"
        )
        return False
    users = f"namespace {namespace}" if namespace else "one user"
    yield Diagnostic.ok("server", f"{cluster.access.host}: KFP {health.get('tag_name', 'unknown')}, {users}")
    if not str(health.get("tag_name", "2")).lstrip("v").startswith("2"):
        yield Diagnostic.problem(
            "version", f"KFP {health['tag_name']}; these graphs need 2", "upgrade Kubeflow Pipelines to 2.5 or later"
        )
    return True


def _compiled_images(config: RunConfig) -> Sequence[str]:
    """The image of each step."""
    from voxline.pipelines.cluster.submit import CompiledPipeline

    document = next(
        iter(yaml.load_all(CompiledPipeline.of(config).text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    )
    return [one["container"]["image"] for one in document["deploymentSpec"]["executors"].values()]


def _check_image(name: str) -> Diagnostic:
    image = ImageReference.read(name)
    if not image.names_a_host:
        return Diagnostic.not_checked(
            "image", f"{name}: it names no registry, so only the nodes know; set cluster.images.registry"
        )
    try:
        there = image_exists(image)
    except ImageUnknownError as reason:
        return Diagnostic.not_checked("image", f"{name}: {reason}")
    if there:
        return Diagnostic.ok("image", name)
    return Diagnostic.problem(
        "image",
        f"{name}: {image.registry} has none",
        "`make images`, then push it; or name one that is there: --set cluster.images.tag=…",
    )


def config_loader(files: Sequence[Path], assignments: Sequence[str]) -> Callable[[], RunConfig]:
    """A config that is read when it is looked at."""

    def read() -> RunConfig:
        from voxline.pipelines.config.load import load_config

        return load_config(files, assignments)

    return read
