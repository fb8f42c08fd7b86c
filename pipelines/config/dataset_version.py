"""A published version in place of a corpus (`corpus.dataset`): what a config takes from it.

The version was converted and extracted by its refresh. Those settings of it that later steps need are defaults of the
run's config, and a value that contradicts them is refused.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from voxline.data.dataset import Dataset
from voxline.data.versions import find_version
from voxline.errors import SettingsError, VoxlineError
from voxline.pipelines.config.keys import Values, get_key, set_key
from voxline.store.uris import is_remote
from voxline.text.alphabet import ALPHABETS, Alphabet

KEYS = ("convert.alphabet", "convert.sample_rate", "convert.frontend", "extract.features", "extract.speeds")
"""Of the config, which the version decides."""


def version_defaults(document: Values) -> Values:
    """The defaults of a config that names a version of a folder on this machine; of any other, nothing.

    To read a config asks no network: a run on this machine opens a version in a bucket, and takes the values then.
    """
    reference = get_key(document, "corpus.dataset")
    root = document.get("datasets")
    if not isinstance(reference, str) or not isinstance(root, str) or not reference or not root:
        return {}
    try:
        return {} if is_remote(root) else read_version(root, reference)[1]
    except (VoxlineError, OSError):  # on a volume of the cluster, say; a run on this machine says why
        return {}


def read_version(root: Path | str, reference: str) -> tuple[str, Values]:
    """The name of a version with its number, digits@7, and the values that it decides.

    Raises:
      SettingsError: the version does not exist.
      WorkError: it is damaged.
    """
    # The header alone: the shards may be large, and no step has asked for them yet.
    versions, number = find_version(root, reference)
    dataset = Dataset.read_header(versions.path(number))

    # The name of the alphabet where it has one: a config of the refresh says that too.
    symbols = dataset.alphabet.characters
    alphabet = next((name for name in ALPHABETS if Alphabet.from_name(name).characters == symbols), symbols)
    values = (
        alphabet,
        dataset.features.sample_rate,
        dataset.frontend,
        dataset.features.plain(),
        dataset.speeds,
    )
    decided: Values = {}
    for key, value in zip(KEYS, values, strict=True):
        set_key(decided, key, value)
    return f"{versions.name}@{number}", decided


def apply_version(
    values: Values, reference: str, decided: Values, defaults: Values, given: Collection[str] | None = None
) -> None:
    """Puts the name of a version, and what it decides, into the values of a config.

    Args:
      reference: with its number.
      decided: of `read_version`.
      defaults: of the config's class; where it is not known what was given, any other value was.
      given: keys of the values that a person gave, also of one that is the class's default.

    Raises:
      SettingsError: a value was given that the version contradicts.
    """
    # Each value that was given is held against the version by itself: `features: {mels: 80}` says nothing of the rest.
    for key in KEYS:
        for name in _keys_given(key, values, defaults, given):
            value = get_key(values, name)
            right = get_key(decided, name)
            if not _equal(name, value, right):
                raise SettingsError(f"{name} is {value!r}, and {reference} was made with {right!r}; leave it out")
        set_key(values, key, get_key(decided, key))
    set_key(values, "corpus.dataset", reference)


def _keys_given(key: str, values: Values, defaults: Values, given: Collection[str] | None) -> list[str]:
    """The keys at and below one whose values were given."""
    # A config that was made from values, and not read from layers, has no record of who gave what.
    if given is None:
        return [] if get_key(values, key) == get_key(defaults, key) else [key]
    return sorted(name for name in given if name == key or name.startswith(f"{key}."))


def _equal(key: str, value: Any, right: Any) -> bool:
    # A name and its characters are the same alphabet.
    if key == "convert.alphabet":
        return Alphabet.from_name(value).characters == Alphabet.from_name(right).characters
    return bool(value == right)
