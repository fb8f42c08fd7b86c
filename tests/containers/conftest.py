"""The build, built once; nothing here is collected but by `make test-containers`, which says so in its environment."""

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.containers.base_image import NoBaseError, base_image, builder_image
from tests.containers.engine import NoEngineError, docker, engine
from tests.pipelines.conftest import corpus as corpus  # a fixture
from voxline.pipelines import images
from voxline.pipelines.images import content_tag

if not os.environ.get("VOXLINE_TEST_CONTAINERS"):
    collect_ignore_glob = ["test_*"]

ROOT = Path(__file__).parent.parent.parent
HARDENED = ("--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp")
"""As a cluster's pods run: only /tmp is written to."""

Image = Callable[[str], str]
Ran = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def running_engine() -> Iterator[str]:
    """A Docker engine, as long as the tests last."""
    try:
        with engine() as address:
            yield address
    except NoEngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def base(running_engine: str) -> str:
    """The base image's name."""
    try:
        return base_image()
    except NoBaseError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tag(base: str) -> str:
    """The content tag of the images."""
    return content_tag(ROOT, base)


@pytest.fixture(scope="session")
def image(base: str, tag: str, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Builds an image at its first use, where the engine has none of this tag: `image("data")` is its name."""
    records = tmp_path_factory.mktemp("records")
    builder = builder_image(base)
    built: dict[str, str] = {}

    def named(which: str) -> str:
        name = f"voxline-test/{which}:{tag}"
        if which not in built and subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode:
            images.build_image(
                which,
                registry="voxline-test",
                tag=tag,
                base=base,
                builder=builder,
                source="https://example.org/voxline",
                more=["--quiet", "--network", "host"],
            )
        if which not in built:
            built[which] = name
            print(f"\n{name}: {images.record_image(name, records)['bytes'] / 1e6:,.0f} MB")
        return name

    return named


@pytest.fixture(scope="session")
def ran(image: Image) -> Ran:
    """Runs a command in an image, as a cluster would: `ran("data", "voxline", "--version")`."""

    def run(
        which: str, *command: str, flags: Sequence[str] = (), status: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        whole = ["docker", "run", "--rm", *HARDENED, *flags, image(which), *command]
        ended = subprocess.run(whole, capture_output=True, text=True, timeout=600, check=False)
        assert ended.returncode == status, f"{' '.join(whole)}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        return ended

    return run


@pytest.fixture(scope="session")
def inspected(image: Image) -> Callable[[str, str], str]:
    """What the engine says of an image: `inspected("data", "{{.Config.User}}")`."""
    return lambda which, form: docker("image", "inspect", "--format", form, image(which))
