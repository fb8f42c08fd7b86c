"""Reads the config of a run: YAML files in layers, `--set a.b=c` on top, typed and strict.

A value is given once. A value that several steps need (the sample rate, the alphabet, the model's name) is copied
here; a config that sets it twice and differently is refused with both keys.
"""

import copy
import dataclasses
import difflib
import os
import re
import reprlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
import yaml

from voxline.errors import SettingsError
from voxline.pipelines.config.keys import Values, get_key, is_key_set, list_keys, set_key
from voxline.pipelines.config.locations import is_http_corpus, path_keys
from voxline.pipelines.config.pipeline_configs import config_class_of
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import DEFAULT_PIPELINE, is_pipeline, pipeline_names
from voxline.settings import dotted_key, format_validation_errors, merge
from voxline.store.size_limits import SizeLimitError, read_bounded
from voxline.store.uris import is_remote

REFRESH = "refresh"
MAX_BYTES = 1_000_000
"""Of one document; a config has some thousands."""
MAX_VALUES = 10_000
"""Of one document; a config has some hundreds."""
MAX_DEPTH = 100
"""Of lists and mappings in each other; a config has five."""

_LINE_ENDS = (0x0A, 0x0D, 0x85, 0x2028, 0x2029)
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_UNWRITABLE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_NONCHARACTERS}]")
"""Characters that YAML, or a pod's arguments, change or refuse: control characters, ends of lines, halves, and the code
points that Unicode has set aside from all text."""

Source = Path | str | Mapping[str, Any]
"""A layer of a config: a YAML file, YAML text, or a mapping."""


@dataclasses.dataclass(frozen=True)
class ConfigLayers:
    """Layers of a config, merged.

    Attributes:
      document: the result; later layers win. Mappings are merged key by key; a list replaces a list.
      layers: each layer's name and content.
      assigned: dotted keys that `--set` gave.
    """

    document: Values
    layers: Sequence[tuple[str, Values]]
    assigned: frozenset[str]

    @property
    def name(self) -> str:
        """The layers as a message names them."""
        return " + ".join(name for name, _ in self.layers)

    def source(self, key: str) -> str:
        """The source of a key's value: `--set` and the key, or the last layer that has it."""
        if self.is_assigned(key):
            return f"--set {key}"
        return next((name for name, values in reversed(self.layers) if get_key(values, key) is not None), self.name)

    def is_assigned(self, key: str) -> bool:
        """True if `--set` gave the key, or a section that holds it."""
        return any(key == assigned or key.startswith(f"{assigned}.") for assigned in self.assigned)


def load_config(
    sources: Source | Sequence[Source], assignments: Iterable[str] = (), *, pipeline: str | None = None
) -> RunConfig:
    """Reads a config, and applies `a.b=c` assignments to it.

    Args:
      sources: one layer, or several of which later ones win.
      pipeline: the pipeline that the config must be for; None accepts any.

    Raises:
      SettingsError: a line for each fault, with its source, key, value and what is accepted.
    """
    source_list = [sources] if isinstance(sources, Path | str | Mapping) else sources
    return resolve_layers(read_layers(source_list, assignments), pipeline)


def resolve_layers(layers: ConfigLayers, pipeline: str | None = None) -> RunConfig:
    """The config that layers make, with every default and every derived value.

    Raises:
      SettingsError: as for `load_config`.
    """
    # Validated twice: derived values follow from a valid config, and must themselves be valid.
    config_class = _config_class(layers, pipeline)
    document = merge(config_class.defaults(layers.document), layers.document)
    _state_feature_rate(document)
    config = _validate(config_class, document, layers)
    config = _fill_in_derived(config, layers)
    # A version contradicts what a person gave, and replaces what nobody did.
    if config.corpus.dataset:
        config._given = frozenset(key for key, _ in iter_values(layers.document))
    return config


def _state_feature_rate(document: Values) -> None:
    """Gives features the rate that convert writes, by which their windows and edges are checked."""
    rate = get_key(document, "convert.sample_rate")
    features = get_key(document, "extract.features")
    # Another rate is refused where it was written. The layers keep what was written.
    if isinstance(rate, int) and 4_000 <= rate <= 96_000 and isinstance(features, dict):
        document["extract"] = {**document["extract"], "features": {"sample_rate": rate, **features}}


def read_layers(sources: Sequence[Source], assignments: Iterable[str]) -> ConfigLayers:
    """Reads layers and merges them.

    Raises:
      SettingsError: a file is absent or not YAML, or an assignment is malformed.
    """
    layers = [_read_layer(source) for source in sources]
    merged: Values = {}
    for _, values in layers:
        merged = merge(merged, values)

    # Paths of files are absolute already, each relative to its own file. What `--set` gave is relative to the shell's
    # folder.
    document, assigned = apply_assignments(merged, assignments)
    result = ConfigLayers(document, layers, frozenset(assigned))
    document.update(_check_section(result, document))
    _resolve_paths(document, Path.cwd(), result.is_assigned)

    # A refresh that starts a training is that pipeline, with a publication before it.
    then = get_key(document, "publish.then")
    if document.get("pipeline") == REFRESH and isinstance(then, str) and then:
        if then not in (names := [name for name in pipeline_names() if name != REFRESH]):
            source = result.source("publish.then")
            raise SettingsError(f"{source}: 'publish.then' is {then!r}; accepted: {', '.join(names)}")
        document["pipeline"] = then
    return result


def _read_layer(source: Source) -> tuple[str, Values]:
    if isinstance(source, Mapping):
        return "config", _resolve_paths(copy.deepcopy(dict(source)), Path.cwd())
    # A text of several lines, or with `key: value`, is YAML; any other is the name of a file.
    if isinstance(source, str) and ("\n" in source or ": " in source):
        return "config", _resolve_paths(_mapping(_parse(source, "config"), "config"), Path.cwd())
    file = Path(source)
    return str(file), _resolve_paths(read_yaml(file), file.absolute().parent)


def _check_section(layers: ConfigLayers, section: Values, prefix: str = "") -> Values:
    """The section with all its texts checked. Names stay as they are: those of labels and files have dots."""
    return {
        _check_characters(layers.source(f"{prefix}{name}"), f"{prefix}{name}", name): _check_section(
            layers, value, f"{prefix}{name}."
        )
        if isinstance(value, dict)
        else _check_characters(layers.source(f"{prefix}{name}"), f"{prefix}{name}", value)
        for name, value in section.items()
    }


def _check_characters(source: str, key: str, value: Any) -> Any:
    """The value, with the halves of characters joined that JSON writes as two, such as `"\\ud83d\\ude00"`.

    Raises:
      SettingsError: a text has what a file cannot hold, or a compiled pipeline does not bring back: half of a
        character, a control character, or a line feed, such as that of YAML's `key: |`.
    """
    if isinstance(value, list):
        return [_check_characters(source, f"{key}[{place}]", item) for place, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: _check_characters(source, f"{key}.{name}", item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    text = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if character := _UNWRITABLE.search(text):
        code = ord(character[0])
        hint = "; write the value in quotes, on one line" if code in _LINE_ENDS else ""
        raise SettingsError(f"{source}: {key!r} has the character U+{code:04X}, which no setting may have{hint}")
    return text


def _resolve_paths(document: Values, folder: Path, only: Callable[[str], bool] = lambda key: True) -> Values:
    """Makes local paths absolute; a URI, an empty value and a value that is no path stay as they are.

    Raises:
      SettingsError: a URI has a scheme that is not supported, or one / after it.
    """
    for key in filter(only, path_keys(document)):
        value = get_key(document, key)
        if isinstance(value, list):
            set_key(document, key, [_resolve_path(key, path, folder) for path in value])
        elif value:
            set_key(document, key, _resolve_path(key, value, folder))
    return document


def _resolve_path(key: str, value: Any, folder: Path) -> Any:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    # A value of another type is left to the validation, which names the key and what is accepted.
    if not isinstance(value, str) or not value or is_http_corpus(key, value):
        return value
    try:
        remote = is_remote(value)
    except SettingsError as error:
        raise SettingsError(f"{key}: {error}") from None
    return value if remote else os.path.normpath(folder / Path(value).expanduser())


def _config_class(layers: ConfigLayers, expected: str | None) -> type[RunConfig]:
    """The class for the config's key `pipeline`."""
    name = layers.document.get("pipeline", DEFAULT_PIPELINE)
    source = layers.source("pipeline")
    if not is_pipeline(name):
        names = ", ".join(map(repr, pipeline_names()))
        raise SettingsError(f"{source}: 'pipeline' is {name!r}; accepted: {names}")
    # `voxline run refresh` takes a config that a training follows, too.
    starts_training = expected == REFRESH and get_key(layers.document, "publish.then") == name
    if expected is not None and name != expected and not starts_training:
        raise SettingsError(
            f"{source}: 'pipeline' is {name!r}, but the command names {expected!r}; "
            f"write {name} in place of {expected}, or give a config with `pipeline: {expected}`"
        )
    return config_class_of(name)


def _validate(config_class: type[RunConfig], document: Values, layers: ConfigLayers) -> RunConfig:
    try:
        return config_class.model_validate(document)
    except pydantic.ValidationError as error:
        lines = []
        messages = format_validation_errors(config_class, error, "")
        # pydantic knows the key of each fault, and only the layers know where it was written.
        for fault, message in zip(error.errors(include_url=False), messages, strict=True):
            key = dotted_key(config_class, fault["loc"])
            if fault["type"] == "extra_forbidden" and "did you mean" not in message:
                message = _suggest_other_section(config_class, key, message)
            lines.append(layers.source(key) + message)
        raise SettingsError("\n".join(lines)) from None


def _suggest_other_section(config_class: type[RunConfig], key: str, message: str) -> str:
    """Suggests a key of another section: `epochs` at the top is probably `train.epochs`."""
    keys = list(list_keys(config_class))
    if key in keys:  # of a section whose keys depend on its kind
        return message.replace("; ", f"; another kind of {key.rpartition('.')[0]} has it; ", 1)
    by_last_part = {name.rpartition(".")[2]: name for name in keys}
    near = difflib.get_close_matches(key.rpartition(".")[2], by_last_part, n=1, cutoff=0.8)
    return f"{message.split(';')[0]}; did you mean {by_last_part[near[0]]!r}?" if near else message


def value_origins(config: RunConfig, layers: ConfigLayers) -> dict[str, str]:
    """The source of each plain value of a config: dotted key → "FILE:LINE", "--set", "default" or "from KEY".

    Args:
      config: `resolve_layers(layers)`.
    """
    own_defaults = type(config).defaults(layers.document)
    derived = config.derived_values()
    lines = {name: _key_lines(Path(name)) for name, _ in layers.layers if Path(name).is_file()}

    # In the order in which a value wins: --set, the last layer, what follows from another key, defaults.
    def origin(key: str) -> str:
        if layers.is_assigned(key):
            return "--set"
        for name, values in reversed(layers.layers):
            if get_key(values, key) is not None:
                line = lines.get(name, {}).get(key)
                return f"{name}:{line}" if line else name

        # A derived section, such as `frontend`, is the source of every key below it.
        source = next((f"from {by}" for whole, (_, by) in derived.items() if f"{key}.".startswith(f"{whole}.")), "")
        return source or ("default" if get_key(own_defaults, key) is None else f"default of {config.pipeline}")

    return {key: origin(key) for key, _ in iter_values(config.plain())}


def iter_values(values: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values below sections by their dotted keys; an empty mapping and a list are values.

    >>> list(iter_values({"train": {"epochs": 3, "model": {}}}))
    [('train.epochs', 3), ('train.model', {})]
    """
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from iter_values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _key_lines(path: Path) -> dict[str, int]:
    """Dotted key → the line that sets it, counted from 1."""
    line_of: dict[str, int] = {}

    # The tree of nodes has the marks; constructed values have lost them.
    def visit(node: yaml.Node | None, prefix: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                line_of[prefix + str(key.value)] = key.start_mark.line + 1
                visit(value, f"{prefix}{key.value}.")

    visit(_Loader(read_bounded(path, MAX_BYTES).decode("utf-8")).get_single_node(), "")
    return line_of


def _fill_in_derived(config: RunConfig, layers: ConfigLayers) -> RunConfig:
    """Sets the keys that follow from others."""
    values = config.plain()
    for key, (value, origin) in config.derived_values().items():
        # The same value twice is no contradiction: a recorded config has every key.
        set_value = get_key(values, key) if is_key_set(config, key) else None
        # A computed key is that of the settings which are here now, whatever was recorded.
        if set_value not in (None, value) and key not in config.computed_keys:
            raise SettingsError(
                f"{layers.source(key)}: {key!r} is {set_value!r}, but {origin!r} makes it {value!r}; "
                f"leave {key!r} out, and it follows"
            )
        set_key(values, key, value)
    return _validate(type(config), values, layers)


def apply_assignments(document: Values, assignments: Iterable[str]) -> tuple[Values, set[str]]:
    """A copy of the document with `a.b=c` assignments applied, and the dotted keys that they set.

    >>> apply_assignments({"train": {"epochs": 5}}, ["train.epochs=3", "name=quick"])[0]
    {'train': {'epochs': 3}, 'name': 'quick'}
    """
    document = copy.deepcopy(document)
    keys = set()
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not all(key.split(".")):
            raise SettingsError(f"--set {assignment}: write it as section.key=value, such as train.epochs=3")

        *sections, last = key.split(".")
        values = document
        for section in sections:
            inner = values.get(section)
            if inner is None:  # absent, or `train:` with nothing below it
                inner = values[section] = {}
            if not isinstance(inner, dict):
                raise SettingsError(f"--set {assignment}: {section!r} is {inner!r}, which has no keys under it")
            values = inner

        values[last] = _parse_value(value)
        keys.add(key)
    return document, keys


def _parse_value(text: str) -> Any:
    """A value on the command line: a YAML scalar, list or `{...}`, and else the text itself (`a: b.wav`, `@x`)."""
    try:
        value = _parse(text, "--set")
    except SettingsError:
        return text
    return text if isinstance(value, dict) and not text.lstrip().startswith("{") else value


def read_yaml(path: Path) -> Values:
    """The mapping in a YAML file.

    Raises:
      SettingsError: the file is absent, not YAML, or not a mapping; names the file and the line.
    """
    try:
        text = read_bounded(path, MAX_BYTES).decode("utf-8")
    except SizeLimitError as error:
        raise SettingsError(str(error)) from None
    except FileNotFoundError:
        raise SettingsError(
            f"{path}: no such file; `voxline config init` writes a config, `voxline config examples` lists ours"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as UTF-8 text: {error}") from None

    return _mapping(_parse(text, str(path)), str(path))


def _mapping(document: Any, source: str) -> Values:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{source}: holds {reprlib.repr(document)}; a mapping of keys to values is accepted")
    return document


def _parse(text: str, source: str) -> Any:
    if len(text) > MAX_BYTES:
        raise SettingsError(f"{source}: {len(text):,} characters of YAML; at most {MAX_BYTES:,} are accepted")

    # Counted as nodes, before anything is constructed: only then do aliases take memory.
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _count_values(root, {})
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or str(error)
        raise SettingsError(f"{line}: cannot be read as YAML: {problem}") from None
    except RecursionError:
        raise SettingsError(f"{source}: cannot be read as YAML: it is nested too deeply") from None


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Counts the values under a node with aliases expanded; a few lines of nested aliases can expand to billions.

    Raises:
      ConstructorError: there are more than `MAX_VALUES`, or an alias is inside the node that it names.
    """
    if id(node) not in counts:
        counts[id(node)] = MAX_VALUES  # until it is counted: an alias that gets here is inside its own anchor
        inner = node.value if isinstance(node, yaml.SequenceNode | yaml.MappingNode) else []
        parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
        counts[id(node)] = 1 + sum(_count_values(part, counts) for part in parts)
    if counts[id(node)] > MAX_VALUES:
        problem = f"more than {MAX_VALUES:,} values with aliases (*name) expanded"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return counts[id(node)]


class _Loader(yaml.SafeLoader):
    """Reads plain values as YAML 1.2 does, refuses a key that is given twice, and reports faults with their line.

    It stops at the first value beyond `MAX_VALUES` or `MAX_DEPTH`: composing all of them first takes minutes.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._values += 1
        if self._values > MAX_VALUES:
            raise yaml.constructor.ConstructorError(None, None, f"more than {MAX_VALUES:,} values", mark)
        if self._depth >= MAX_DEPTH:
            problem = f"nested too deeply, more than {MAX_DEPTH} lists and mappings in each other"
            raise yaml.constructor.ConstructorError(None, None, problem, mark)

        # PyYAML composes recursively, through this method, so the depth is that of the calls.
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError) as error:  # `!!int x`, `!!bool x`, `!!timestamp x`, 5,000 digits
            problem = f"{str(node.value)[:40]!r} is not of type {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        # YAML forbids a key twice, and PyYAML takes the last one in silence.
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problem = "a key must be a word, not a list or a mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            key = self.construct_object(key_node, deep=True)
            if key in lines:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice, first on line {lines[key]}; keep one", key_node.start_mark
                )
            lines[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


# PyYAML reads YAML 1.1: `no` is False, 1e-3 a text, 12:30 is 750 and 2026-01-02 a date. These are the types of YAML
# 1.2, without its octal numbers: 007 stays a text. Why not ruamel.yaml: docs/decisions/0040.
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in [
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))"
        r"|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("merge", "<<", "<"),
]:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))
