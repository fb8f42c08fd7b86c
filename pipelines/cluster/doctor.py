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
from voxline.pipelines.cluster.access import PORT_FORWARD, Access
from voxline.pipelines.cluster.checks import Finding, guarded
from voxline.pipelines.cluster.image_registry import Image, NotToldError, is_there
from voxline.pipelines.cluster.kfp_client import Cluster
from voxline.pipelines.config.run_config import RunConfig


@dataclass(frozen=True)
class Asked:
    """What is looked at."""

    access: Callable[[], Access]
    config: Callable[[], RunConfig] | None
    deadline: float


def examine(asked: Asked) -> Iterator[Finding]:
    """Each finding as soon as it is made."""
    yield Finding.ok("client", f"kfp {version_of('kfp')}, voxline {version_of('voxline')}")
    access = None
    try:
        access = asked.access()
    except VoxlineError as error:
        yield Finding.problem("server", str(error))
    if access:
        cluster = Cluster(access, deadline=asked.deadline)
        reached = yield from _server(cluster)
        if reached:
            yield from guarded("permissions", lambda: checks.permissions(cluster))
            yield from guarded("schedules", lambda: checks.schedules(cluster))
    if not asked.config:
        for what in ("images", "places"):
            yield Finding.not_checked(what, "no --config was given")
        return
    try:
        config = asked.config()
        compiled = _compiled(config)
    except VoxlineError as error:
        yield Finding.problem("config", str(error))
        return
    yield Finding.ok("config", f"{config.name} compiles to {len(compiled)} steps")
    if access:
        yield from checks.objects(access, config)
    for image in sorted(set(compiled)):
        yield _image(image)
    yield from checks.places(config, asked.deadline)


def _server(cluster: Cluster) -> Any:
    try:
        health = cluster.health()
        namespace = cluster.namespace
    except VoxlineError as error:
        yield Finding.problem(
            "server", str(error), f"`{PORT_FORWARD}` leads to a server without a gateway; a token and --ca to others"
        )
        return False
    users = f"namespace {namespace}" if namespace else "one user"
    yield Finding.ok("server", f"{cluster.access.host}: KFP {health.get('tag_name', 'unknown')}, {users}")
    if not str(health.get("tag_name", "2")).lstrip("v").startswith("2"):
        yield Finding.problem(
            "version", f"KFP {health['tag_name']}; these graphs need 2", "upgrade Kubeflow Pipelines to 2.5 or later"
        )
    return True


def _compiled(config: RunConfig) -> Sequence[str]:
    """The image of each step."""
    from voxline.pipelines.cluster.submit import Compiled

    document = next(iter(yaml.load_all(Compiled.of(config).text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
    return [one["container"]["image"] for one in document["deploymentSpec"]["executors"].values()]


def _image(name: str) -> Finding:
    image = Image.read(name)
    if not image.names_a_host:
        return Finding.not_checked(
            "image", f"{name}: it names no registry, so only the nodes know; set cluster.images.registry"
        )
    try:
        there = is_there(image)
    except NotToldError as reason:
        return Finding.not_checked("image", f"{name}: {reason}")
    if there:
        return Finding.ok("image", name)
    return Finding.problem(
        "image",
        f"{name}: {image.registry} has none",
        "`make images`, then push it; or name one that is there: --set cluster.images.tag=…",
    )


def config_of(files: Sequence[Path], assignments: Sequence[str]) -> Callable[[], RunConfig]:
    """A config that is read when it is looked at."""

    def read() -> RunConfig:
        from voxline.pipelines.config.load import load_config

        return load_config(files, assignments)

    return read
