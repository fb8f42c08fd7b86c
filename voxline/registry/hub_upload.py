"""Uploads a folder to a model of the Hugging Face Hub, as one commit, and records which one.

  <registry>/<model>/hub.json    each upload of a version: repository, commit, version, digest, form

Nobody's commit is overwritten unseen: the newest commit there must be the one that this registry wrote last, or the
one that the caller names. The Hub itself refuses the commit if another one came between.
"""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, TransientError, VoxlineError, WorkError
from voxline.inference.saved_model import MODEL_PARTS
from voxline.registry.hub import (
    CARD_FILE,
    CONFIG_FILE,
    HUB_SCHEME,
    RELEASE_FILE,
    WEIGHTS_FILE,
    check_name,
    hub_errors,
)
from voxline.registry.journal import format_utc
from voxline.registry.registry import Registry
from voxline.registry.signing import SIGNATURE
from voxline.store.objects import open_store

HUB_RECORD = "hub.json"
_OURS = (
    *MODEL_PARTS,
    *(SIGNATURE, RELEASE_FILE, CARD_FILE, WEIGHTS_FILE, CONFIG_FILE, "vocab.json"),
    *("preprocessor_config.json", "tokenizer_config.json", "generation_config.json"),
)
"""Files and folders that a push writes; those of an earlier one that the new one lacks are deleted."""
_MADE_BY_THE_HUB = (".gitattributes",)


@dataclasses.dataclass(frozen=True)
class HubUpload:
    """An upload of a version.

    Attributes:
      repository: `owner/name`.
      revision: the commit.
      version: in the registry.
      digest: of the model.
      form: "voxline" or "transformers".
      at: in UTC.
    """

    repository: str
    revision: str
    version: int
    digest: str
    form: str
    at: str


def upload_folder(folder: Path, repository: str, *, seen: Sequence[str], public: bool, message: str) -> str:
    """Uploads all files of a folder as one commit; the model is created, private unless `public`, if it is new.

    The token is that of `hf auth login`, or of HF_TOKEN.

    Args:
      repository: `owner/name`.
      seen: commits that may be overwritten.
      public: of a new model; the visibility of one that exists stays as it is.
      message: of the commit.

    Returns:
      The commit.

    Raises:
      SettingsError: nobody is logged in, the Hub refuses, or its newest commit was not seen.
      TransientError: the Hub cannot be reached.
      WorkError: another commit came between; nothing was written.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError

    check_name(repository, "OWNER/NAME")
    subject = f"{HUB_SCHEME}{repository}"
    if not get_token():
        raise SettingsError(f"{subject}: nobody is logged in to the Hub; run `hf auth login`, or set HF_TOKEN")

    # A model that is private to others looks like one that does not exist: creating it then fails.
    client = HfApi(library_name="voxline")
    with hub_errors(subject, "the same command may succeed later"):
        if not client.repo_exists(repository):
            client.create_repo(repository, private=not public)

        # What is there now; a model that was just created has a file of the Hub's own.
        there = client.model_info(repository, timeout=30)
        files = [str(file.rfilename) for file in there.siblings or []]
        newest = str(there.sha)
        if newest not in seen and set(files) - set(_MADE_BY_THE_HUB):
            raise SettingsError(
                f"{subject} is at the commit {newest}, which was not pushed from this registry, and nothing was "
                f"written; look at it, then overwrite it with --over {newest}"
            )

        # Files that nobody here wrote, such as samples, stay.
        added = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
        stale = [file for file in files if file not in added and file.partition("/")[0] in _OURS]
        operations: list[CommitOperationAdd | CommitOperationCopy | CommitOperationDelete] = []
        operations += [CommitOperationAdd(path, str(file)) for path, file in added.items()]
        operations += [CommitOperationDelete(file) for file in stale]

        # The Hub compares the parent once more, after the upload.
        try:
            commit = client.create_commit(repository, operations, commit_message=message, parent_commit=newest)
        except HfHubHTTPError as error:
            if getattr(error.response, "status_code", 0) not in (409, 412):
                raise
            raise WorkError(
                f"{subject}: another commit came after {newest} while the model was uploaded; nothing was written"
            ) from None
        except RuntimeError as error:  # as the client calls a file that was not uploaded
            raise TransientError(f"{subject}: {error}; nothing was committed, push again") from error

        # A .gitignore there leaves files out without a word.
        present = {str(file.rfilename) for file in client.model_info(repository, revision=commit.oid).siblings or []}
    if absent := sorted(set(added) - present):
        raise WorkError(f"{subject}: the commit {commit.oid} lacks {', '.join(absent)}; see its .gitignore")
    return str(commit.oid)


def read_uploads(registry: Registry) -> list[HubUpload]:
    """The uploads of a model's versions, the first one first.

    Raises:
      WorkError: `hub.json` is damaged.
    """
    store = open_store(registry.uri)
    try:
        data = store.read(HUB_RECORD)
    except FileNotFoundError:
        return []

    # Another version's keys are refused, as those of a damaged file.
    try:
        return [HubUpload(**upload) for upload in json.loads(data)["uploads"]]
    except (ValueError, TypeError, KeyError) as error:
        raise WorkError(
            f"{store.uri_of(HUB_RECORD)}: damaged ({error}); delete it, and name the commit to overwrite (--over)"
        ) from None


def check_record(registry: Registry) -> None:
    """Refuses an upload that could not be recorded, before it is made: writes `hub.json` as it is.

    Raises:
      WorkError: the registry cannot be written.
    """
    with registry.locked():
        _write_uploads(registry, read_uploads(registry))


def record_upload(registry: Registry, repository: str, revision: str, version: int, digest: str, form: str) -> None:
    """Adds an upload to `hub.json`.

    Raises:
      WorkError: the registry cannot be written; the commit is on the Hub, and the message names it.
    """
    # Appended under the model's lock: two pushes at once are both on record.
    upload = HubUpload(repository, revision, version, digest, form, format_utc(time.time()))
    try:
        with registry.locked():
            _write_uploads(registry, [*read_uploads(registry), upload])
    except (OSError, VoxlineError) as error:
        raise WorkError(
            f"{HUB_SCHEME}{repository}@{revision} is on the Hub, and {registry.uri} has no record of it: {error}; the "
            f"next push of this model there needs --over {revision}"
        ) from error


def _write_uploads(registry: Registry, uploads: Sequence[HubUpload]) -> None:
    values: dict[str, Any] = {"format": 1, "uploads": [dataclasses.asdict(entry) for entry in uploads]}
    content = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    open_store(registry.uri).write(HUB_RECORD, content.encode())
