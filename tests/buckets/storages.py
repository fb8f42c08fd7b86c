"""Buckets of either kind, for tests that must hold on all of them."""

import os

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.s3_server import S3Storage

AnyStorage = Storage | S3Storage


EVERY_STORAGE = ["gcs", "s3"] if os.environ.get("VOXLINE_TEST_EVERY_STORAGE") else ["gcs"]
"""What the steps and registries are tested on: one of them, since tests/store holds both to the same contract.

`make test-buckets` tests everything on both.
"""


@pytest.fixture(params=EVERY_STORAGE)
def storage(request: pytest.FixtureRequest) -> AnyStorage:
    """A bucket of its own on Google Cloud Storage, then on S3."""
    storage: AnyStorage = request.getfixturevalue(request.param)
    return storage
