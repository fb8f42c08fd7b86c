"""The registry of corpus formats: the entry points of the group `voxline.corpora`.

A format is a function

    def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]

that yields every utterance that the corpus names, in a fixed order (`fsdd.py` is the shortest example). Any installed
package may register one under a name, and `corpus.format: <name>` then reads it; docs/extend/corpus-format.md walks
through it. Our own are the modules of this folder, registered in pyproject.toml in the same way.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError
from voxline.plugins import entry_points_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "voxline.corpora"

BUILT_IN = (
    *("librispeech", "ljspeech", "thchs30", "fsdd", "manifest", "csv", "kaldi"),
    *("common_voice", "lhotse", "huggingface", "webdataset", "nemo_tarred", "text_files"),
)
"""Our own. The help lists these without a search through all installed packages, which takes a tenth of a second."""


def format_names() -> list[str]:
    """The formats that are installed: ours, then others."""
    return [*BUILT_IN, *sorted({point.name for point in entry_points_of(GROUP)} - {*BUILT_IN})]


def load_format(name: str) -> Callable[..., Any]:
    """The reader of a format, a `FormatReader`.

    Raises:
      SettingsError: no package registers the name, several do, or the package cannot be imported.
    """
    points = [point for point in entry_points_of(GROUP) if point.name == name]
    if not points and name in BUILT_IN:  # an installation that is older than its source
        ours: Callable[..., Any] = importlib.import_module(f"{__name__}.{name}").entries
        return ours
    if not points:
        raise SettingsError(
            f"corpus.format is {name!r}, which no installed package registers; accepted: {', '.join(format_names())}"
        )
    if len(points) > 1:
        raise SettingsError(
            f"corpus.format is {name!r}, which {len(points)} packages register: "
            f"{', '.join(map(_describe, points))}; uninstall all but one of them, or have one choose another name"
        )

    try:
        reader: Callable[..., Any] = points[0].load()
    except Exception as error:  # another package's code may raise anything
        fault = f"{type(error).__name__}: {error}"
        raise SettingsError(
            f"corpus.format is {name!r}, and {_describe(points[0])} cannot be imported: {fault}; "
            "repair or uninstall that package"
        ) from error

    if not callable(reader):
        raise SettingsError(
            f"corpus.format is {name!r}, and {_describe(points[0])} is no function; a function that takes a Corpus and "
            'yields its entries is accepted, as in: psv = "my_corpora:entries"'
        )
    return reader


def _describe(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}: " if point.dist else ""
    return f"{package}{point.value}"
