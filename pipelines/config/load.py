"""The config of a run: YAML, typed and strict, with `--set` laid over it and what follows from it filled in.

A value is given once. What another step must know too (the sample rate, the alphabet, the model's name)
is passed on here, in one place; a config that gives it twice and differently is refused, naming both keys.
"""

import difflib
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pydantic

from voxline.errors import SettingsError
from voxline.pipelines.config.keys import Values, get_key, is_key_set, list_keys, merge, set_key
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.config.yaml_files import ConfigLayers, read_layers
from voxline.settings import dotted_key, format_validation_errors

CONFIG_CLASSES = {"asr": "AsrConfig", "tts": "TtsConfig", "refresh": "RefreshConfig"}
"""Pipeline → its config's class, in the module `pipelines.<pipeline>_config`."""

PATH_KEYS = ("corpus.uri", "store", "registry", "datasets")
"""Keys that hold a path: relative to the YAML file in it, to the current folder in `--set`."""


def load_config(
    files: Path | Sequence[Path], assignments: Iterable[str] = (), *, pipeline: str | None = None
) -> RunConfig:
    """Reads a config, with `a.b=c` assignments over it.

    Args:
      files: one, or several of which each is laid over those before it.
      pipeline: what the config must be for; None takes any.

    Raises:
      SettingsError: a line for each fault: where it stands, the key, what it got and what it accepts.
    """
    layers = read_layers([files] if isinstance(files, Path) else files, assignments, PATH_KEYS)
    family = _config_class(layers, pipeline)
    config = _validate(family, merge(family.defaults(layers.document), layers.document), layers)
    return _complete(config, layers)


def _config_class(layers: ConfigLayers, wanted: str | None) -> type[RunConfig]:
    """The class of the config that the YAML's `pipeline` names.

    Each is imported when it is asked for: the settings of one family need not load for the other.
    """
    named = layers.document.get("pipeline", "asr")
    where = layers.source("pipeline")
    if not isinstance(named, str) or named not in CONFIG_CLASSES:
        raise SettingsError(f"{where}: 'pipeline' is {named!r}; accepted: {', '.join(map(repr, CONFIG_CLASSES))}")
    if wanted is not None and named != wanted:
        raise SettingsError(
            f"{where}: 'pipeline' is {named!r}, and the command names {wanted!r}; "
            f"say {named} in place of {wanted}, or give a config that says `pipeline: {wanted}`"
        )
    family: type[RunConfig] = getattr(
        importlib.import_module("voxline.pipelines.config.families"), CONFIG_CLASSES[named]
    )
    return family


def _validate(family: type[RunConfig], document: Values, layers: ConfigLayers) -> RunConfig:
    try:
        return family.model_validate(document)
    except pydantic.ValidationError as error:
        lines = []
        for fault, line in zip(
            error.errors(include_url=False), format_validation_errors(family, error, ""), strict=True
        ):
            key = dotted_key(family, fault["loc"])
            if fault["type"] == "extra_forbidden" and "did you mean" not in line:
                line = _nearest_anywhere(family, key, line)
            lines.append(layers.source(key) + line)
        raise SettingsError("\n".join(lines)) from None


def _nearest_anywhere(family: type[RunConfig], key: str, line: str) -> str:
    """Names a key of another section when it is what was meant: `epochs` at the top is `train.epochs`."""
    last = key.rsplit(".", 1)[-1]
    known = {name.rsplit(".", 1)[-1]: name for name in list_keys(family)}
    near = difflib.get_close_matches(last, known, n=1, cutoff=0.8)
    return f"{line.split(';')[0]}; did you mean {known[near[0]]!r}?" if near else line


def _complete(config: RunConfig, layers: ConfigLayers) -> RunConfig:
    """Fills in what follows from other settings."""
    values = config.plain()
    for key, (value, origin) in config.follows().items():
        given = get_key(values, key) if is_key_set(config, key) else None
        if given not in (None, value):
            raise SettingsError(
                f"{layers.source(key)}: {key!r} is {given!r} and {origin!r} makes it {value!r}; "
                f"leave {key!r} out, and it follows"
            )
        set_key(values, key, value)
    return _validate(type(config), values, layers)
