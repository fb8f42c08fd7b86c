"""The page of a version, which publish hands to the UI."""

from pathlib import Path

import pytest

from tests.publish.conftest import Extract
from voxline.components.publish.diff_report import version_page
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.errors import WorkError
from voxline.store.step_cache import StepOutput

NAMED = PublishSettings(dataset="commands")


def page_of(work: StepOutput) -> str:
    return version_page(str(work.folder.parent.parent), "commands", work.counts["version"], reused=work.reused).html()


def test_the_page_shows_the_changes_since_the_previous_version(extracted: Extract, tmp_path: Path) -> None:
    store, datasets = tmp_path / "store", tmp_path / "datasets"
    first = publish(extracted(), store, datasets, NAMED)
    assert "This is the first version." in page_of(first)
    assert "20 utterances." in page_of(first)
    second = publish(extracted(range(1, 20)), store, datasets, NAMED)
    told = page_of(second)
    assert "Changes since version 1" in told
    assert "Removed: 1" in told
    assert "u00" in told
    again = publish(extracted(range(1, 20)), store, datasets, NAMED)
    assert "None since version 2 was published." in page_of(again)


def test_the_previous_version_may_be_deleted(extracted: Extract, tmp_path: Path) -> None:
    store, datasets = tmp_path / "store", tmp_path / "datasets"
    publish(extracted(), store, datasets, NAMED)
    second = publish(extracted(range(1, 20)), store, datasets, NAMED)
    for file in (datasets / "commands" / "1").iterdir():
        file.unlink()
    (datasets / "commands" / "1").rmdir()
    assert "Version 1, which it replaces, no longer exists" in page_of(second)


def test_an_absent_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="no version 1"):
        version_page(str(tmp_path), "commands", 1, reused=False)
