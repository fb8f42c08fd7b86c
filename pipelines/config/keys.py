"""Values in nested mappings by dotted keys, as a person names them: `train.model.units`."""

from collections.abc import Iterator
from typing import Any

import pydantic

from voxline.settings import nested_models

Values = dict[str, Any]


def get_key(values: Any, key: str) -> Any:
    """The value at a key; None where a section on the way is absent.

    >>> get_key({"train": {"epochs": 3}}, "train.epochs"), get_key({"train": None}, "train.epochs")
    (3, None)
    """
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def set_key(values: Values, key: str, value: Any) -> None:
    """Sets the value at a key, making the sections on the way.

    >>> values = {}
    >>> set_key(values, "train.model.units", 96)
    >>> values
    {'train': {'model': {'units': 96}}}
    """
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[last] = value


def list_keys(model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key that a model accepts; of a section of several kinds, those of each."""
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        yield key
        # The elements of a list have indexes, and those of a mapping names that a person chooses: no keys of the model.
        if not field.annotation or getattr(field.annotation, "__origin__", None) in (tuple, list, dict):
            continue
        for inner in nested_models(field.annotation):
            yield from list_keys(inner, key + ".")


def is_key_set(config: pydantic.BaseModel, key: str) -> bool:
    """True if a key was set, rather than left at its default."""
    first, _, remainder = key.partition(".")
    # A section may be called by its alias: `validate` is the field `validate_`.
    fields = {field.alias or name: name for name, field in type(config).model_fields.items()}
    name = fields[first]
    if name not in config.model_fields_set:
        return False
    return not remainder or is_key_set(getattr(config, name), remainder)
