"""Downloads the archive of a corpus over http(s), in pieces that a later run continues.

The address alone does not say what is behind it, so the config gives the archive's SHA-256, and the file appears under
its name only when it has it.
"""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.progress import Progress, print_status
from voxline.store.file_locks import exclusive_lock
from voxline.store.files import fsync_path

if TYPE_CHECKING:
    import requests

_FOLDER = "downloads"
_CHUNK = 1 << 16
"""Bytes; what a broken connection brought beyond the last whole chunk is read again."""
_TIMEOUT_SECONDS = 60
"""To connect, and between two pieces of the content."""
_ATTEMPTS = 5
"""Failures in a row; an attempt that brings content starts the count again."""
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)


def archive_name(uri: str) -> str:
    """The file's name in an address.

    >>> archive_name("https://www.openslr.org/resources/12/dev-clean.tar.gz?mirror=eu")
    'dev-clean.tar.gz'
    """
    return urlsplit(uri).path.rpartition("/")[2]


def refuse_credentials(uri: str) -> None:
    """Raises SettingsError, without the address, if it holds a user name or a password."""
    if urlsplit(uri).username is not None:
        raise SettingsError(
            "corpus.uri holds a user name or a password, which would end up in reports and logs; put them into ~/.netrc"
        )


def without_query(uri: str) -> str:
    """The address for messages: signed ones have a secret in their query.

    >>> without_query("https://bucket.example/a.zip?signature=0f3c")
    'https://bucket.example/a.zip?…'
    """
    address, mark, _ = uri.partition("?")
    return f"{address}?…" if mark else uri


def download_archive(
    uri: str, sha256: str, store: Path, *, max_bytes: float, sleep: Callable[[float], None] = time.sleep
) -> Path:
    """Downloads an archive below `<store>/downloads/`, unless an earlier run did.

    Args:
      uri: http:// or https://.
      sha256: of the archive, 64 hexadecimal digits.
      max_bytes: largest accepted size.

    Returns:
      The file `<store>/downloads/<sha256>/<name>`.

    Raises:
      SettingsError: the address holds a user name or a password, or the server does not have the file.
      WorkError: the content has another SHA-256, or is too large.
      TransientError: the network or the server failed repeatedly; what was read so far is kept.
    """
    refuse_credentials(uri)
    folder = store / _FOLDER / sha256
    archive = folder / archive_name(uri)
    partial = folder / "unfinished"
    if archive.is_file():
        return archive

    # Another run may have downloaded it while this one waited for the lock.
    with exclusive_lock(folder):
        if archive.is_file():
            return archive
        print_status(f"ingest: downloading {without_query(uri)}")
        continued = partial.exists()

        # The hash is of the whole file: pieces of two different files would give a third one.
        while True:
            _read(uri, partial, max_bytes, sleep)
            with open(partial, "rb") as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
            if actual == sha256:
                break
            partial.unlink()
            if not continued:
                raise WorkError(
                    f"{without_query(uri)}: its SHA-256 is {actual}, corpus.sha256 says {sha256}; the download was "
                    "deleted. Compare with the publisher's checksum: either the file was replaced, or the address is "
                    "another one"
                )
            continued = False  # the server may have replaced the file between two runs

        os.replace(partial, archive)
        fsync_path(folder)
    return archive


def _read(uri: str, partial: Path, max_bytes: float, sleep: Callable[[float], None]) -> None:
    """Reads what `partial` lacks; on a failure waits and continues where it stopped."""
    import requests  # not at the top: most corpora are folders, and it takes a tenth of the time of a step

    failures = 0
    with requests.Session() as session, open(partial, "r+b" if partial.exists() else "wb") as file:
        file.seek(0, os.SEEK_END)

        # An attempt appends to the file, so that none has to begin where the first one did.
        while True:
            before = file.tell()
            try:
                if _read_once(session, uri, file, max_bytes):
                    os.fsync(file.fileno())
                    return
                fault = f"the connection ended after {file.tell():,} bytes"
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                fault = _without_query_of(uri, error).splitlines()[0][:200]
            except _TemporaryAnswerError as error:
                fault = str(error)
            except requests.RequestException as error:
                raise SettingsError(
                    f"corpus.uri is {without_query(uri)!r}, which cannot be requested "
                    f"({_without_query_of(uri, error)}); correct it"
                ) from None

            # A slow server that breaks off now and then is not given up as long as it brings something.
            failures = 1 if file.tell() > before else failures + 1
            if failures >= _ATTEMPTS:
                raise TransientError(
                    f"{without_query(uri)}: {fault}, {failures} times in a row; {file.tell():,} bytes are kept, and "
                    "the same command continues there"
                )
            sleep(2.0**failures)


def _read_once(session: "requests.Session", uri: str, file: Any, max_bytes: float) -> bool:
    """Appends the rest of the content. Returns whether it is complete, as far as the server says its size."""
    start = file.tell()
    headers = {"Range": f"bytes={start}-"} if start else {}

    # A content encoding would make positions meaningless: they count in encoded bytes.
    headers["Accept-Encoding"] = "identity"
    with session.get(uri, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        _check_answer(uri, answer)
        if answer.status_code == 416:  # nothing after `start`: complete, or another file
            complete = bool(answer.headers.get("Content-Range", "") == f"bytes */{start}")
            if not complete:
                _empty(file)
            return complete

        if not (start and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")):
            _empty(file)  # the server does not continue
        size = _content_length(uri, answer) + file.tell()
        _check_size(uri, size, max_bytes)

        # The stated size is checked first, and then what really comes: a server may state none, or lie.
        progress = Progress("MB", total=size // 1_000_000)
        progress.advance(file.tell() // 1_000_000)
        for chunk in answer.iter_content(_CHUNK):
            file.write(chunk)
            _check_size(uri, file.tell(), max_bytes)
            if megabytes := file.tell() // 1_000_000 - progress.done:
                progress.advance(megabytes)

        return "Content-Length" not in answer.headers or bool(file.tell() == size)


def _content_length(uri: str, answer: "requests.Response") -> int:
    """Bytes of the answer; 0 where the server does not say.

    Raises:
      WorkError: it says something else than a number.
    """
    length = answer.headers.get("Content-Length", "0").strip()
    if not (length.isdecimal() and len(length) < 19):
        raise WorkError(
            f"{without_query(uri)}: the server gives the size {length[:80]!r} (Content-Length), a number of bytes is "
            "accepted; correct the server, or give another address"
        )
    return int(length)


def _without_query_of(uri: str, error: Exception) -> str:
    return str(error).replace(f"?{uri.partition('?')[2]}", "?…")


def _empty(file: Any) -> None:
    file.seek(0)
    file.truncate()


class _TemporaryAnswerError(Exception):
    pass


def _check_answer(uri: str, answer: "requests.Response") -> None:
    if uri.startswith("https://") and any(response.url.startswith("http://") for response in (*answer.history, answer)):
        raise WorkError(
            f"{without_query(uri)}: the server redirects to an address without encryption, "
            f"{without_query(answer.url)}; use another one"
        )
    if answer.status_code in _TEMPORARY:
        raise _TemporaryAnswerError(f"the server answers {answer.status_code} {answer.reason}")
    if answer.status_code not in (200, 206, 416):
        raise SettingsError(
            f"corpus.uri is {without_query(uri)!r}, and the server answers {answer.status_code} {answer.reason}; "
            "correct the address, or put the credentials that it wants into ~/.netrc"
        )


def _check_size(uri: str, size: int, max_bytes: float) -> None:
    if size > max_bytes:
        raise WorkError(
            f"{without_query(uri)}: {size / 1e9:,.2f} GB, at most {max_bytes / 1e9:g} are accepted "
            "(corpus.max_unpacked_gigabytes); give another archive, or raise the limit"
        )
