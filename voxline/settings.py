"""Settings that are typed and strict: an unknown key or an impossible value is refused, and the message names the key.

Each step derives its settings from `Settings`; every field has a working default and a description with its unit. The
same class reads a section of a YAML file, `--set` on the command line, and the JSON that a pipeline passes to a
component.
"""

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

import pydantic
from pydantic_core import PydanticUndefined, to_jsonable_python

from voxline.errors import SettingsError

# Otherwise pydantic searches all installed packages for plugins when the first class is defined, which costs a tenth of
# the time of a step that finds its work done.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


class Settings(pydantic.BaseModel):
    """A group of settings."""

    EXPOSED: ClassVar[Sequence[str]] = ()
    """Keys that are parameters of the step's KFP component and fields of the form in the UI; the others are JSON."""

    NOT_IN_KEY: ClassVar[frozenset[str]] = frozenset()
    """Fields that are never part of a step's key: they change no output, or a digest takes their place."""

    ALWAYS_IN_KEY: ClassVar[Sequence[str]] = ()
    """Attributes of the class that are part of every key."""

    model_config = pydantic.ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,  # a command needs half of the models
    )

    @classmethod
    def of(cls, value: str | dict[str, Any] = "{}", source: str = "settings", **named: Any) -> Self:
        """Reads settings from a JSON text or a mapping; `named` ones win; `model__units` is `units` of `model`.

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
            value = _set_nested(value, sections, key, one)
        try:
            return cls.model_validate(value)
        except pydantic.ValidationError as error:
            raise SettingsError("\n".join(format_validation_errors(cls, error, source))) from None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_booleans_as_numbers(cls, values: Any) -> Any:
        # For Python True is 1, but `epochs: true` does not mean 1. As text it is refused.
        if not isinstance(values, dict):
            return values
        fields = _fields(cls)
        return {
            key: _booleans_as_text(one) if key in fields and _is_number(fields[key]) else one
            for key, one in values.items()
        }

    def plain(self) -> dict[str, Any]:
        """All settings as JSON values, as in dataset.json and model.json."""
        return self.model_dump(mode="json")

    def key_values(self) -> dict[str, Any]:
        """The settings in a step's key, as JSON values: those that differ from their defaults, without `NOT_IN_KEY`.

        So a new setting changes no key. A changed default does not change it either: raise the step's REVISION. The
        `kind` of a section that has several kinds is always there.

        >>> class Network(Settings):
        ...     units: int = 96
        ...     layers: int = 2
        >>> class Train(Settings):
        ...     NOT_IN_KEY = frozenset({"workers"})
        ...     network: Network = Network()
        ...     workers: int = 1
        >>> Train(network=Network(units=64), workers=4).key_values()
        {'network': {'units': 64}}
        """
        return _non_defaults(self, _default_values(type(self)))

    def changed_from(self, key_values: dict[str, Any]) -> list[tuple[str, str, str]]:
        """(dotted key, value before, value now) of every setting in the key that differs from an earlier key.

        >>> class Train(Settings):
        ...     epochs: int = 15
        ...     seed: int = 1
        >>> Train(epochs=3).changed_from({"seed": 2})
        [('epochs', '15', '3'), ('seed', '2', '1')]
        """
        defaults = dict(_leaves(_all_defaults(self, _default_values(type(self)))))
        before = {**defaults, **dict(_leaves(key_values))}
        now = {**defaults, **dict(_leaves(self.key_values()))}
        # A key that this version does not have any more is no change that a person made.
        return [(key, before.get(key, ""), value) for key, value in sorted(now.items()) if before.get(key, "") != value]


def changed_settings(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(dotted key, value before, value after) of every setting that differs; an absent one has the value "".

    >>> changed_settings({"train": {"epochs": 5, "seed": 1}}, {"train": {"epochs": 6, "seed": 1, "speeds": [1.0]}})
    [('train.epochs', '5', '6'), ('train.speeds', '', '[1.0]')]
    """
    old, new = dict(_leaves(before)), dict(_leaves(after))
    keys = sorted(old.keys() | new.keys())
    return [(key, old.get(key, ""), new.get(key, "")) for key in keys if old.get(key) != new.get(key)]


def _default_values(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    """The defaults of a model's fields; `PydanticUndefined` where a field has none."""
    return {name: field.get_default(call_default_factory=True) for name, field in model.model_fields.items()}


def _defaults_of_section(section: Settings, default: Any) -> dict[str, Any]:
    """The defaults of the fields of a section: those of the field's default, where that is of the same kind."""
    return dict(default) if type(default) is type(section) else _default_values(type(section))


def _non_defaults(settings: Settings, defaults: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(settings, name) for name in settings.ALWAYS_IN_KEY}
    for name, field in type(settings).model_fields.items():
        if name in settings.NOT_IN_KEY:
            continue
        key = field.alias or name
        value = getattr(settings, name)
        default = defaults[name]
        if isinstance(value, Settings):
            section = _non_defaults(value, _defaults_of_section(value, default))
            if section or not isinstance(default, Settings):
                values[key] = section
        elif _is_tag(type(settings), name) or _key_value(value) != _key_value(default):
            values[key] = _key_value(value)
    return values


def _all_defaults(settings: Settings, defaults: dict[str, Any]) -> dict[str, Any]:
    """What each field in the key would be by default, with the sections of the kinds that the settings have."""
    values = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name in settings.NOT_IN_KEY or defaults[name] is PydanticUndefined:
            continue
        is_section = isinstance(value, Settings)
        section = _all_defaults(value, _defaults_of_section(value, defaults[name])) if is_section else {}
        values[field.alias or name] = section if is_section else _key_value(defaults[name])
    return values


def _key_value(value: Any) -> Any:
    """A value as JSON; settings within lists and mappings are as in a key."""
    if isinstance(value, Settings):
        return value.key_values()
    if isinstance(value, dict):
        return {name: _key_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_key_value(inner) for inner in value]
    return value if value is PydanticUndefined else to_jsonable_python(value)


def _is_tag(model: type[pydantic.BaseModel], name: str) -> bool:
    """Whether a field is the `kind` that distinguishes a class from the others of a section."""
    return name == "kind" and len(_tags(model)) == 1


def merge(defaults: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values, and where they say nothing the defaults.

    >>> merge({"corpus": {"format": "ljspeech"}}, {"corpus": {"uri": "recordings"}})
    {'corpus': {'format': 'ljspeech', 'uri': 'recordings'}}
    """
    joined = {**defaults, **values}
    for key, default in defaults.items():
        given = values.get(key)
        if isinstance(default, dict) and isinstance(given, dict):
            joined[key] = merge(default, given)
    return joined


def _leaves(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    leaves = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            leaves += _leaves(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
            leaves.append((f"{prefix}{key}", text))
    return leaves


@dataclasses.dataclass(frozen=True)
class ExposedKey:
    """A setting as a parameter of a KFP component.

    Attributes:
      key: dotted, such as `model.units`.
      type: str, int or float.
      description: one sentence, with the unit.
    """

    key: str
    type: type[str] | type[int] | type[float]
    default: str | int | float
    description: str

    @property
    def parameter(self) -> str:
        """The key as Python can spell it, such as `model__units`."""
        return self.key.replace(".", "__")


def exposed_keys(model: type[Settings]) -> list[ExposedKey]:
    """The keys of `model.EXPOSED`.

    >>> class Network(Settings):
    ...     units: int = pydantic.Field(96, description="units of a layer")
    >>> class Train(Settings):
    ...     EXPOSED = ("network.units",)
    ...     network: Network = Network()
    >>> exposed_keys(Train)
    [ExposedKey(key='network.units', type=<class 'int'>, default=96, description='units of a layer')]

    Raises:
      TypeError: a key is unknown, or its default is not a text or a number.
    """
    return [_exposed_key(model, key) for key in model.EXPOSED]


def _exposed_key(model: type[Settings], key: str) -> ExposedKey:
    holders: list[type[pydantic.BaseModel]] = [model]
    value: Any = None
    description, types, choices = "", set[Any](), list[str]()
    for part in key.split("."):
        if isinstance(value, dict) and part in value:  # the description of the mapping serves for each of its values
            value = value[part]
            continue
        fields = [holder.model_fields[part] for holder in holders if part in holder.model_fields]
        if not fields:
            raise TypeError(f"{model.__name__}.EXPOSED: no such key: {key!r}")
        own = type(value).model_fields[part] if isinstance(value, Settings) else fields[0]
        value = getattr(value, part) if isinstance(value, Settings) else own.get_default(call_default_factory=True)
        description, types = own.description or "", _leaf_types(own.annotation)
        choices = [str(choice) for field in fields for choice in _choices(field.annotation)]
        holders = [inner for field in fields for inner in nested_models(field.annotation)]
    if type(value) not in (str, int, float):
        raise TypeError(f"{model.__name__}.EXPOSED: {key!r} is {value!r} by default; a text or a number is accepted")
    if any(choice not in description for choice in choices):
        description = f"{description}; accepted: {', '.join(choices)}"
    return ExposedKey(key, float if float in types else type(value), value, description.rstrip("."))


def format_validation_errors(
    model: type[pydantic.BaseModel], error: pydantic.ValidationError, source: str
) -> list[str]:
    """One line for each fault: its key, its value, and what is accepted."""
    lines = []
    for fault in error.errors(include_url=False):
        key = dotted_key(model, fault["loc"])
        if fault["type"] == "extra_forbidden":
            known = _keys_of(_resolve(model, fault["loc"][:-1])[1])
            near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1, cutoff=0.6)
            section = fault["loc"][:-1]
            names = [f"{dotted_key(model, section)}.{one}".removeprefix(".") for one in near]
            hint = f"did you mean {names[0]!r}?" if names else f"known here: {', '.join(sorted(known))}"
            lines.append(f"{source}: unknown key {key!r}; {hint}")
        elif fault["type"] == "missing":
            lines.append(f"{source}: {key!r} is missing; it has no default, give it a value")
        elif fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
            context = fault["ctx"]
            kind = context["discriminator"].strip("'")
            was = f"is {context['tag']!r}" if "tag" in context else "is missing"
            accepted = context.get("expected_tags") or ", ".join(
                repr(tag) for inner in _resolve(model, fault["loc"])[1] for tag in _tags(inner)
            )
            lines.append(f"{source}: '{key}.{kind}' {was}; accepted: {accepted}")
        else:
            message = fault["msg"].removeprefix("Value error, ")
            if fault["type"] in ("dict_type", "model_type"):
                message = "a mapping of keys to values is accepted, such as {key: value}"
            elif fault["type"] == "string_pattern_mismatch":
                message = f"accepted: text that matches {fault['ctx']['pattern']}"
            lines.append(f"{source}: {key!r} is {_without_credentials(repr(fault['input']))}; {message}")
    return lines


def dotted_key(model: type[pydantic.BaseModel], loc: Sequence[int | str]) -> str:
    """The dotted key of a fault, without the `kind` that pydantic inserts for a section of several kinds.

    >>> from typing import Annotated
    >>> class Small(Settings):
    ...     kind: Literal["small"] = "small"
    >>> class Large(Settings):
    ...     kind: Literal["large"] = "large"
    ...     layers: int = 1
    >>> class Train(Settings):
    ...     model: Annotated[Small | Large, pydantic.Field(discriminator="kind")] = Small()
    >>> dotted_key(Train, ("model", "large", "layers"))
    'model.layers'
    """
    return ".".join(_resolve(model, loc)[0])


def nested_models(annotation: Any) -> list[type[pydantic.BaseModel]]:
    """The models within a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [inner for part in getattr(annotation, "__args__", ()) for inner in nested_models(part)]


def _set_nested(values: dict[str, Any], sections: list[str], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested mappings with one value replaced."""
    if not sections:
        return {**values, key: value}
    inner = values.get(sections[0])
    return {**values, sections[0]: _set_nested(inner if isinstance(inner, dict) else {}, sections[1:], key, value)}


def _resolve(
    model: type[pydantic.BaseModel], loc: Sequence[int | str]
) -> tuple[list[str], list[type[pydantic.BaseModel]]]:
    """The key that a location names, and the models that are accepted there (none: a plain value)."""
    key, models = [], [model]
    names_a_section = False
    for part in loc:
        if names_a_section or part == "[key]":  # of a mapping of sections: any name, whose fault pydantic marks
            names_a_section = False
            key += [] if part == "[key]" else [str(part)]
            continue
        chosen = [inner for inner in models if part in _tags(inner)]
        if chosen and not any(part in _keys_of([inner]) for inner in models):
            models = chosen
            continue
        key.append(str(part))
        if not isinstance(part, int):  # an index into a list of models: they stay
            fields = [_fields(inner)[part] for inner in models if part in _fields(inner)]
            names_a_section = any(get_origin(field.annotation) is dict for field in fields)
            models = [inner for field in fields for inner in nested_models(field.annotation)]
    return key, models


def _fields(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    """The fields of a model, by their names in a config."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _keys_of(models: list[type[pydantic.BaseModel]]) -> list[str]:
    return list(dict.fromkeys(key for model in models for key in _fields(model)))


def _tags(model: type[pydantic.BaseModel]) -> tuple[Any, ...]:
    """The values of a model's key `kind`, if it has one."""
    field = model.model_fields.get("kind")
    return _choices(field.annotation) if field else ()


def _choices(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _is_number(field: Any) -> bool:
    """Whether a field takes numbers, but neither booleans nor nested settings (which check themselves)."""
    types = _leaf_types(field.annotation)
    return bool(types & {int, float}) and not types & {bool, Any} and not nested_models(field.annotation)


def _booleans_as_text(value: Any) -> Any:
    """The value with each `true` and `false` as text, in lists and mappings too."""
    if isinstance(value, list | tuple):
        return [_booleans_as_text(one) for one in value]
    if isinstance(value, dict):
        return {key: _booleans_as_text(one) for key, one in value.items()}
    return str(value).lower() if isinstance(value, bool) else value


def _leaf_types(annotation: Any) -> set[Any]:
    """The innermost types within a field's type."""
    if get_origin(annotation) is Literal:
        return {type(one) for one in get_args(annotation)}
    parts = get_args(annotation)
    return {inner for part in parts for inner in _leaf_types(part)} if parts else {annotation}


def _without_credentials(text: str) -> str:
    """A value for a message, without the user, password and query of an address: the message may go into a log.

    >>> _without_credentials("'postgresql://me:pass@db/mlflow' 'https://example.com/a?sig=b'")
    "'postgresql://…@db/mlflow' 'https://example.com/a?…'"
    """
    return re.sub(r"(://[^\s'\"?]*)\?[^\s'\"]+", r"\1?…", re.sub(r"://[^/\s'\"]*@", "://…@", text))
