"""The fingerprint of a manifest, stored by the hash of its file.

To fingerprint a manifest, every line is parsed, checked and hashed: 20 s for a million utterances. Files with the same
bytes have the same fingerprint, so a second run needs one hash of the file.

  <store>/fingerprints/<hash of the file>.json
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from voxline.data.manifest import Utterance, fingerprint_utterances, iter_manifest, manifest_path
from voxline.errors import WorkError
from voxline.store.files import read_json, remove_unfinished, write_json
from voxline.store.hashing import hash_file, hash_unchanged_file
from voxline.store.objects import open_store


def manifest_fingerprint(manifest: Path | str, store: Path | str) -> str:
    """Names the utterances of a converted manifest by their content.

    Args:
      store: keeps the fingerprint for later runs.

    Raises:
      WorkError: the manifest is absent or damaged, or a line has no `audio_hash`.
    """
    file = manifest_path(Path(manifest))
    if not file.is_file():
        raise WorkError(f"{file}: no such manifest; run the step that writes it first")
    content = hash_unchanged_file(file)
    if cached := read_fingerprint(content, store):
        return cached
    fingerprint = fingerprint_utterances(_converted_utterances(file))

    # Lines that another process wrote in between would be in the fingerprint, but not in the hash that names it.
    if hash_file(file) != content:
        raise WorkError(f"{file}: changed while it was read; run this again when it is written")
    try_write_fingerprint(content, store, fingerprint)
    return fingerprint


def read_fingerprint(content: str, store: Path | str) -> str:
    """The stored fingerprint of a manifest; empty if there is none.

    Args:
      content: hash of the manifest's file.
    """
    try:
        return str(read_json(_fingerprint_file(content, store))["fingerprint"])
    # A damaged entry counts as absent: it is computed again and replaced.
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def write_fingerprint(content: str, store: Path | str, fingerprint: str) -> None:
    """Stores a fingerprint.

    Raises:
      OSError: the store cannot be written.
    """
    file = _fingerprint_file(content, store)

    # A killed process leaves a temporary file; nobody else would delete it.
    remove_unfinished(file.parent)
    write_json(file, {"fingerprint": fingerprint})


def try_write_fingerprint(content: str, store: Path | str, fingerprint: str) -> None:
    """Stores a fingerprint if the store can be written. A step that must write to it reports the failure itself."""
    with contextlib.suppress(OSError):
        write_fingerprint(content, store, fingerprint)


def _converted_utterances(manifest: Path) -> Iterator[Utterance]:
    for utterance in iter_manifest(manifest):
        if not utterance.audio_hash:
            raise WorkError(f"{manifest}: {utterance.id} has no audio_hash; give it the manifest that convert wrote")
        yield utterance


def _fingerprint_file(content: str, store: Path | str) -> Path:
    return open_store(store).local_path() / "fingerprints" / f"{content}.json"
