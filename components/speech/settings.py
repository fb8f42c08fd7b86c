"""Settings that are typed and strict: an unknown or impossible value is refused by its key.

Each step derives its own from `Settings`; every field has a default that works and a description
with its unit. The same class reads a section of a YAML file, `--set` on the command line, and the
JSON that a pipeline hands to a component.
"""

import difflib
import json
from typing import Any, Self

import pydantic

from components.speech.errors import SettingsError


class Settings(pydantic.BaseModel):
    """A group of settings."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @classmethod
    def of(cls, value: str | dict[str, Any] = "{}", source: str = "settings", **named: Any) -> Self:
        """Reads settings from a JSON text or a mapping; `named` ones win, `model__units` being `units` of `model`.

        Raises:
          SettingsError: naming `source`, the key, what it got and what it accepts.
        """
        if isinstance(value, str):
            try:
                value = json.loads(value or "{}")
            except json.JSONDecodeError as error:
                raise SettingsError(f"{source}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise SettingsError(f"{source}: got {value!r}, a mapping of keys to values is accepted")
        for name, one in named.items():
            *sections, key = name.split("__")
            value = _with(value, sections, key, one)
        try:
            return cls.model_validate(value)
        except pydantic.ValidationError as error:
            raise SettingsError("\n".join(explain(cls, error, source))) from None

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values, as they stand in done.json, dataset.json and model.json."""
        return self.model_dump(mode="json")


def explain(model: type[pydantic.BaseModel], error: pydantic.ValidationError, source: str) -> list[str]:
    """One line for each fault: where it is, what was there, what is accepted."""
    lines = []
    for fault in error.errors(include_url=False):
        path = [str(part) for part in fault["loc"]]
        key = ".".join(path)
        if fault["type"] == "extra_forbidden":
            known = _keys_at(model, path[:-1])
            near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"
            lines.append(f"{source}: unknown key {key!r}; {hint}")
        elif fault["type"] == "missing":
            lines.append(f"{source}: {key!r} is missing; it has no default, give it a value")
        else:
            message = fault["msg"].removeprefix("Value error, ")
            lines.append(f"{source}: {key!r} is {fault['input']!r}; {message}")
    return lines


def _with(values: dict[str, Any], sections: list[str], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested mappings in which one value is another."""
    if not sections:
        return {**values, key: value}
    inner = values.get(sections[0])
    return {**values, sections[0]: _with(inner if isinstance(inner, dict) else {}, sections[1:], key, value)}


def _keys_at(model: type[pydantic.BaseModel], path: list[str]) -> list[str]:
    """The keys that the model accepts under a dotted path."""
    for part in path:
        field = {field.alias or name: field for name, field in model.model_fields.items()}.get(part)
        inner = (
            next(
                (t for t in _types_of(field.annotation) if isinstance(t, type) and issubclass(t, pydantic.BaseModel)),
                None,
            )
            if field
            else None
        )
        if inner is None:
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _types_of(annotation: Any) -> list[Any]:
    return [annotation, *getattr(annotation, "__args__", ())]
