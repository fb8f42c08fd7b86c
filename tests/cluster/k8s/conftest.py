"""The manifests of k8s/, built as a person builds them; where nothing can build them, tests are skipped and say so."""

import os

import pytest

from tests.cluster.k8s.built import BUILDABLE, Object, builder, built

collect_ignore_glob = [] if os.environ.get("VOXLINE_TEST_CLUSTER") else ["test_*.py"]


@pytest.fixture(scope="session", params=BUILDABLE, ids=lambda path: path.replace("/", "-").replace("+", "-"))
def objects(request: pytest.FixtureRequest) -> list[Object]:
    """All objects of the base, or of an overlay."""
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    return built(request.param)
