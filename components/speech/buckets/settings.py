"""How patient a transfer is, and how wide; from the environment, since it is the machine's matter, not a run's."""

import os
from typing import Self

import pydantic

from components.speech.settings import Settings

_PREFIX = "VOXLINE_BUCKETS_"


class TransferSettings(Settings):
    """Each is read from the environment: `VOXLINE_BUCKETS_DEADLINE_SECONDS` and so on."""

    deadline_seconds: float = pydantic.Field(300, gt=0, description="s for which one request is tried again")
    first_wait_seconds: float = pydantic.Field(1, gt=0, description="s before the second try; doubled for each further")
    longest_wait_seconds: float = pydantic.Field(30, gt=0, description="s between two tries, at most")
    timeout_seconds: float = pydantic.Field(60, gt=0, description="s without a byte, past which a request has failed")
    lease_seconds: float = pydantic.Field(60, gt=0, description="s after which a lock that nobody renews is free")
    connections: int = pydantic.Field(8, ge=1, le=64, description="requests at a time")
    chunk_megabytes: int = pydantic.Field(16, ge=1, le=1024, description="MiB of a large file that one request moves")

    @classmethod
    def of_environment(cls) -> Self:
        """Reads the environment.

        Raises:
          SettingsError: naming the variable, what it got and what it accepts.
        """
        given = {
            name: os.environ[_PREFIX + name.upper()]
            for name in cls.model_fields
            if _PREFIX + name.upper() in os.environ
        }
        return cls.of(given, source=f"environment ({_PREFIX}…)")

    @property
    def chunk(self) -> int:
        """Bytes."""
        return self.chunk_megabytes << 20
