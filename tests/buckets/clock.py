"""A storage's clock that a test sets forward, so that what was written before is older."""

import datetime
import email.utils
import re
import time

_TIMES = re.compile(rb'(?P<before>"(?:updated|timeCreated)": *"|<LastModified>)(?P<time>[^"<]+)')
"""In the answers of Google's storage and of S3."""


class StorageClock:
    """Tells the times of a storage, whose own clock nobody can set.

    A time before the clock was set stays what it was; a later one is later by as much as the clock was set forward.
    """

    def __init__(self) -> None:
        self._advances: list[tuple[datetime.datetime, datetime.timedelta]] = []

    def advance(self, ahead: datetime.timedelta) -> None:
        time.sleep(1 - time.time() % 1)  # S3 tells whole seconds
        self._advances.append((datetime.datetime.now(datetime.UTC).replace(microsecond=0), ahead))

    def shift(self, moment: datetime.datetime) -> datetime.datetime:
        return moment + sum((ahead for since, ahead in self._advances if moment >= since), datetime.timedelta())

    def shift_body(self, body: bytes) -> bytes:
        """An answer whose times are those of this clock."""

        def shifted(found: re.Match[bytes]) -> bytes:
            moment = self.shift(datetime.datetime.fromisoformat(found["time"].decode()))
            return found["before"] + f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}".encode()

        return _TIMES.sub(shifted, body) if self._advances else body

    def shift_header(self, value: str) -> str:
        """As `shift_body`, for a header such as Last-Modified."""
        return email.utils.format_datetime(self.shift(email.utils.parsedate_to_datetime(value)), usegmt=True)
