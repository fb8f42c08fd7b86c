"""Pods: each time another machine with an empty disk, as far as a mirror can tell."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from voxline.store.bucket_cache import CACHE_ENV, cache_root, private_cache


@pytest.fixture
def fresh_pod(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Moves this process to a new machine; returns the folder that its mirror will be."""

    def move() -> Path:
        disk = tmp_path_factory.mktemp("pod") / "mirror"
        monkeypatch.setenv(CACHE_ENV, str(disk))
        return disk

    return move


@contextlib.contextmanager
def workers_elsewhere(disk: Path) -> Iterator[Path]:
    """Gives processes that start in this block another disk than this one has; yields the mirror of this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_ENV, str(disk))
        with private_cache():
            yield cache_root()
