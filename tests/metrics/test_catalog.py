"""The catalog holds the metrics of every family that is installed or registered, each name once."""

from collections.abc import Iterator
from typing import Any

import pytest

from voxline.errors import SettingsError
from voxline.families.family import Family, register, unregister
from voxline.metrics.catalog import CATALOG, Metric, UnknownMetricError, family_metrics, headline_metrics
from voxline.plugins import FAMILIES, load_plugins


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
