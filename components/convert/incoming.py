"""The manifest that comes in: named without being parsed where its bytes were seen before, parsed when it is wanted."""

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path

from components.speech.errors import WorkError
from components.speech.fingerprints import note_fingerprint, noted_fingerprint
from components.speech.mirror import bring
from components.speech.storage import hash_file
from components.speech.utterances import Utterance, fingerprint, manifest_file, read_manifest


class Incoming:
    """Utterances to convert.

    Attributes:
      fingerprint: names them by their content.
    """

    def __init__(self, manifest: Path, store: Path | str) -> None:
        """Names them.

        Raises:
          WorkError: there is no such manifest, it is none, or a recording that it does not name by content cannot be
            read.
        """
        self._file = manifest_file(manifest)
        content = hash_file(self._file) if self._file.is_file() else ""
        noted = noted_fingerprint(content, store)
        self.fingerprint = noted or fingerprint(self.utterances)
        if not noted and not self._hashed_here and hash_file(self._file) == content:
            note_fingerprint(content, store, self.fingerprint)

    @functools.cached_property
    def utterances(self) -> list[Utterance]:
        """Each with the hash of its recording, also where a manifest that somebody else wrote does not have it."""
        utterances = read_manifest(self._file)
        unnamed = [utterance for utterance in utterances if not utterance.audio_hash]
        self._hashed_here = bool(unnamed)
        if not unnamed:
            return utterances
        bring(utterance.audio_filepath for utterance in unnamed)
        return [_with_hash(utterance) for utterance in utterances]

    def absent(self) -> list[Utterance]:
        """Those whose recording is not there."""
        present = _Present()
        numbers = {number for number, path in enumerate(self._paths()) if path not in present}
        return [self.utterances[number] for number in sorted(numbers)]

    def _paths(self) -> Iterator[str]:
        """Where the recordings lie; of a manifest that is known to be one, without a closer look."""
        if "utterances" in self.__dict__:
            yield from (utterance.audio_filepath for utterance in self.utterances)
            return
        folder = os.path.abspath(self._file.parent)
        with open(self._file, "rb") as lines:
            for line in lines:
                if line.strip():
                    yield os.path.normpath(os.path.join(folder, json.loads(line)["audio_filepath"]))


class _Present:
    """Which files there are; each folder is listed once, since asking for each of its files takes ten times as long."""

    def __init__(self) -> None:
        self._listed: dict[str, set[str]] = {}

    def __contains__(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._listed:
            try:
                with os.scandir(folder) as entries:
                    self._listed[folder] = {entry.name for entry in entries if entry.is_file()}
            except OSError:
                self._listed[folder] = set()
        return name in self._listed[folder] or Path(path).is_file()


def _with_hash(utterance: Utterance) -> Utterance:
    if utterance.audio_hash or not Path(utterance.audio_filepath).is_file():
        return utterance
    try:
        return utterance.replace(audio_hash=hash_file(Path(utterance.audio_filepath)))
    except OSError as error:
        raise WorkError(
            f"convert: {utterance.id}: {utterance.audio_filepath} cannot be read ({error.strerror}); mend its "
            "permissions, or take its line out of the manifest"
        ) from None
