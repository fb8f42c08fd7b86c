"""A server with a canary, whose models stream."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.causal_model import export_causal_model
from tests.serving.broken_models import export_fails_on_loud_streams
from tests.serving.canary_sessions import HALF, Serve
from tests.serving.test_server import Served, push
from voxline.serving.capture import Capture
from voxline.serving.limits import ServingLimits


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two that hear something else in the same audio; one that fails in streams; one that streams nothing."""
    folder = tmp_path_factory.mktemp("models")
    found = {
        name: export_causal_model(folder / name, seed) for name, seed in (("first", 1), ("second", 2), ("still", 2))
    }
    (found["still"] / "stream.onnx").unlink()
    return found | {"fragile": export_fails_on_loud_streams(folder / "fragile", 2)}


@pytest.fixture
def root(tmp_path: Path, models: dict[str, Path]) -> Path:
    """A registry with the first model in production."""
    push(tmp_path / "registry", models["first"])
    return tmp_path / "registry"


@pytest.fixture
def serve(root: Path) -> Iterator[Serve]:
    running: list[Served] = []

    def start(limits: ServingLimits | None = None, capture: Capture | None = None) -> Served:
        running.append(Served(root, limits, canary=HALF, capture=capture))
        return running[-1]

    yield start
    for one in running:
        one.stop()
