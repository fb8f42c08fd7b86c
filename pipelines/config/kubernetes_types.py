"""How Kubernetes and container registries spell things, as types: what does not fit is refused in words."""

import re
from typing import Annotated, Any

import pydantic


def _matches(pattern: str, accepted: str) -> pydantic.AfterValidator:
    """Accepts a text of that form. A person reads no pattern, so it is told in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"accepted: {accepted}")
        return text

    return pydantic.AfterValidator(check)


def _number_as_text(value: Any) -> Any:
    """`cpu: 4` in YAML is a number, and means the text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _refuse_number(value: Any) -> Any:
    """YAML reads 1.10 as 1.1, and 0123 as 83: what names something must not be guessed from a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        told = "a number in YAML, which may have lost digits; put it in quotes"
        raise ValueError(told)  # noqa: TRY004 - what pydantic tells on
    return value


_AS_TEXT = pydantic.BeforeValidator(_number_as_text)
_IN_QUOTES = pydantic.BeforeValidator(_refuse_number)
_NAME, _TOLD_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "a Kubernetes name: small letters, digits, - and ."
_KEY, _TOLD_KEY = (
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    "a word, or domain/word, such as team or nvidia.com/gpu",
)
_CPU, _TOLD_CPU = r"[0-9]+(\.[0-9]+)?|[0-9]+m", "cores, such as 2, 0.5 or 500m"
_BYTES, _TOLD_BYTES = r"[1-9][0-9]*(K|M|G|T|P|Ki|Mi|Gi|Ti|Pi)", "a number and a unit, such as 500Mi or 16Gi"
_FOLDER, _TOLD_FOLDER = r"/[^:]*[^:/]", "a folder from the root on, such as /mnt/store"

ObjectName = Annotated[str, _matches(_NAME, _TOLD_NAME)]
OptionalName = Annotated[str, _matches(f"({_NAME})?", _TOLD_NAME)]
LabelKey = Annotated[str, _matches(_KEY, _TOLD_KEY)]
OptionalKey = Annotated[str, _matches(f"({_KEY})?", _TOLD_KEY)]
LabelValue = Annotated[
    str,
    _IN_QUOTES,
    _matches(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", "63 letters, digits, -, _ and . at most"),
]
VariableName = Annotated[str, _matches(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, such as LOG_LEVEL")]
AbsolutePath = Annotated[str, _matches(_FOLDER, _TOLD_FOLDER)]
OptionalPath = Annotated[str, _matches(f"({_FOLDER})?", _TOLD_FOLDER)]
SubPath = Annotated[str, _matches(r"([^/.][^/]*(/[^/.][^/]*)*)?", "a folder in the volume, without / before it and ..")]
CpuQuantity = Annotated[str, _AS_TEXT, _matches(_CPU, _TOLD_CPU)]
OptionalCpuQuantity = Annotated[str, _AS_TEXT, _matches(f"({_CPU})?", _TOLD_CPU)]
MemoryQuantity = Annotated[str, _matches(_BYTES, _TOLD_BYTES)]
OptionalMemoryQuantity = Annotated[str, _matches(f"({_BYTES})?", _TOLD_BYTES)]
Topology = Annotated[str, _matches(r"([0-9]+x[0-9]+(x[0-9]+)?)?", "chips by chips, such as 2x2 or 2x2x1")]
RegistryPath = Annotated[
    str,
    _matches(
        r"([a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*/?)?",
        "a host and a path without https://, such as europe-docker.pkg.dev/team/voxline",
    ),
]
ImageTag = Annotated[
    str, _IN_QUOTES, _matches(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?", "128 letters, digits, -, _ and . at most")
]
ImageDigest = Annotated[str, _matches(r"sha256:[0-9a-f]{64}", "sha256: and 64 digits, as `docker push` prints it")]
_UNITS = {"": 1.0, "m": 1e-3, **{unit: 1000.0**power for power, unit in enumerate("KMGTP", start=1)}}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", start=1)}


def parse_quantity(quantity: str) -> float:
    """Cores or bytes.

    >>> parse_quantity("500m"), parse_quantity("16Gi") / 2**30
    (0.5, 16.0)
    """
    number = quantity.rstrip("KMGTPim")
    return float(number) * _UNITS[quantity.removeprefix(number)]
