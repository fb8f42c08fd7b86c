"""Reading a YAML file as a person means it, and laying `--set a.b=c` over it.

YAML's surprises are taken out: a key given twice is refused, `1e-3` is a number, and a date or a
`12:30` stays the text that it was.
"""

import copy
import dataclasses
import os
import re
import reprlib
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from voxline.errors import SettingsError
from voxline.pipelines.config.keys import Values, get_key, merge, set_key

MAX_VALUES = 10_000
"""In a document; a config has some hundreds."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
      SettingsError: naming the file and the line, when it is absent, not YAML, or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file; name a config, such as those in configs/asr/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    document = _parse(text, str(path))
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: holds {reprlib.repr(document)}; a mapping of keys to values is accepted")
    return document


def apply_assignments(document: dict[str, Any], assignments: Iterable[str]) -> tuple[dict[str, Any], set[str]]:
    """The document with `a.b=c` assignments laid over it, and the dotted keys that they set.

    >>> apply_assignments({"train": {"epochs": 5}}, ["train.epochs=3", "name=quick"])[0]
    {'train': {'epochs': 3}, 'name': 'quick'}
    """
    document = copy.deepcopy(document)
    keys = set()
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not all(key.split(".")):
            raise SettingsError(f"--set {assignment}: give it as section.key=value, such as train.epochs=3")
        *sections, last = key.split(".")
        place = document
        for section in sections:
            inner = place.get(section)
            if inner is None:
                inner = place[section] = {}
            if not isinstance(inner, dict):
                raise SettingsError(f"--set {assignment}: {section!r} is {inner!r}, which has no keys under it")
            place = inner
        place[last] = _parse_value(value)
        keys.add(key)
    return document, keys


def dump_yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=100)


def _parse_value(text: str) -> Any:
    """A value on the command line: a YAML scalar, list or `{...}`, and else the text itself (`a: b.wav`, `@x`)."""
    try:
        value = _parse(text, "--set")
    except SettingsError:
        return text
    return text if isinstance(value, dict) and not text.lstrip().startswith("{") else value


def _parse(text: str, source: str) -> Any:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _count_values(root, {})
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or str(error)
        raise SettingsError(f"{where}: not YAML as it is accepted here: {problem}") from None
    except RecursionError:
        raise SettingsError(f"{source}: not YAML as it is accepted here: it is nested too deeply") from None


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Counts the values under a node, aliases written out; a few lines of aliases of aliases can hold billions.

    Raises:
      ConstructorError: there are more than `MAX_VALUES`, or an alias stands inside what it names.
    """
    if id(node) not in known:
        known[id(node)] = MAX_VALUES  # until it is counted: who meets it before that is inside it
        inner = node.value if isinstance(node, yaml.SequenceNode | yaml.MappingNode) else []
        parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
        known[id(node)] = 1 + sum(_count_values(part, known) for part in parts)
    if known[id(node)] > MAX_VALUES:
        problem = f"more than {MAX_VALUES:,} values, aliases (*name) written out"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return known[id(node)]


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, and says what it cannot read where it stands."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError) as error:  # `!!int x`, `!!bool x`, `!!timestamp x`, 5,000 digits
            problem = f"{str(node.value)[:40]!r} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problem = "a key is a word, no list and no mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice, first on line {seen[key]}; keep one", key_node.start_mark
                )
            seen[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 1e-3 as text, 12:30 as 750 and 2026-01-02 as a date: numbers here are those of YAML 1.2.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float", "tag:yaml.org,2002:int")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))$"
        r"|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


@dataclasses.dataclass(frozen=True)
class ConfigLayers:
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
        return str(next((file for file, said in reversed(self.files) if get_key(said, key) is not None), self.named))

    def is_assigned(self, key: str) -> bool:
        """Whether `--set` gave the key, or a section that holds it."""
        return any(key == one or key.startswith(one + ".") for one in self.assigned)


def read_layers(files: Sequence[Path], assignments: Iterable[str], paths: Iterable[str]) -> ConfigLayers:
    """Reads the files, and lays one over the other.

    Args:
      paths: keys that hold a path: relative to the file that gives them, to the current folder in `--set`.

    Raises:
      SettingsError: a file is absent or no YAML, or an assignment is none.
    """
    read = [(file, _absolute(read_yaml(file), file.absolute().parent, paths)) for file in files]
    joined: Values = {}
    for _, said in read:
        joined = merge(joined, said)
    document, assigned = apply_assignments(joined, assignments)
    layers = ConfigLayers(document, read, frozenset(assigned))
    _absolute(document, Path.cwd(), [key for key in paths if layers.is_assigned(key)])
    return layers


def _absolute(document: Values, folder: Path, paths: Iterable[str]) -> Values:
    for key in paths:
        value = get_key(document, key)
        if value is not None:
            set_key(document, key, _absolute_path(value, folder))
    return document


def _absolute_path(value: Any, folder: Path) -> Any:
    """A local path made absolute; a `gs://` address, an empty value and what is no text stay as they are."""
    if not isinstance(value, str) or not value or "://" in value:
        return value
    return os.path.normpath(folder / Path(value).expanduser())
