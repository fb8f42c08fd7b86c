"""Cron expressions in KFP's dialect: six fields, seconds first, in one time zone for the whole cluster.

KFP accepts five fields, too, but reads them as seconds, minutes, hours, …: `0 2 * * *` would start at two minutes past
each hour. Five fields get their seconds here, so that they have the usual meaning.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from voxline.errors import SettingsError

# Positions of fields in an expression of six.
HOUR = 2
DAY = 3
MONTH = 4
WEEKDAY = 5

WILDCARDS = ("*", "?")
NAMES = {
    "month": ["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "weekday": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
FIELDS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 6),
}
HORIZON_DAYS = 366 * 8 + 2
"""Days to search for a firing: the next 29th of February may be eight years away."""


@dataclass(frozen=True)
class Cron:
    """A valid expression."""

    fields: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Cron":
        """
        Raises:
          SettingsError: KFP would refuse it, or it never fires.

        >>> str(Cron.read("0 2 * * *"))
        '0 0 2 * * *'
        """
        fields = tuple(text.split())
        if len(fields) == 5:
            fields = ("0", *fields)

        if len(fields) != 6:
            raise SettingsError(
                f"--cron {text!r}: accepted: minute hour day month weekday, such as '0 2 * * *' for 2 am, "
                "or six fields with the seconds first"
            )

        cron = cls(fields)
        for (name, bounds), field in zip(FIELDS.items(), fields, strict=True):
            _parse_field(name, field, bounds, text)

        # From a leap year on, so that the 29th of February is found at once; the 30th never is.
        if next(cron.firings(datetime(2024, 1, 1, tzinfo=UTC)), None) is None:
            raise SettingsError(f"--cron {text!r}: the date never occurs, so it would never fire")
        return cron

    def __str__(self) -> str:
        return " ".join(self.fields)

    def firings(self, after: datetime) -> Iterator[datetime]:
        """The times after a time, in its time zone."""
        second, minute, hour, day, month, weekday = (
            _parse_field(name, field, bounds, str(self))
            for (name, bounds), field in zip(FIELDS.items(), self.fields, strict=True)
        )
        # As in every cron: if a day of the month and a weekday are both given, either one matches.
        either = not any(self.fields[at].startswith(WILDCARDS) for at in (DAY, WEEKDAY))

        for days in range(HORIZON_DAYS):
            date = (after + timedelta(days=days)).date()
            on_day = date.day in day
            on_weekday = date.isoweekday() % 7 in weekday  # Sunday is 0 in cron, and 7 in ISO 8601
            if date.month not in month or not (on_day or on_weekday if either else on_day and on_weekday):
                continue

            for moment in (
                datetime(date.year, date.month, date.day, h, m, s, tzinfo=after.tzinfo)
                for h in sorted(hour)
                for m in sorted(minute)
                for s in sorted(second)
            ):
                if moment > after:
                    yield moment

    def calendar_events(self, zone: str = "") -> list[str]:
        """The same times as systemd's OnCalendar=, in a time zone; empty: the machine's.

        Two where a day of the month and a weekday are both given: either one matches in cron, both must in systemd.

        >>> Cron.read("30 2 1 * mon").calendar_events()
        ['*-*-1 2:30:0', 'Mon *-*-* 2:30:0']
        """
        values = [
            "*" if field in WILDCARDS else ",".join(map(str, sorted(_parse_field(name, field, bounds, str(self)))))
            for (name, bounds), field in zip(FIELDS.items(), self.fields, strict=True)
        ]
        second, minute, hour, day, month, weekday = values
        time = f"{hour}:{minute}:{second} {zone}".strip()
        weekdays = ",".join(NAMES["weekday"][int(number)].title() for number in weekday.split(",") if number != "*")

        either = not any(self.fields[at].startswith(WILDCARDS) for at in (DAY, WEEKDAY))
        if either:
            return [f"*-{month}-{day} {time}", f"{weekdays} *-{month}-* {time}"]
        return [f"{weekdays} *-{month}-{day} {time}".strip()]

    def converted(self, zone: str, to: str) -> "Cron":
        """The same times, for a cluster that reads cron in another time zone.

        Raises:
          SettingsError: the expression cannot express them.
        """
        if zone == to:
            return self

        # A shift may cross midnight, so it is possible only where every day is like the next: no dates, no weekdays.
        shift = _minutes_between(zone, to)
        hours, minutes = divmod(shift, 60)
        plain = re.fullmatch(r"\d+(,\d+)*", self.fields[HOUR])
        if minutes or not plain or any(self.fields[at] not in WILDCARDS for at in (DAY, MONTH, WEEKDAY)):
            raise SettingsError(
                f"--time-zone {zone}: the cluster reads cron in {to}, and '{self}' cannot be shifted by {shift} "
                "minutes unless it fires at whole hours, every day; write it in the cluster's time zone"
            )

        shifted = sorted((int(hour) + hours) % 24 for hour in self.fields[HOUR].split(","))
        return Cron((*self.fields[:HOUR], ",".join(map(str, shifted)), *self.fields[DAY:]))


def load_time_zone(name: str, source: str) -> ZoneInfo:
    """Raises:
    SettingsError: the time zone is unknown.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise SettingsError(
            f"{source} {name!r}: accepted: a name in the tz database, such as Europe/Berlin or UTC"
        ) from None


def _minutes_between(zone: str, to: str) -> int:
    """Minutes from one zone's clock to the other's, all year round."""
    here = load_time_zone(zone, "--time-zone")
    there = load_time_zone(to, "--cluster-time-zone")

    # The middle of each month shows every difference: summer time lasts for months where there is one.
    year = datetime.now(UTC).year
    moments = [datetime(year, month, 15, tzinfo=UTC) for month in range(1, 13)]
    shifts = {
        round(((m.astimezone(there).utcoffset() or ZERO) - (m.astimezone(here).utcoffset() or ZERO)) / MINUTE)
        for m in moments
    }

    if len(shifts) > 1:
        raise SettingsError(
            f"--time-zone {zone}: KFP reads every cron of a cluster in one zone, here {to}, and the difference "
            f"between the two changes in the year; write the cron in {to}, or let the cluster read it in {zone}: "
            f"`kubectl -n kubeflow set env deployment/ml-pipeline-scheduledworkflow CRON_SCHEDULE_TIMEZONE={zone}`, "
            f"and give --cluster-time-zone {zone}"
        )
    return shifts.pop()


ZERO = timedelta()
MINUTE = timedelta(minutes=1)


def _parse_field(name: str, field: str, bounds: tuple[int, int], whole: str) -> set[int]:
    """The values of a field."""
    low, high = bounds

    def fault(part: str) -> SettingsError:
        return SettingsError(f"--cron {whole!r}: {name} {part!r}: accepted: {low} to {high}, ranges, lists, steps, *")

    def number(text: str) -> int:
        named = NAMES.get(name, [])  # months from 1, so the list has an empty name before January
        if text.lower() in named[low:]:
            return named.index(text.lower())
        if not re.fullmatch(r"\d{1,2}", text):
            raise fault(text)
        return int(text)

    values: set[int] = set()
    for part in field.split(","):
        # A part is `*`, `5`, `5-20`, and each of them may have a step: `*/15`, `5-20/5`.
        span, slash, step = part.partition("/")
        if slash and (not re.fullmatch(r"\d{1,2}", step) or int(step) == 0):
            raise fault(part)

        if span in WILDCARDS:
            first = low
            last = high
        else:
            start, dash, end = span.partition("-")
            first = number(start)
            last = number(end) if dash else (high if slash else first)  # `5/15` is `5-59/15`
        if not low <= first <= last <= high:
            raise fault(part)
        values.update(range(first, last + 1, int(step) if slash else 1))
    return values
