"""The reference of settings, read from their classes: for `voxline config explain`, docs/config.md and editors.

`voxline config explain --markdown` prints docs/config.md, `voxline config schema` configs/schema.json; `make reference`
writes both.
"""

import dataclasses
import difflib
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import annotated_types
import pydantic
import yaml
from pydantic.json_schema import models_json_schema

from voxline.errors import SettingsError
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.config.pipeline_configs import config_class_of, config_classes
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import DEFAULT_PIPELINE, pipeline_names
from voxline.pipelines.steps import STEPS
from voxline.settings import nested_models

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
REQUIRED = object()
"""The default of a key that has none."""

_UNITS = {
    "seconds": "seconds", "hours": "hours", "days": "days", "minutes": "minutes", "db": "dB", "hz": "Hz",
    "rate": "", "megabytes": "MB (10⁶ bytes)", "gigabytes": "GB (10⁹ bytes)", "share": "share, from 0 to 1",
}  # fmt: skip
_UNIT_OF_KEY = {"convert.sample_rate": "Hz", "extract.features.sample_rate": "Hz"}
_STEP_PODS = "cluster.steps."
_FIRST_POD = f"{_STEP_PODS}ingest."
"""The sections of all steps' pods are alike; the reference describes the first one for all of them."""
_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null", Any: "any value"}


@dataclasses.dataclass(frozen=True)
class SettingReference:
    """One key of a config.

    Attributes:
      key: dotted; an element of a list is `key[]`.
      type: in words.
      accepted: the values, in words; empty: every value of the type.
      default: a JSON value, or `REQUIRED`.
      kind: of its section, if only that kind has the key: `tacotron2`.
      pipelines: those that have the key with this default and description.
      section: whether other keys are below it.
    """

    key: str
    type: str
    accepted: str
    default: Any
    description: str
    kind: str
    pipelines: tuple[str, ...]
    section: bool

    @property
    def step(self) -> str:
        """The step that reads it, in words."""
        first = self.key.partition(".")[0].removesuffix("[]")
        if first == "cluster":
            return "compile, submit and schedule; ignored on this machine"
        if first == "cost":
            return "none; run and submit, before and after all steps"

        # A key that is no section, such as `store`, belongs to all steps.
        steps = {step.config_section: step.name for step in STEPS.values()}
        steps |= {step.name: step.name for step in STEPS.values() if not step.section}  # export reads train's
        model = config_class_of(self.pipelines[0]).model_fields
        is_step = any(
            (field.alias or name) == first and nested_models(field.annotation) for name, field in model.items()
        )
        return steps.get(first, first) if is_step else "the whole run"

    @property
    def unit(self) -> str:
        """The unit, if the key's name tells it."""
        last = self.key.rpartition(".")[2].removesuffix("[]")
        return _UNIT_OF_KEY.get(self.key) or _UNITS.get(last.rpartition("_")[2], "") if self.type != "text" else ""

    @property
    def default_text(self) -> str:
        return "none; give a value" if self.default is REQUIRED else yaml_value(self.default)

    @property
    def where(self) -> str:
        """The kind of section, or else the pipelines, that have the key."""
        return self.kind or ", ".join(self.pipelines)


@dataclasses.dataclass(frozen=True)
class _Variants:
    """Settings of one key that differ in nothing but their default, the kind of their section and the pipeline."""

    settings: list[SettingReference]
    everywhere: bool

    @property
    def defaults(self) -> dict[str, str]:
        """Default → the kinds or pipelines that have it."""
        where: dict[str, list[str]] = {}
        for setting in self.settings:
            where.setdefault(setting.default_text, []).append(setting.where)
        return {default: ", ".join(dict.fromkeys(names)) for default, names in where.items()}

    @property
    def only(self) -> str:
        """The kinds or pipelines that have the key, if others do not."""
        return "" if self.everywhere else ", ".join(dict.fromkeys(setting.where for setting in self.settings))

    def lines(self) -> list[str]:
        """The lines that `voxline config explain KEY` prints."""
        setting = self.settings[0]  # all of them are alike but for the default and where they are
        defaults = self.defaults
        default = " | ".join(f"{value} ({where})" if len(defaults) > 1 else value for value, where in defaults.items())
        details = {
            "step": setting.step,
            "only for": self.only,
            "type": "section" if setting.section and not setting.type.startswith("list") else setting.type,
            "unit": setting.unit,
            "accepted": setting.accepted,
            "default": "" if setting.section and isinstance(setting.default, dict) else default,
            "meaning": setting.description,
        }
        return [setting.key, *(f"  {name:<10} {text}" for name, text in details.items() if text)]


def _group(settings: list[SettingReference], of_section: list[SettingReference]) -> list[_Variants]:
    """
    Args:
      settings: in the order of the config.
      of_section: the sections that hold them.
    """
    # A key is everywhere if all pipelines with its section have it, in each kind of the section.
    pipelines = {name for section in of_section for name in section.pipelines} or set(pipeline_names())
    groups: dict[Any, list[SettingReference]] = {}
    kinds: dict[str, set[str]] = {}
    for setting in settings:
        identity = (setting.key, setting.type, setting.accepted, setting.description)
        groups.setdefault(identity, []).append(setting)
        kinds.setdefault(setting.key.rpartition(".")[0], set()).add(setting.kind)

    return [
        _Variants(
            same,
            {name for setting in same for name in setting.pipelines} == pipelines
            and {setting.kind for setting in same} == kinds[key.rpartition(".")[0]],
        )
        for (key, *_), same in groups.items()
    ]


def list_settings(classes: Mapping[str, type[RunConfig]] | None = None) -> list[SettingReference]:
    """Every key of every pipeline's config, in the order of the config; equal ones of several pipelines are one."""
    merged: dict[Any, SettingReference] = {}
    for pipeline, config_class in (classes or config_classes()).items():
        for setting in _settings(config_class, "", config_class.example(), ""):
            # As text, because a list or a mapping cannot be part of a dict's key.
            default = setting.default if setting.default is REQUIRED else json.dumps(setting.default)
            same = (setting.key, setting.type, setting.accepted, default, setting.description, setting.kind)
            pipelines = (*merged[same].pipelines, pipeline) if same in merged else (pipeline,)
            merged[same] = dataclasses.replace(setting, pipelines=pipelines)

    # A variant of a key that only a later pipeline has follows those of the first one.
    order = {key: number for number, key in enumerate(dict.fromkeys(setting.key for setting in merged.values()))}
    return sorted(merged.values(), key=lambda setting: order[setting.key])


def explain_key(key: str) -> list[str]:
    """The lines about a key, and about those directly below it if it is a section.

    Raises:
      SettingsError: the key does not exist.
    """
    settings = list_settings()
    general = _general(key, settings)
    if general.endswith(".<name>"):
        general = general.removesuffix(".<name>")
    matches = [setting for setting in settings if setting.key == general]

    # `epochs` alone is probably `train.epochs`: keys with the same end are better guesses than similar ones.
    if not matches:
        ends = [setting.key for setting in settings if setting.key.rpartition(".")[2] == general.rpartition(".")[2]]
        near = ends or difflib.get_close_matches(general, [setting.key for setting in settings], n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(dict.fromkeys(near[:3]))}?" if near else "`voxline config explain` lists all"
        raise SettingsError(f"no setting is called {key!r}; {hint}")

    parent = [setting for setting in settings if setting.key == general.rpartition(".")[0].removesuffix("[]")]
    lines: list[str] = []
    for variants in _group(matches, parent):
        lines += ["", *variants.lines()] if lines else variants.lines()

    # Then a table of the keys one level below: of a list's elements, of a mapping's values, or of the section itself.
    starts = (f"{general}[].", f"{general}.<name>.", f"{general}.")
    below = [
        (setting, next(start for start in starts if setting.key.startswith(start)))
        for setting in settings
        if setting.key.startswith(starts)
    ]
    direct = [setting for setting, start in below if "." not in setting.key.removeprefix(start)]
    return [*lines, "", *summary_table(direct)] if direct else lines


def summary_table(settings: list[SettingReference]) -> list[str]:
    """A line for each key: the key, its default and what it means."""
    rows: dict[str, tuple[str, str]] = {}
    for setting in settings:
        default = "…" if setting.section and isinstance(setting.default, dict) else setting.default_text
        rows.setdefault(setting.key, (default if len(default) <= 24 else "…", setting.description))
    width = max((len(key) for key in rows), default=0)
    return [f"{key:<{width}}  {default:<24}  {text}" for key, (default, text) in rows.items()]


def yaml_value(value: Any) -> str:
    """A JSON value as it is written in a config, on one line.

    >>> yaml_value("off"), yaml_value([1, 2.5]), yaml_value(None), yaml_value("")
    ("'off'", '[1, 2.5]', 'null', "''")
    """
    # PyYAML ends a scalar that stands alone with `...`, the mark of a document's end.
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def markdown_reference() -> str:
    """docs/config.md."""
    settings = list_settings()

    # Section → the keys directly in it. A section comes where its own key does, before those below it.
    sections: dict[str, list[SettingReference]] = {}
    for setting in settings:
        if setting.key.startswith(_STEP_PODS) and not setting.key.startswith(_FIRST_POD):
            continue
        if setting.key.startswith("corpus.corpora.<name>.") and setting.key.partition(".<name>.")[2] not in _OF_CORPORA:
            continue  # as in the section corpus

        setting = dataclasses.replace(setting, key=setting.key.replace(_FIRST_POD, f"{_STEP_PODS}<step>."))
        if setting.section and isinstance(setting.default, dict):
            sections.setdefault(setting.key, [])
        else:
            sections.setdefault(setting.key.rpartition(".")[0], []).append(setting)

    section_rows: dict[str, list[SettingReference]] = {}
    for setting in settings:
        if setting.section:
            section_rows.setdefault(setting.key, []).append(setting)

    lines = _MARKDOWN_HEAD.splitlines()
    for section, rows in sections.items():
        if not rows:
            continue

        # The section's own settings, one for each pipeline that describes it differently: the text above its table.
        own = section_rows.get(section.removesuffix("[]").removesuffix(".<name>").replace("<step>", "ingest"), [])
        title = f"`{section}`" if section else "The run"
        lines += ["", f"{'##' if '.' not in section else '###'} {title}", ""]
        if own and not section.endswith("[]"):
            description = own[0].description
            only = (
                f" Only for {', '.join(pipelines)}."
                if len(pipelines := _pipelines(own)) < len(pipeline_names())
                else ""
            )
            lines += [f"{description[:1].upper()}{description[1:]}. Step: {own[0].step}.{only}", ""]

        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [_markdown_row(variants) for variants in _group(rows, own)]
    return "\n".join([*lines, ""])


def _pipelines(settings: list[SettingReference]) -> list[str]:
    return [name for name in pipeline_names() if any(name in setting.pipelines for setting in settings)]


_OF_CORPORA = ("uri", "weight")
"""Keys of `corpus.corpora.<name>` that are not those of `corpus`, or not inherited from there."""

_MARKDOWN_HEAD = """# Config reference

<!-- Written by `make reference` from the settings' classes. Change a description there. -->

Every key of a config. `voxline config explain KEY` prints the same in a shell, `voxline config show --config FILE` the
effective config with the origin of each value, and `voxline config schema` a JSON schema that editors read: the first
line of a config may be `# yaml-language-server: $schema=PATH`.

A config is YAML 1.2. A key that does not exist is refused, with the nearest one that does. Several `--config` files are
merged key by key, later ones win, a list replaces a list; `--set section.key=value` overrides them all. Paths are
relative to the file that sets them. What holds for some pipelines only, or for some kinds of a section, names them in
brackets."""


def _markdown_row(variants: _Variants) -> str:
    setting = variants.settings[0]
    defaults = variants.defaults
    description = setting.description + (f" ({variants.only})" if variants.only else "")
    values = [
        ("required" if setting.default is REQUIRED else f"`{value}`") + (f" ({where})" if len(defaults) > 1 else "")
        for value, where in defaults.items()
    ]
    limits = re.sub(r"^matches (.+)$", r"; matches `\1`", setting.accepted)
    limits = limits if limits.startswith(";") or not limits else f"; {limits}"

    # A | would end the cell, and a < would begin a tag, also in code.
    cells = [f"`{setting.key.rpartition('.')[2]}`", setting.type + limits, ", ".join(values), description]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def json_schema() -> dict[str, Any]:
    """A JSON schema of a config file of any pipeline."""
    classes = list(config_classes().items())
    names, schema = models_json_schema([(model, "validation") for _, model in classes])
    references = {pipeline: names[model, "validation"] for pipeline, model in classes}

    # `if` and `then` rather than `oneOf`: an editor then reports the fault of the one pipeline, not of all of them.
    rules = [
        {"if": {"required": ["pipeline"], "properties": {"pipeline": {"const": pipeline}}}, "then": reference}
        for pipeline, reference in references.items()
    ]
    rules.append({"if": {"not": {"required": ["pipeline"]}}, "then": references[DEFAULT_PIPELINE]})

    definitions = _simplify(schema["$defs"])
    return {
        "$schema": SCHEMA_DIALECT,
        "title": "A config of Voxline",
        "type": "object",
        "properties": {"pipeline": {"enum": list(references), "default": DEFAULT_PIPELINE}},
        "allOf": rules,
        "$defs": definitions,
    }


def _simplify(node: Any) -> Any:
    """Without the titles that pydantic derives from names; of kinds, any that fits: `kind` may be left out."""
    if isinstance(node, list):
        return [_simplify(element) for element in node]
    if not isinstance(node, dict):
        return node
    # A property may be called `title` too; its value is then a schema, not a text.
    plain = {key: _simplify(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if "discriminator" in plain:
        del plain["discriminator"]
        plain["anyOf"] = plain.pop("oneOf")
    return plain


def _general(key: str, settings: list[SettingReference]) -> str:
    """The key without indexes and names: `cluster.claims[0].name` is `cluster.claims[].name`."""
    key = re.sub(r"\[\d*\]", "[]", key)
    for mapping in {setting.key.partition(".<name>.")[0] for setting in settings if ".<name>." in setting.key}:
        key = re.sub(rf"^({re.escape(mapping)})\.[^.]+", r"\1.<name>", key)
    return key


def _settings(
    model: type[pydantic.BaseModel], prefix: str, values: Values | None, kind: str
) -> Iterator[SettingReference]:
    """The keys of a model and of the models in it, depth first.

    Args:
      prefix: the key of the model's section, with a dot at its end; empty: the config itself.
      values: the section in a config of defaults, as JSON values; None: the defaults have no such section.
      kind: of the section, if only that kind has the keys.
    """
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        inner = nested_models(field.annotation)

        # A pipeline's defaults may differ from those of the class. What the example config only fills in is required.
        default = None if values is None else get_key(values, field.alias or name)
        if values is None or (field.alias or name) not in values:
            default = REQUIRED if field.is_required() else _plain(field.get_default(call_default_factory=True))
        if not prefix and field.is_required() and not inner:
            default = REQUIRED

        is_list = get_origin(field.annotation) in (list, tuple)
        is_mapping = get_origin(field.annotation) is dict
        yield SettingReference(
            key=key,
            type=_type(field.annotation) if is_list or is_mapping or not inner else "section",
            accepted=_accepted(field.annotation, field.metadata) if not inner else _kinds(inner),
            default=default,
            description=" ".join((field.description or "").split()),
            kind=kind,
            pipelines=(),
            section=bool(inner),
        )

        # Of a section of several kinds, the defaults are of one: the keys of the others have those of their class.
        several = len(inner) > 1
        for section in inner:
            own = section.model_fields["kind"].default if several and "kind" in section.model_fields else ""
            here = isinstance(default, dict) and not is_mapping and (not own or default.get("kind") == own)
            below = f"{key}[]." if is_list else f"{key}.<name>." if is_mapping else f"{key}."
            yield from _settings(section, below, default if here else None, own or kind)


def _plain(value: Any) -> Any:
    return pydantic.TypeAdapter(Any).dump_python(value, mode="json", by_alias=True)


def _kinds(models: list[type[pydantic.BaseModel]]) -> str:
    kinds = [str(model.model_fields["kind"].default) for model in models if "kind" in model.model_fields]
    return f"kind: {' or '.join(kinds)}" if len(kinds) > 1 else ""


def _type(annotation: Any) -> str:
    """A type in words.

    >>> _type(dict[str, float]), _type(tuple[int, int]), _type(float | None)
    ('mapping of text to number', 'list of 2 integers', 'number or null')
    """
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return _type(type(arguments[0]))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(argument) for argument in arguments))

    if origin is dict:
        return f"mapping of {_type(arguments[0])} to {_type(arguments[1])}"
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {len(arguments)} {_type(arguments[0])}s"
    if origin in (list, tuple):
        return f"list of {_plural(_type(arguments[0]))}"

    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return "section"
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _plural(name: str) -> str:
    return name if name.startswith("list") else f"{name}s"


def _accepted(annotation: Any, metadata: list[Any]) -> str:
    """The accepted values of a plain type in words."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is typing.Annotated:
        # An element may be a `pydantic.Field`, which holds constraints of its own.
        metadata = [*arguments[1:], *metadata]
        constraints = [constraint for item in metadata for constraint in getattr(item, "metadata", None) or [item]]
        return _accepted(arguments[0], constraints)
    if origin is Literal:
        return ", ".join(yaml_value(value) for value in arguments)

    # Equal limits of several arguments, as of a pair of numbers, are written once.
    parts = [text for constraint in metadata if (text := _limit(constraint))]
    if origin in (typing.Union, types.UnionType, dict, list, tuple):
        inner = [argument for argument in arguments if argument is not Ellipsis]
        parts += dict.fromkeys(text for argument in inner if (text := _accepted(argument, [])))
    return ", ".join(parts)


def _limit(constraint: Any) -> str:
    """
    >>> _limit(annotated_types.Ge(0)), _limit(annotated_types.Lt(1))
    ('≥ 0', '< 1')
    """
    for kind, sign, name in (
        (annotated_types.Ge, "≥", "ge"), (annotated_types.Gt, ">", "gt"),
        (annotated_types.Le, "≤", "le"), (annotated_types.Lt, "<", "lt"),
    ):  # fmt: skip
        # A bound of 2^31 or more guards against overflow, and means nothing to a person.
        if isinstance(constraint, kind):
            return f"{sign} {getattr(constraint, name):,}" if getattr(constraint, name) < 2**31 else ""

    if isinstance(constraint, annotated_types.MinLen):
        return f"at least {constraint.min_length} of them"
    if isinstance(constraint, annotated_types.MaxLen):
        return f"at most {constraint.max_length} of them"

    # A pattern with a description in words, as `_Matches` of the section `cluster` has it, is described by that alone.
    if words := getattr(constraint, "accepted", ""):
        return str(words)
    pattern = getattr(constraint, "pattern", None)
    return f"matches {pattern}" if pattern else ""
