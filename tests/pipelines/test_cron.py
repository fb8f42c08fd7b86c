"""Cron as KFP reads it; the firings were compared with those of robfig/cron 1.2, which KFP uses."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from voxline.errors import SettingsError
from voxline.pipelines.local.cron import Cron

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "next_"),
    [  # as robfig/cron 1.2 says
        ("0 0 2 * * *", "2023-11-15 02:00:00"),
        ("0 30 1 ? * 1-5", "2023-11-15 01:30:00"),
        ("0 0 2 * * MON", "2023-11-20 02:00:00"),
        ("0 */15 * * * *", "2023-11-14 22:15:00"),
        ("0 0 2 * JAN-MAR sun,mon", "2024-01-01 02:00:00"),
        ("0 5/10 * * * *", "2023-11-14 22:15:00"),
        ("0 0 2 29 2 *", "2024-02-29 02:00:00"),
        ("0 0 2 13 * 5", "2023-11-17 02:00:00"),
        ("0 0 2 */10 * 5", "2023-12-01 02:00:00"),
    ],
)
def test_it_fires_when_kfp_does(text: str, next_: str) -> None:
    assert f"{next(Cron.read(text).firings(START)):%F %T}" == next_


def test_five_fields_have_the_usual_meaning() -> None:
    assert str(Cron.read("0 2 * * *")) == "0 0 2 * * *"


@pytest.mark.parametrize(
    "text", ["0 2 * *", "0 0 24 * * *", "0 0 2 * * 7", "0 0 2 * * 5-1", "0 0/0 * * * *", "0 0 2 31 2 *", "@daily", ""]
)
def test_an_invalid_or_unreachable_cron_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--cron"):
        Cron.read(text)


def test_a_cron_is_converted_between_zones_with_a_constant_offset() -> None:
    assert str(Cron.read("30 2 * * *").converted("Asia/Shanghai", "UTC")) == "0 30 18 * * *"
    assert str(Cron.read("0 2 * * *").converted("Europe/Berlin", "Europe/Berlin")) == "0 0 2 * * *"


@pytest.mark.parametrize(
    ("cron", "zone", "told"),
    [
        ("0 2 * * *", "Europe/Berlin", "CRON_SCHEDULE_TIMEZONE=Europe/Berlin"),
        ("0 2 * * 1", "Asia/Shanghai", "write it in the cluster's time zone"),
        ("0 2 * * *", "Asia/Kolkata", "330 minutes"),
        ("0 2 * * *", "Mars/Olympus", "accepted: a name in the tz database"),
    ],
)
def test_a_cron_that_cannot_be_converted_is_refused_with_a_remedy(cron: str, zone: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        Cron.read(cron).converted(zone, "UTC")


def test_firings_are_in_the_zone_of_the_cluster() -> None:
    berlin = START.astimezone(ZoneInfo("Europe/Berlin"))
    assert next(Cron.read("0 2 * * *").firings(berlin)).astimezone(UTC).hour == 1
