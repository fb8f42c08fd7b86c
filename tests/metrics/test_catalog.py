"""The catalog holds the metrics of every family that is installed or registered, each name once."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from voxline.errors import SettingsError
from voxline.families.family import Family, register, unregister
from voxline.metrics.catalog import CATALOG, Catalog, Metric, UnknownMetricError, family_metrics, headline_metrics
from voxline.plugins import FAMILIES, find_plugins, load_plugins


class PitchFamily(Family):
    name = "pitch"
    metrics = (Metric("pitch_error", "pitch error", ("pitch",), unit="Hz", headline=True),)

    def task(self) -> Any:
        raise NotImplementedError


@pytest.fixture
def pitch() -> Iterator[None]:
    register(PitchFamily())
    yield
    unregister("pitch")


@pytest.mark.usefixtures("pitch")
def test_a_registered_family_brings_its_metrics_and_takes_them_along() -> None:
    assert [metric.name for metric in headline_metrics("pitch")] == ["pitch_error"]
    assert CATALOG["pitch_error"].format(3) == "3 Hz"
    assert family_metrics("pitch")[-1].name == "rtf"  # what depends on the machine is last
    unregister("pitch")
    assert "pitch_error" not in CATALOG
    with pytest.raises(UnknownMetricError, match=r"^metric 'pitch_error', which no installed package registers; .*wer"):
        CATALOG["pitch_error"]


def test_the_families_that_are_installed_bring_theirs() -> None:
    for name, family in load_plugins(FAMILIES).items():
        for metric in family.metrics:
            assert CATALOG[metric.name] == metric
            assert name in metric.families


@pytest.mark.parametrize("taken", ["wer", "pitch_error", "text_intent_error_rate"])
@pytest.mark.usefixtures("pitch")
def test_two_metrics_of_one_name_are_refused(taken: str) -> None:
    class OtherFamily(PitchFamily):
        name = "other"
        metrics = (Metric("other_error", "an error", ("other",)), Metric(taken, "something else", ("other",)))

    before = CATALOG[taken]
    with pytest.raises(SettingsError, match=rf"'{taken}' \(something else\) of the family other: .*; give it a name"):
        register(OtherFamily())
    assert CATALOG[taken] == before
    assert "other_error" not in CATALOG
    unregister("other")
    assert CATALOG[taken] == before


class ToneFamily(PitchFamily):
    name = "tone"


@pytest.mark.usefixtures("pitch")
def test_a_metric_stays_until_its_last_family_is_gone() -> None:
    register(ToneFamily())  # declares an equal metric
    unregister("tone")
    assert "pitch_error" in CATALOG
    register(ToneFamily())
    unregister("pitch")
    assert "pitch_error" in CATALOG
    unregister("tone")
    assert "pitch_error" not in CATALOG


def test_a_family_that_lists_a_metric_of_the_catalog_leaves_it_there() -> None:
    class WordsFamily(PitchFamily):
        name = "words"
        metrics = (CATALOG["wer"],)

    register(WordsFamily())
    unregister("words")
    assert "wer" in CATALOG


@pytest.mark.usefixtures("pitch")
def test_an_edited_family_takes_its_own_place() -> None:
    """A cell of a notebook is run twice."""

    class EditedFamily(PitchFamily):
        metrics = (Metric("pitch_error", "error of the pitch", ("pitch",)), Metric("pitch_bias", "bias", ("pitch",)))

    register(EditedFamily())
    assert CATALOG["pitch_error"].title == "error of the pitch"
    register(PitchFamily())
    assert CATALOG["pitch_error"].title == "pitch error"
    assert "pitch_bias" not in CATALOG


def write_package(folder: Path, name: str, module: str) -> None:
    """Installs a package with a family, as far as `importlib.metadata` can tell."""
    (folder / f"{name}.py").write_text(module, encoding="utf-8")
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[{FAMILIES}]\n{name} = {name}:Family\n", encoding="utf-8")


GOOD = """
from voxline.metrics.catalog import Metric

class Family:
    name = "zither"
    metrics = (Metric("string_error", "wrong strings", ("zither",)),)
"""
CLASH = """
from voxline.metrics.catalog import Metric

class Family:
    name = "clash"
    metrics = (Metric("wer", "another rate", ("clash",)),)
"""


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "import absent_engine",
            r"package faulty 1\.0: .* 'faulty' .*No module named 'absent_engine'.*uninstall faulty",
        ),
        ("1 / 0", r"package faulty 1\.0: .*ZeroDivisionError"),
        (CLASH, r"'wer' \(another rate\) of the family clash"),
    ],
)
def test_a_faulty_family_is_named_and_hides_no_other_from_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    write_package(tmp_path, "faulty", module)
    write_package(tmp_path, "zither", GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    find_plugins.cache_clear()
    try:
        catalog = Catalog([CATALOG["rtf"], CATALOG["wer"]])
        assert [metric.name for metric in catalog.select(["rtf", "string_error", "other", "wer"])] == [
            "wer", "string_error", "rtf",
        ]  # fmt: skip
        assert catalog.find("other") is None

        # Work that needs every metric is refused, each time.
        for _ in range(2):
            with pytest.raises(SettingsError, match=message):
                list(catalog)
            with pytest.raises(SettingsError, match=message):
                catalog["other"]
    finally:
        find_plugins.cache_clear()
        for name in ("faulty", "zither"):
            sys.modules.pop(name, None)
