"""A further storage is one class and one line of registration: docs/extend/storage.md."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from voxline.settings import Settings
from voxline.store.localize import localize
from voxline.store.objects import open_store
from voxline.store.step_cache import cached_step
from voxline.store.uris import SCHEMES, register_scheme


@pytest.fixture(autouse=True)
def mem() -> Iterator[None]:
    register_scheme("mem", "tests.store.memory_store:MemoryStore")
    yield
    del SCHEMES["mem"]


def test_a_step_runs_on_a_storage_that_a_plugin_registered(fresh_pod: Callable[[], Path]) -> None:
    reused = []
    for _ in range(2):
        fresh_pod()
        with cached_step("mem://box/store", "count", Settings(), {"corpus": "ab"}) as output:
            if not output.reused:
                (output.folder / "numbers.txt").write_text("1 2 3", encoding="utf-8")
                output.outputs["numbers"] = "numbers.txt"
        reused.append(output.reused)
    assert reused == [False, True]
    fresh_pod()
    assert (localize(output.uri) / "numbers.txt").read_text(encoding="utf-8") == "1 2 3"
    assert not list(open_store("mem://box/store").list(".working/"))


def test_the_page_shows_the_class_as_it_is() -> None:
    page = (ROOT / "docs" / "extend" / "storage.md").read_text(encoding="utf-8")
    source = (ROOT / "tests" / "store" / "memory_store.py").read_text(encoding="utf-8")
    shown = page.partition("```python\nclass MemoryStore")[2].partition("\n```")[0]
    assert shown.strip() in source
