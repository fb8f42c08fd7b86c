"""The connection of this process to Google Cloud Storage: who we are, and when a request is tried again.

Google's library is imported when the first object is asked for. Credentials are those that it finds by itself
(workload identity, `gcloud auth application-default login`, GOOGLE_APPLICATION_CREDENTIALS); none pass through here.
With STORAGE_EMULATOR_HOST it talks to an emulator, without credentials.
"""

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterator
from typing import Any, Self

import pydantic

from voxline.errors import PreconditionError, TransientError, VoxlineError, WorkError
from voxline.progress import PROGRESS_PREFIX
from voxline.settings import Settings

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


_SILENT_SECONDS = 5.0
"""A person learns of a fault that lasts longer."""


class GcsConnection:
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
                print(f"{PROGRESS_PREFIX}{place}: {type(error).__name__}, trying again", flush=True)

        retry = Retry(
            predicate=DEFAULT_RETRY._predicate,
            initial=self.settings.first_wait_seconds,
            maximum=self.settings.longest_wait_seconds,
            multiplier=2,
            timeout=self.settings.deadline_seconds,
            on_error=tell,
        )
        return {"retry": retry, "timeout": self.settings.timeout_seconds}


def gcs_connection() -> GcsConnection:
    """The connection of this process; a fork gets one of its own, since two cannot share a socket."""
    return _connection(os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST", ""), TransferSettings.of_environment())


@functools.lru_cache(maxsize=4)
def _connection(process: int, emulator: str, settings: TransferSettings) -> GcsConnection:
    return GcsConnection(settings)


PERMISSIONS = {
    "list": "storage.objects.list",
    "read": "storage.objects.get",
    "write": "storage.objects.create and, to replace an object, storage.objects.delete",
    "delete": "storage.objects.delete",
}
_QUERY = re.compile(r"\?\S+")
_ROLES = {"list": "roles/storage.objectViewer", "read": "roles/storage.objectViewer"}


@contextlib.contextmanager
def explain_errors(place: str, action: str) -> Iterator[None]:
    """Turns errors of the block into ours.

    Args:
      place: the object or folder, as gs://bucket/name.
      action: what is done with it: list, read, write or delete.

    Raises:
      Changed: it is not of the generation that was asked for.
      Interruption: the storage or the network failed, and went on to for the whole deadline.
      WorkError: something that a person must mend: a permission, credentials, a bucket that is not there.
    """
    try:
        yield
    except (VoxlineError, FileNotFoundError):
        raise
    except Exception as error:
        raise _told(place, action, error) from error


def _told(place: str, action: str, error: Exception) -> Exception:
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from google.cloud.storage.retry import DEFAULT_RETRY

    cause = error.cause if isinstance(error, api.RetryError) and error.cause else error
    bucket = place.split("/")[2]
    code = cause.response.status_code if isinstance(cause, InvalidResponse) else getattr(cause, "code", None)
    if isinstance(cause, DataCorruption) or (code in (400, 409) and "crc32c" in str(cause).lower()):
        return TransientError(f"{place}: its bytes were damaged on the way; nothing was kept of them, start again")
    if isinstance(error, api.RetryError) or DEFAULT_RETRY._predicate(cause):
        return TransientError(
            f"{place}: the storage did not {action} it, however often it was asked ({_in_one_line(cause)}); what has "
            "been moved stays, so start again, and it goes on from there"
        )
    if isinstance(cause, auth.GoogleAuthError) or code == 401:
        return WorkError(
            f"{place}: no credentials that Google Cloud Storage accepts ({_in_one_line(cause).rstrip('.')}); on a "
            "cluster bind the service account by workload identity, elsewhere run: "
            "gcloud auth application-default login"
        )
    if code == 403:
        role = _ROLES.get(action, "roles/storage.objectUser")
        return WorkError(
            f"{place}: permission denied: whoever runs this needs {PERMISSIONS[action]} on the bucket {bucket}; "
            f"grant it, as in: gcloud storage buckets add-iam-policy-binding gs://{bucket} "
            f"--member=serviceAccount:ACCOUNT --role={role}"
        )
    if code == 412:
        return PreconditionError(f"{place}: somebody else changed it meanwhile; look at it again")
    if code == 404:
        return missing_bucket_error(place)
    return WorkError(f"{place}: the storage refused to {action} it: {_in_one_line(cause)}")


def missing_bucket_error(place: str) -> WorkError:
    bucket = place.split("/")[2]
    return WorkError(
        f"{place}: there is no bucket {bucket}; mend the name, or make it, as in: "
        f"gcloud storage buckets create gs://{bucket} --uniform-bucket-level-access"
    )


def _in_one_line(error: BaseException) -> str:
    """Without queries of addresses: that of an upload's session is as good as a key to it."""
    return _QUERY.sub("", " ".join(str(error).split()))[:300] or type(error).__name__
