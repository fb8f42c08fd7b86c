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
_FIRST_POD = "cluster.steps.ingest."
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
        steps = {step.config_section: step.name for step in STEPS.values()}
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
        for one in self.settings:
            where.setdefault(one.default_text, []).append(one.where)
        return {default: ", ".join(dict.fromkeys(names)) for default, names in where.items()}

    @property
    def only(self) -> str:
        """The kinds or pipelines that have the key, if others do not."""
        return "" if self.everywhere else ", ".join(dict.fromkeys(one.where for one in self.settings))

    def lines(self) -> list[str]:
        """What `voxline config explain KEY` prints."""
        one, defaults = self.settings[0], self.defaults
        default = " | ".join(f"{value} ({where})" if len(defaults) > 1 else value for value, where in defaults.items())
        about = {
            "step": one.step,
            "only for": self.only,
            "type": "section" if one.section and not one.type.startswith("list") else one.type,
            "unit": one.unit,
            "accepted": one.accepted,
            "default": "" if one.section and isinstance(one.default, dict) else default,
            "meaning": one.description,
        }
        return [one.key, *(f"  {name:<10} {text}" for name, text in about.items() if text)]


def _group(settings: list[SettingReference], of_section: list[SettingReference]) -> list[_Variants]:
    """
    Args:
      settings: in the order of the config.
      of_section: the sections that hold them.
    """
    pipelines = {name for one in of_section for name in one.pipelines} or set(pipeline_names())
    groups: dict[Any, list[SettingReference]] = {}
    for one in settings:
        groups.setdefault((one.key, one.type, one.accepted, one.description), []).append(one)
    kinds: dict[str, set[str]] = {}
    for one in settings:
        kinds.setdefault(one.key.rpartition(".")[0], set()).add(one.kind)
    return [
        _Variants(
            same,
            {name for one in same for name in one.pipelines} == pipelines
            and {one.kind for one in same} == kinds[key.rpartition(".")[0]],
        )
        for (key, *_), same in groups.items()
    ]


def list_settings(classes: Mapping[str, type[RunConfig]] | None = None) -> list[SettingReference]:
    """Every key of every pipeline's config, in the order of the config; equal ones of several pipelines are one."""
    merged: dict[Any, SettingReference] = {}
    for pipeline, config_class in (classes or config_classes()).items():
        for setting in _settings(config_class, "", config_class.example(), ""):
            default = setting.default if setting.default is REQUIRED else json.dumps(setting.default)
            same = (setting.key, setting.type, setting.accepted, default, setting.description, setting.kind)
            pipelines = (*merged[same].pipelines, pipeline) if same in merged else (pipeline,)
            merged[same] = dataclasses.replace(setting, pipelines=pipelines)
    order = {key: number for number, key in enumerate(dict.fromkeys(one.key for one in merged.values()))}
    return sorted(merged.values(), key=lambda one: order[one.key])


def explain_key(key: str) -> list[str]:
    """The lines about a key, and about those directly below it if it is a section.

    Raises:
      SettingsError: the key does not exist.
    """
    settings = list_settings()
    wanted = _general(key, settings)
    if wanted.endswith(".<name>"):
        wanted = wanted.removesuffix(".<name>")
    found = [setting for setting in settings if setting.key == wanted]
    if not found:
        ends = [one.key for one in settings if one.key.rpartition(".")[2] == wanted.rpartition(".")[2]]
        near = ends or difflib.get_close_matches(wanted, [one.key for one in settings], n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(dict.fromkeys(near[:3]))}?" if near else "`voxline config explain` lists all"
        raise SettingsError(f"no setting is called {key!r}; {hint}")
    parent = [one for one in settings if one.key == wanted.rpartition(".")[0].removesuffix("[]")]
    lines: list[str] = []
    for variants in _group(found, parent):
        lines += ["", *variants.lines()] if lines else variants.lines()
    starts = (f"{wanted}[].", f"{wanted}.<name>.", f"{wanted}.")
    below = [
        (one, next(start for start in starts if one.key.startswith(start)))
        for one in settings
        if one.key.startswith(starts)
    ]
    direct = [one for one, start in below if "." not in one.key.removeprefix(start)]
    return [*lines, "", *summary_table(direct)] if direct else lines


def summary_table(settings: list[SettingReference]) -> list[str]:
    """A line for each key: the key, its default and what it means."""
    rows: dict[str, tuple[str, str]] = {}
    for one in settings:
        default = "…" if one.section and isinstance(one.default, dict) else one.default_text
        rows.setdefault(one.key, (default if len(default) <= 24 else "…", one.description))
    width = max((len(key) for key in rows), default=0)
    return [f"{key:<{width}}  {default:<24}  {text}" for key, (default, text) in rows.items()]


def yaml_value(value: Any) -> str:
    """A JSON value as it is written in a config, on one line.

    >>> yaml_value("off"), yaml_value([1, 2.5]), yaml_value(None), yaml_value("")
    ("'off'", '[1, 2.5]', 'null', "''")
    """
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def markdown_reference() -> str:
    """docs/config.md."""
    settings = list_settings()
    sections: dict[str, list[SettingReference]] = {}
    for setting in settings:
        if setting.key.startswith("cluster.steps.") and not setting.key.startswith("cluster.steps.ingest."):
            continue  # the eight sections are alike
        if setting.key.startswith("corpus.corpora.<name>.") and setting.key.partition(".<name>.")[2] not in _OF_CORPORA:
            continue  # as in the section corpus
        setting = dataclasses.replace(
            setting, key=setting.key.replace("cluster.steps.ingest.", "cluster.steps.<step>.")
        )
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
    return [name for name in pipeline_names() if any(name in one.pipelines for one in settings)]


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
    one, defaults = variants.settings[0], variants.defaults
    description = one.description + (f" ({variants.only})" if variants.only else "")
    values = [
        ("required" if one.default is REQUIRED else f"`{value}`") + (f" ({where})" if len(defaults) > 1 else "")
        for value, where in defaults.items()
    ]
    limits = re.sub(r"^matches (.+)$", r"; matches `\1`", one.accepted)
    limits = limits if limits.startswith(";") or not limits else f"; {limits}"
    cells = [f"`{one.key.rpartition('.')[2]}`", one.type + limits, ", ".join(values), description]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def json_schema() -> dict[str, Any]:
    """A JSON schema of a config file of any pipeline."""
    classes = list(config_classes().items())
    names, schema = models_json_schema([(model, "validation") for _, model in classes])
    references = {pipeline: names[model, "validation"] for pipeline, model in classes}
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
        return [_simplify(one) for one in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _simplify(one) for key, one in node.items() if not (key == "title" and isinstance(one, str))}
    if "discriminator" in plain:
        del plain["discriminator"]
        plain["anyOf"] = plain.pop("oneOf")
    return plain


def _general(key: str, settings: list[SettingReference]) -> str:
    """The key without indexes and names: `cluster.claims[0].name` is `cluster.claims[].name`."""
    key = re.sub(r"\[\d*\]", "[]", key)
    for mapping in {one.key.partition(".<name>.")[0] for one in settings if ".<name>." in one.key}:
        key = re.sub(rf"^({re.escape(mapping)})\.[^.]+", r"\1.<name>", key)
    return key


def _settings(
    model: type[pydantic.BaseModel], prefix: str, values: Values | None, kind: str
) -> Iterator[SettingReference]:
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        inner = nested_models(field.annotation)
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
        several = len(inner) > 1
        for one in inner:
            own = one.model_fields["kind"].default if several and "kind" in one.model_fields else ""
            here = isinstance(default, dict) and not is_mapping and (not own or default.get("kind") == own)
            below = f"{key}[]." if is_list else f"{key}.<name>." if is_mapping else f"{key}."
            yield from _settings(one, below, default if here else None, own or kind)


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
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return _type(type(arguments[0]))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(one) for one in arguments))
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
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        metadata = [*arguments[1:], *metadata]
        return _accepted(arguments[0], [one for item in metadata for one in getattr(item, "metadata", None) or [item]])
    if origin is Literal:
        return ", ".join(yaml_value(one) for one in arguments)
    parts = [text for one in metadata if (text := _limit(one))]
    if origin in (typing.Union, types.UnionType, dict, list, tuple):
        parts += dict.fromkeys(text for one in arguments if one is not Ellipsis if (text := _accepted(one, [])))
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
        if isinstance(constraint, kind):
            return f"{sign} {getattr(constraint, name):,}" if getattr(constraint, name) < 2**31 else ""
    if isinstance(constraint, annotated_types.MinLen):
        return f"at least {constraint.min_length} of them"
    if isinstance(constraint, annotated_types.MaxLen):
        return f"at most {constraint.max_length} of them"
    if words := getattr(constraint, "accepted", ""):
        return str(words)
    pattern = getattr(constraint, "pattern", None)
    return f"matches {pattern}" if pattern else ""
