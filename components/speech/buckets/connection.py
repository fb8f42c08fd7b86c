"""The connection of this process to Google Cloud Storage: who we are, and when a request is tried again.

Google's library is imported when the first object is asked for. Credentials are those that it finds by itself
(workload identity, `gcloud auth application-default login`, GOOGLE_APPLICATION_CREDENTIALS); none pass through here.
With STORAGE_EMULATOR_HOST it talks to an emulator, without credentials.
"""

import functools
import os
import time
from typing import Any

from components.speech.buckets.settings import TransferSettings
from components.speech.progress import PASSES

_SILENT_SECONDS = 5.0
"""A person learns of a fault that lasts longer."""


class Connection:
    """Google's client, and what each request is given along.

    Attributes:
      settings: of this process' environment.
      known: buckets that were seen to be there.
    """

    def __init__(self, settings: TransferSettings) -> None:
        import google.cloud.storage as storage

        self.settings = settings
        self.known: set[str] = set()
        self.client: Any = storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT") or "voxline")

    def patience(self, place: str) -> dict[str, Any]:
        """The arguments `retry` and `timeout` of a request; every request of ours may be repeated safely."""
        from google.api_core.retry import Retry
        from google.cloud.storage.retry import DEFAULT_RETRY

        began = time.monotonic()

        def tell(error: Exception) -> None:
            if time.monotonic() - began > _SILENT_SECONDS:
                print(f"{PASSES}{place}: {type(error).__name__}, trying again", flush=True)

        retry = Retry(
            predicate=DEFAULT_RETRY._predicate,
            initial=self.settings.first_wait_seconds,
            maximum=self.settings.longest_wait_seconds,
            multiplier=2,
            timeout=self.settings.deadline_seconds,
            on_error=tell,
        )
        return {"retry": retry, "timeout": self.settings.timeout_seconds}


def connection() -> Connection:
    """The connection of this process; a fork gets one of its own, since two cannot share a socket."""
    return _connection(os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST", ""), TransferSettings.of_environment())


@functools.lru_cache(maxsize=4)
def _connection(process: int, emulator: str, settings: TransferSettings) -> Connection:
    return Connection(settings)
