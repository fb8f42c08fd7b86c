"""JSON files of a type, with a `format` number: `model.json`, `metrics.json`.

The number is raised when a file of before would be misread. A file of another number, without one, without a key of its
type, or with a value of another type is refused, and the message says what to do. So is one with an unknown key, unless
its type accepts them (`forbid_unknown_fields=False`), as that of `metrics.json` does.
"""

import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

import voxline
from voxline.errors import WorkError

FORMAT, VERSION = "format", "voxline"
"""The keys of the number, and of the version of Voxline that wrote the file."""


class VersionedFile(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The contents of such a file, without the two keys above.

    Attributes:
      FORMAT: the number that this version of Voxline writes and reads.
      REMEDY: what to do about a file that cannot be read, as the end of a message.
    """

    FORMAT: ClassVar[int] = 1
    REMEDY: ClassVar[str] = "write it again"

    def to_dict(self) -> dict[str, Any]:
        """The JSON values of the file."""
        return {**format_keys(self.FORMAT), **to_json_values(self)}


class FilePart(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A mapping within such a file."""


def to_json_values(part: msgspec.Struct) -> dict[str, Any]:
    """The JSON values of a file or of a part of one; NumPy's numbers become Python's.

    Raises:
      WorkError: a value, such as an array, is no JSON value; naming its key.
    """
    try:
        values: dict[str, Any] = msgspec.to_builtins(part, enc_hook=_plain_number)
    except TypeError as error:
        raise WorkError(f"{_key_without_json(part, type(part).__name__)}: {error}") from None
    return values


def _key_without_json(value: Any, key: str) -> str:
    """The dotted key of the first value, at or below a key, that is no JSON value."""
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, msgspec.Struct):
        children = msgspec.structs.asdict(value).items()
    elif isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple):
        children = enumerate(value)

    for name, child in children:
        try:
            msgspec.to_builtins(child, enc_hook=_plain_number)
        except TypeError:
            return _key_without_json(child, f"{key}.{name}")
    return key


FileT = TypeVar("FileT", bound=VersionedFile)
PartT = TypeVar("PartT", bound=FilePart)
_STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
"""A step of a path in msgspec's messages, such as `$.metrics[...].value`; the dots are a key of a mapping."""


def parse_versioned(values: Any, kind: type[FileT], where: object) -> FileT:
    """The contents of a file, from its JSON values.

    Args:
      where: the file, for messages.

    Raises:
      WorkError: it has another format, lacks a key, or has an unknown one that its type refuses; naming it.
    """
    check_format(values, kind.FORMAT, where, kind.REMEDY)

    # The two keys of every file are no part of its type.
    own = {name: value for name, value in values.items() if name not in (FORMAT, VERSION)}
    try:
        return msgspec.convert(own, kind)
    except msgspec.ValidationError as error:
        writer = values.get(VERSION, voxline.__version__)
        cause = "it is damaged" if writer == voxline.__version__ else f"Voxline {writer} wrote it"
        raise WorkError(f"{where}: {_describe_fault(own, kind, str(error))}; {cause}: {kind.REMEDY}") from None


def parse_part(values: Any, kind: type[PartT], where: object, remedy: str) -> PartT:
    """A part of a file, from its JSON values.

    Args:
      where: the file and the key, for messages.

    Raises:
      WorkError: a key is absent or has a value of another type; naming it.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise WorkError(f"{where}: {_describe_fault(values, kind, str(error))}; {remedy}") from None


def _describe_fault(values: Any, kind: type[msgspec.Struct], message: str) -> str:
    """A message of msgspec with the keys of mappings in its path, where it has `[...]`."""
    fault, is_path, path = message.partition(" - at `$")
    if not is_path:
        return message

    keys: list[str | int] = []
    named = "$"
    for step in _STEP.finditer(path):
        if step["field"]:
            keys.append(step["field"])
            named += step[0]
        elif step["index"]:
            keys.append(int(step["index"]))
            named += step[0]
        else:
            # Each entry of the mapping alone, until one has the same fault.
            entries = _value_at(values, keys)
            lone = (_replace_at(values, keys, {key: value}) for key, value in entries.items())
            values = next((alone for alone in lone if _fault_of(alone, kind) == message), None)
            if values is None:
                return message
            keys.extend(_value_at(values, keys))
            named += f'["{keys[-1]}"]'
    return f"{fault} - at `{named}`"


def _fault_of(values: Any, kind: type[msgspec.Struct]) -> str:
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _value_at(values: Any, keys: Sequence[str | int]) -> Any:
    for key in keys:
        values = values[key]
    return values


def _replace_at(values: Any, keys: Sequence[str | int], value: Any) -> Any:
    """A copy of the values with another one at a path."""
    if not keys:
        return value
    replaced = values.copy()
    replaced[keys[0]] = _replace_at(values[keys[0]], keys[1:], value)
    return replaced


def check_format(values: Any, accepted: int, where: object, remedy: str) -> None:
    """Refuses the JSON values of a file of another format.

    Raises:
      WorkError: naming the version of Voxline that wrote it, and so reads it.
    """
    number = values.get(FORMAT) if isinstance(values, dict) else None
    if number is None:
        raise WorkError(
            f"{where}: no format number, so no file of this Voxline ({voxline.__version__}, format {accepted}); "
            f"{remedy}"
        )
    # To Python True and 1.0 are 1.
    if type(number) is not int:
        raise WorkError(f"{where}: format {number!r} is not a whole number, so the file is damaged; {remedy}")
    if number != accepted:
        writer = values.get(VERSION, "another version")
        raise WorkError(
            f"{where}: format {number!r}, which Voxline {writer} wrote; Voxline {voxline.__version__} reads format "
            f"{accepted}; install Voxline {writer}, or {remedy}"
        )


def format_keys(number: int) -> dict[str, Any]:
    """The first two keys of a file: its format, and this version of Voxline."""
    return {FORMAT: number, VERSION: voxline.__version__}


def _plain_number(value: Any) -> Any:
    """A NumPy number as Python's, which `json` would take it for."""
    # NumPy registers its types of numbers with these two.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} {value!r} is no JSON value; make it a number, a text, a list or a mapping")
