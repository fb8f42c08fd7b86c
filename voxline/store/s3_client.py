"""boto3's client for `S3Store`: its configuration, the retries of each request, and errors in our words."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from voxline.errors import NoCredentialsError, PreconditionError, TransientError, VoxlineError, WorkError
from voxline.extras import naming_extras
from voxline.progress import PROGRESS_PREFIX
from voxline.store.transfer import SILENT_SECONDS, TransferSettings, call_within

_TRANSIENT = {408, 429, 500, 502, 503, 504}
_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401", "Unauthorized"}
_NO_PERMISSION_ERRORS = {"RequestTimeTooSkewed", "RequestExpired", "InvalidObjectState", "QuotaExceeded"}
"""Refused with status 403 as well; the server's message says more."""
Result = TypeVar("Result")


class S3Connection:
    """boto3's client, and the retries of each request.

    Attributes:
      known_buckets: those that we have seen to exist.
      known_conditions: of which buckets we have seen that they honor the condition: (bucket, whether If-None-Match).
    """

    def __init__(self, settings: TransferSettings) -> None:
        with naming_extras():
            import boto3
            from botocore.config import Config

        self.settings = settings
        self.known_buckets: set[str] = set()
        self.known_conditions: set[tuple[str, bool]] = set()
        config: dict[str, Any] = {
            "connect_timeout": settings.timeout_seconds,
            "read_timeout": settings.timeout_seconds,
            "max_pool_connections": max(10, settings.connections),
            "retries": {"total_max_attempts": 1},  # ours know a deadline
            # Content-MD5 is what every server checks; trailing checksums are what many do not understand.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }

        session = boto3.session.Session()
        region = session.region_name or "us-east-1"
        self.client: Any = session.client("s3", region_name=region, config=Config(**config))

        # Virtual hosts, `bucket.host`, exist at Amazon; other servers take the bucket in the path.
        if not self.client.meta.endpoint_url.rstrip("/").endswith((".amazonaws.com", ".amazonaws.com.cn")):
            config["s3"] = {"addressing_style": "path"}  # bucket names are no host names of most servers
            self.client = session.client("s3", region_name=region, config=Config(**config))

    def retry(self, uri: str, function: Callable[[Any], Result], *, reads: bool) -> Result:
        """The result of a request. What may pass is retried up to the deadline.

        Args:
          reads: it changes nothing; its answer must be complete by the deadline.
        """
        began = time.monotonic()
        wait = self.settings.first_wait_seconds
        while True:
            try:
                # Writes are not abandoned at a deadline: their thread would go on writing.
                if not reads:
                    return function(self.client)
                left = self.settings.deadline_seconds - (time.monotonic() - began)
                return call_within(max(left, self.settings.timeout_seconds), functools.partial(function, self.client))
            except Exception as error:
                elapsed = time.monotonic() - began

                if not _is_transient(error) or elapsed + wait > self.settings.deadline_seconds:
                    raise
                if elapsed > SILENT_SECONDS:
                    print(f"{PROGRESS_PREFIX}{uri}: {type(error).__name__}, trying again", flush=True)
            time.sleep(wait)
            wait = min(2 * wait, self.settings.longest_wait_seconds)


def s3_connection() -> S3Connection:
    """The connection of this process; a fork gets its own, since two cannot share a socket."""
    # A client takes its credentials once: another environment needs another one.
    variables = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    return _connect(os.getpid(), variables, TransferSettings.of_environment())


@functools.lru_cache(maxsize=4)
def _connect(process: int, environment: tuple[tuple[str, str], ...], settings: TransferSettings) -> S3Connection:
    return S3Connection(settings)


def _is_transient(error: Exception) -> bool:
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as BotoConnectionError
    from urllib3.exceptions import HTTPError

    if isinstance(error, ClientError):
        code = error.response["Error"].get("Code", "")
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        return status in _TRANSIENT or code in ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout")
    return isinstance(error, (HTTPClientError, BotoConnectionError, HTTPError, OSError))


_PERMISSIONS = {"list": "s3:ListBucket", "read": "s3:GetObject", "write": "s3:PutObject", "delete": "s3:DeleteObject"}


@contextlib.contextmanager
def explain_s3_errors(uri: str, action: str) -> Iterator[None]:
    """Turns errors of the block into ours. See `ObjectStore`."""
    try:
        yield
    except VoxlineError:
        raise
    except Exception as error:
        raise _explain(uri, action, error) from error


def _explain(uri: str, action: str, error: Exception) -> Exception:
    from botocore.exceptions import ClientError, CredentialRetrievalError, PartialCredentialsError
    from botocore.exceptions import NoCredentialsError as AbsentCredentialsError

    bucket = uri.split("/")[2]
    code = error.response["Error"].get("Code", "") if isinstance(error, ClientError) else ""
    status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 0
    text = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, ClientError):
        text = f"{status} {code}: {error.response['Error'].get('Message', '')}"[:300]
    if code in ("BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"):
        return TransientError(f"{uri}: damaged in transit; nothing of it was kept, start again")
    if _is_transient(error):
        return TransientError(
            f"{uri}: the storage failed to {action} it, for all retries ({text}); what has been moved stays, so start "
            "again, and it resumes"
        )

    # From here on another try is of no use: a person has to act, and the message says how.
    no_credentials = isinstance(error, (AbsentCredentialsError, PartialCredentialsError, CredentialRetrievalError))
    if no_credentials or code in _CREDENTIALS or status == 401:
        kind = NoCredentialsError if isinstance(error, AbsentCredentialsError) else WorkError
        return kind(
            f"{uri}: no credentials that the S3 server accepts ({text.rstrip('.')}); on a cluster give the service "
            "account a role or a secret, elsewhere run aws configure, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL_S3 for a server that is not Amazon's)"
        )
    if status == 403 and code not in _NO_PERMISSION_ERRORS:
        resource = f"arn:aws:s3:::{bucket}" if action == "list" else f"arn:aws:s3:::{bucket}/*"
        hint = (
            "" if action != "read" else " and, to tell absent objects from forbidden ones, s3:ListBucket on the bucket"
        )
        return WorkError(
            f"{uri}: permission denied: this account needs {_PERMISSIONS[action]} on {resource}{hint}; grant it in the "
            "policy of its role, or in the bucket's"
        )
    if status == 412:
        return PreconditionError(f"{uri}: another process changed it meanwhile; start again")
    if code == "NoSuchBucket" or (status == 404 and action == "list"):
        return WorkError(
            f"{uri}: there is no bucket {bucket}; correct the name, or create it, as in: aws s3 mb s3://{bucket}"
        )
    return WorkError(f"{uri}: the storage refused to {action} it: {text}")


def error_code(error: BaseException) -> str:
    response = getattr(error.__cause__, "response", None) or {}  # None where the connection broke
    return str(response.get("Error", {}).get("Code", ""))


def is_not_found(error: BaseException) -> bool:
    response = getattr(error.__cause__, "response", None) or {}
    return bool(response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404)
