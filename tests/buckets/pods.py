"""Pods: each time another machine with an empty disk, as far as a mirror can tell."""

from collections.abc import Callable
from pathlib import Path

import pytest

from voxline.store.bucket_cache import CACHE_ENV


@pytest.fixture
def fresh_pod(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Moves this process to a new machine; returns the folder that its mirror will be."""

    def move() -> Path:
        disk = tmp_path_factory.mktemp("pod") / "mirror"
        monkeypatch.setenv(CACHE_ENV, str(disk))
        return disk

    return move
