"""The config of a run: YAML, typed and strict, with `--set` laid over it and what follows from it filled in.

A value is given once. What another step must know too (the sample rate, the alphabet, the model's name)
is passed on here, in one place; a config that gives it twice and differently is refused, naming both keys.
"""

import difflib
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pydantic

from components.speech.errors import SettingsError
from components.speech.settings import explain, key_of
from pipelines.documents import overlay, read_document
from pipelines.dotted import Values, get, is_given, keys_of, over, put
from pipelines.run_config import RunConfig

FAMILIES = {"asr": "AsrConfig", "tts": "TtsConfig", "refresh": "RefreshConfig"}
"""Pipeline → its config's class, in the module `pipelines.<pipeline>_config`."""

PATHS = ("corpus.uri", "store", "registry", "datasets")
"""Keys that hold a path: relative to the YAML file in it, to the current folder in `--set`."""


def load_config(file: Path, assignments: Iterable[str] = (), *, pipeline: str | None = None) -> RunConfig:
    """Reads a config, with `a.b=c` assignments over it.

    Args:
      pipeline: what the config must be for; None takes any.

    Raises:
      SettingsError: a line for each fault: where it stands, the key, what it got and what it accepts.
    """
    document = read_document(file)
    family = _family(document.get("pipeline", "asr"), file, pipeline)
    document, assigned = overlay(_absolute(document, file.absolute().parent), assignments)
    for key in PATHS:
        if _is_assigned(key, assigned) and get(document, key) is not None:
            put(document, key, _absolute_path(get(document, key), Path.cwd()))
    config = _validated(family, over(family.defaults(document), document), file, assigned)
    return _completed(config, file, assigned)


def _family(named: Any, file: Path, wanted: str | None) -> type[RunConfig]:
    """The class of the config that the YAML's `pipeline` names.

    Each is imported when it is asked for: the settings of one family need not load for the other.
    """
    if not isinstance(named, str) or named not in FAMILIES:
        raise SettingsError(f"{file}: 'pipeline' is {named!r}; accepted: {', '.join(map(repr, FAMILIES))}")
    if wanted is not None and named != wanted:
        raise SettingsError(
            f"{file}: 'pipeline' is {named!r}, and the command names {wanted!r}; "
            f"say {named} in place of {wanted}, or give a config that says `pipeline: {wanted}`"
        )
    family: type[RunConfig] = getattr(importlib.import_module(f"pipelines.{named}_config"), FAMILIES[named])
    return family


def _validated(family: type[RunConfig], document: Values, file: Path, assigned: set[str]) -> RunConfig:
    try:
        return family.model_validate(document)
    except pydantic.ValidationError as error:
        lines = []
        for fault, line in zip(error.errors(include_url=False), explain(family, error, ""), strict=True):
            key = key_of(family, fault["loc"])
            if fault["type"] == "extra_forbidden" and "did you mean" not in line:
                line = _nearest_anywhere(family, key, line)
            lines.append(_source(key, file, assigned) + line)
        raise SettingsError("\n".join(lines)) from None


def _source(key: str, file: Path, assigned: set[str]) -> str:
    """Where a key's value came from."""
    return f"--set {key}" if _is_assigned(key, assigned) else str(file)


def _is_assigned(key: str, assigned: set[str]) -> bool:
    """Whether `--set` gave the key, or a section that holds it."""
    return any(key == one or key.startswith(one + ".") for one in assigned)


def _nearest_anywhere(family: type[RunConfig], key: str, line: str) -> str:
    """Names a key of another section when it is what was meant: `epochs` at the top is `train.epochs`."""
    last = key.rsplit(".", 1)[-1]
    known = {name.rsplit(".", 1)[-1]: name for name in keys_of(family)}
    near = difflib.get_close_matches(last, known, n=1, cutoff=0.8)
    return f"{line.split(';')[0]}; did you mean {known[near[0]]!r}?" if near else line


def _completed(config: RunConfig, file: Path, assigned: set[str]) -> RunConfig:
    """Fills in what follows from other settings."""
    values = config.plain()
    for key, (value, origin) in config.follows().items():
        given = get(values, key) if is_given(config, key) else None
        if given not in (None, value):
            raise SettingsError(
                f"{_source(key, file, assigned)}: {key!r} is {given!r} and {origin!r} makes it {value!r}; "
                f"leave {key!r} out, and it follows"
            )
        put(values, key, value)
    return _validated(type(config), values, file, assigned)


def _absolute(document: Values, folder: Path) -> Values:
    for key in PATHS:
        value = get(document, key)
        if value is not None:
            put(document, key, _absolute_path(value, folder))
    return document


def _absolute_path(value: Any, folder: Path) -> Any:
    """A local path made absolute; a `gs://` address, an empty value and what is no text stay as they are."""
    if not isinstance(value, str) or not value or "://" in value:
        return value
    return os.path.normpath(folder / Path(value).expanduser())
