"""A config in layers: files, each laid over those before it, then `--set`; and which of them gave a key."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipelines.documents import overlay, read_document
from pipelines.dotted import Values, get, over, put


@dataclasses.dataclass(frozen=True)
class Layers:
    """What the layers come to.

    Attributes:
      document: all of them, the later ones on top. Mappings are joined key by key; a list takes the place of a list.
      files: each file and what it says.
      assigned: dotted keys that `--set` gave.
    """

    document: Values
    files: Sequence[tuple[Path, Values]]
    assigned: frozenset[str]

    @property
    def named(self) -> str:
        """The files as a message names them."""
        return " + ".join(str(file) for file, _ in self.files)

    def source(self, key: str) -> str:
        """Where a key's value came from: `--set` and the key, or the last file that has it."""
        if self.is_assigned(key):
            return f"--set {key}"
        return str(next((file for file, said in reversed(self.files) if get(said, key) is not None), self.named))

    def is_assigned(self, key: str) -> bool:
        """Whether `--set` gave the key, or a section that holds it."""
        return any(key == one or key.startswith(one + ".") for one in self.assigned)


def read_layers(files: Sequence[Path], assignments: Iterable[str], paths: Iterable[str]) -> Layers:
    """Reads the files, and lays one over the other.

    Args:
      paths: keys that hold a path: relative to the file that gives them, to the current folder in `--set`.

    Raises:
      SettingsError: a file is absent or no YAML, or an assignment is none.
    """
    read = [(file, _absolute(read_document(file), file.absolute().parent, paths)) for file in files]
    joined: Values = {}
    for _, said in read:
        joined = over(joined, said)
    document, assigned = overlay(joined, assignments)
    layers = Layers(document, read, frozenset(assigned))
    _absolute(document, Path.cwd(), [key for key in paths if layers.is_assigned(key)])
    return layers


def _absolute(document: Values, folder: Path, paths: Iterable[str]) -> Values:
    for key in paths:
        value = get(document, key)
        if value is not None:
            put(document, key, _absolute_path(value, folder))
    return document


def _absolute_path(value: Any, folder: Path) -> Any:
    """A local path made absolute; a `gs://` address, an empty value and what is no text stay as they are."""
    if not isinstance(value, str) or not value or "://" in value:
        return value
    return os.path.normpath(folder / Path(value).expanduser())
