"""The fingerprint of a manifest, remembered by the bytes of its file.

To name what is in a manifest every line is parsed, checked and hashed, which takes 20 s for a million utterances. The
same bytes have the same fingerprint, wherever they lie, so the second run that sees them has it after one hash.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from voxline.data.manifest import Utterance, fingerprint_utterances, iter_manifest, manifest_path
from voxline.errors import WorkError
from voxline.store.bucket_cache import local_path
from voxline.store.files import read_json, remove_unfinished, write_json
from voxline.store.hashing import hash_file


def manifest_fingerprint(manifest: Path | str, store: Path | str) -> str:
    """Names the utterances of a manifest that convert wrote, by their content.

    Args:
      store: remembers it, in `<store>/fingerprints`.

    Raises:
      WorkError: no such manifest, a line that is none, or one that names no audio.
    """
    file = manifest_path(Path(manifest))
    if not file.is_file():
        raise WorkError(f"{file}: no such manifest; run the step that writes it first")
    content = hash_file(file)
    remembered = local_path(store) / "fingerprints" / f"{content}.json"
    try:
        return str(read_json(remembered)["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        found = fingerprint_utterances(_named(file))
    if hash_file(file) != content:
        raise WorkError(f"{file}: changed while it was read; run this again when it is written")
    with contextlib.suppress(OSError):  # who writes to the store says what is wrong with it
        remove_unfinished(remembered.parent)
        write_json(remembered, {"fingerprint": found})
    return found


def _named(manifest: Path) -> Iterator[Utterance]:
    for utterance in iter_manifest(manifest):
        if not utterance.audio_hash:
            raise WorkError(f"{manifest}: {utterance.id} has no audio_hash; give it the manifest that convert wrote")
        yield utterance


def read_fingerprint(content: str, store: Path | str) -> str:
    """What the utterances of a manifest were found to be named by; empty where nobody has read it yet.

    Args:
      content: the hash of its file.
    """
    try:
        return str(read_json(_note(content, store))["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def try_write_fingerprint(content: str, store: Path | str, found: str) -> None:
    with contextlib.suppress(OSError):  # who writes to the store says what is wrong with it
        write_fingerprint(content, store, found)


def write_fingerprint(content: str, store: Path | str, found: str) -> None:
    """As above, for whoever writes to the store anyway.

    Raises:
      OSError: it cannot be written.
    """
    remove_unfinished(_note(content, store).parent)
    write_json(_note(content, store), {"fingerprint": found})


def _note(content: str, store: Path | str) -> Path:
    return local_path(store) / "fingerprints" / f"{content}.json"
