"""Buckets of either kind, for tests that must hold on all of them."""

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.s3_server import S3Storage

AnyStorage = Storage | S3Storage


@pytest.fixture(params=["gcs", "s3"])
def storage(request: pytest.FixtureRequest) -> AnyStorage:
    """A bucket of its own on Google Cloud Storage, then on S3."""
    storage: AnyStorage = request.getfixturevalue(request.param)
    return storage
