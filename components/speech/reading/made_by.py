"""What a reading is made by besides its settings: rules and dictionaries, which change with their versions.

Nothing heavy is imported: a step names its work with it before it knows whether there is any.
"""

from importlib.metadata import version

from components.speech.reading.settings import Kind, ReadingSettings

REVISION = 1
"""Raised whenever our own rules read a text otherwise than before."""

_LIBRARIES: dict[Kind, tuple[str, ...]] = {
    "english": ("inflect",),
    "english_phonemes": ("inflect", "espeakng-loader"),
    "mandarin": ("pypinyin",),
    "pinyin": ("pypinyin",),
}


def made_by(settings: ReadingSettings) -> dict[str, int | str]:
    """The versions that decide how a text is read; empty where it is only put into its normal form.

    >>> made_by(ReadingSettings())
    {}
    >>> sorted(made_by(ReadingSettings(kind="mandarin")))
    ['pypinyin', 'revision']
    """
    libraries = _LIBRARIES.get(settings.kind, ())
    return {"revision": REVISION, **{name: version(name) for name in libraries}} if libraries else {}
