"""What Google's library raises, told to the person who can mend it: one line, and whether trying again may help."""

import contextlib
import re
from collections.abc import Iterator

from components.speech.errors import Changed, Interruption, VoxlineError, WorkError

PERMISSIONS = {
    "list": "storage.objects.list",
    "read": "storage.objects.get",
    "write": "storage.objects.create and, to replace an object, storage.objects.delete",
    "delete": "storage.objects.delete",
}
_QUERY = re.compile(r"\?\S+")
_ROLES = {"list": "roles/storage.objectViewer", "read": "roles/storage.objectViewer"}


@contextlib.contextmanager
def told(place: str, action: str) -> Iterator[None]:
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
        return Interruption(f"{place}: its bytes were damaged on the way; nothing was kept of them, start again")
    if isinstance(error, api.RetryError) or DEFAULT_RETRY._predicate(cause):
        return Interruption(
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
        return Changed(f"{place}: somebody else changed it meanwhile; look at it again")
    if code == 404:
        return no_bucket(place)
    return WorkError(f"{place}: the storage refused to {action} it: {_in_one_line(cause)}")


def no_bucket(place: str) -> WorkError:
    bucket = place.split("/")[2]
    return WorkError(
        f"{place}: there is no bucket {bucket}; mend the name, or make it, as in: "
        f"gcloud storage buckets create gs://{bucket} --uniform-bucket-level-access"
    )


def _in_one_line(error: BaseException) -> str:
    """Without queries of addresses: that of an upload's session is as good as a key to it."""
    return _QUERY.sub("", " ".join(str(error).split()))[:300] or type(error).__name__
