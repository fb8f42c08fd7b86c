"""Licences of recordings and transcripts: their names, and the count of them in a dataset.

A line of a manifest, and a row of a dataset, may state one under the key `licence`, or `license` as other tools spell
it. Ingest writes `corpus.licence` into the lines that state none. No line without it has a further key.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from voxline.errors import WorkError

if TYPE_CHECKING:
    from voxline.data.rows import DatasetRow

LICENCE = "licence"
NOT_STATED = "not stated"
KEYS = (LICENCE, "license")
LANGUAGE_TEXTS = "the texts of its language model"
"""A source of licences, beside a model's data and its ancestors."""
TRAINED_SPLITS = ("train", "dev")
"""Splits behind the weights: dev chooses among them."""
MAX_CHARACTERS = 100

# Of https://spdx.org/licenses, those under which recordings, texts and weights are published.
SPDX = (
    *(f"CC-{terms}-{version}" for terms in ("BY", "BY-SA", "BY-NC", "BY-ND", "BY-NC-SA", "BY-NC-ND")
      for version in ("1.0", "2.0", "2.5", "3.0", "4.0")),
    *("CC0-1.0", "CC-PDDC", "PDDL-1.0", "ODbL-1.0", "ODC-By-1.0", "CDLA-Permissive-1.0", "CDLA-Permissive-2.0"),
    *("CDLA-Sharing-1.0", "C-UDA-1.0", "O-UDA-1.0", "GFDL-1.3-only", "GFDL-1.3-or-later", "OGL-UK-3.0"),
    *("Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "BSL-1.0", "Unlicense", "WTFPL"),
    *("GPL-2.0-only", "GPL-2.0-or-later", "GPL-3.0-only", "GPL-3.0-or-later", "LGPL-2.1-only", "LGPL-2.1-or-later"),
    *("LGPL-3.0-only", "LGPL-3.0-or-later", "AGPL-3.0-only", "AGPL-3.0-or-later", "MPL-2.0", "EPL-2.0", "EUPL-1.2"),
    *("Artistic-2.0", "AFL-3.0", "MulanPSL-2.0"),
)  # fmt: skip
# Of https://huggingface.co/docs/hub/repositories-licenses, those that SPDX does not have.
HUB = (
    *("openrail", "creativeml-openrail-m", "openrail++", "bigscience-bloom-rail-1.0", "bigscience-openrail-m"),
    *("bigcode-openrail-m", "llama2", "llama3", "llama3.1", "llama3.2", "gemma", "gpl-3.0", "gpl-2.0", "lgpl-3.0"),
    *("agpl-3.0", "gfdl", "pddl", "odbl", "odc-by", "cc", "other", "unknown"),
)
_ALSO_OF_THE_HUB = (
    *("apache-2.0", "mit", "cc0-1.0", "bsd-2-clause", "bsd-3-clause", "isc", "mpl-2.0", "unlicense", "wtfpl", "zlib"),
    *("cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0"),
    *("cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0"),
    *("cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-sharing-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0"),
    *("eupl-1.2", "epl-2.0", "artistic-2.0", "afl-3.0", "bsl-1.0"),
)
_OTHER_SPELLINGS = {
    **dict.fromkeys(("cc0", "cc-0", "cc0 1.0"), "CC0-1.0"),
    **dict.fromkeys(("apache", "apache 2.0", "apache license 2.0", "apache2"), "Apache-2.0"),
    **{name: name.upper().replace(" ", "-") for name in (f"{kind} {v}" for kind in ("cc by", "cc by-sa", "cc by-nc")
                                                         for v in ("3.0", "4.0"))},
}  # fmt: skip
_BY_FOLDED = {name.casefold(): name for name in (*HUB, *SPDX)} | _OTHER_SPELLINGS
_CREATIVE_COMMONS = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(?:licenses/([a-z-]{2,8})/(\d\.\d)|publicdomain/(zero)/1\.0)(?:/.*)?",
    re.IGNORECASE,
)
_OWN = re.compile(r"LicenseRef-[A-Za-z0-9.-]{1,80}", re.IGNORECASE)


def licence_name(text: str) -> str:
    """A licence by the name of SPDX, or of the Hub; the text itself, on one line, if neither has it.

    >>> licence_name("cc-by-4.0"), licence_name("CC0"), licence_name("https://creativecommons.org/licenses/by-nc/4.0/")
    ('CC-BY-4.0', 'CC0-1.0', 'CC-BY-NC-4.0')
    """
    text = " ".join(text.split())[:MAX_CHARACTERS]
    if address := _CREATIVE_COMMONS.fullmatch(text):
        terms, version, zero = address.groups()
        text = "CC0-1.0" if zero else f"CC-{terms}-{version}"
    return _BY_FOLDED.get(text.casefold(), text)


def checked_licence(text: str) -> str:
    """A licence that a config names, by the name of SPDX or of the Hub.

    Raises:
      ValueError: neither has it, and it is not a name of one's own, such as `LicenseRef-Acme-Calls`.
    """
    name = licence_name(text)
    if not text or name.casefold() in _BY_FOLDED:
        return name
    if _OWN.fullmatch(name):
        return f"LicenseRef-{name.partition('-')[2]}"
    close = [_BY_FOLDED[near] for near in difflib.get_close_matches(name.casefold(), _BY_FOLDED, 3)]
    meant = f"; do you mean {' or '.join(dict.fromkeys(close))}?" if close else ""
    raise ValueError(
        f"{text!r} is no licence that SPDX or the Hub has for data or models{meant} One of your own is "
        "LicenseRef- and a name, such as LicenseRef-Acme-Calls"
    )


def licence_of(line: Mapping[str, Any]) -> str:
    """The licence that a line states, by its name; empty if it states none.

    Args:
      line: of a manifest, or the further keys of a dataset's row.
    """
    for key in KEYS:
        value = line.get(key)
        if isinstance(value, str) and value.strip():
            return licence_name(value)
    return ""


def count_licences(rows: Iterable["DatasetRow"], splits: Iterable[str] = TRAINED_SPLITS) -> dict[str, int]:
    """Counts the utterances under each licence, and those whose licence is not stated; {} if no row states one."""
    counts = Counter(licence_of(row.extra) or NOT_STATED for row in rows if row.split in splits)
    return dict(sorted(counts.items())) if counts.keys() - {NOT_STATED} else {}


def text_licences(language_model: Mapping[str, Any]) -> list[str]:
    """The licences of the files that a language model was made of; [] if it was made of transcripts alone.

    "not stated" is one of the licences. Those of the transcripts are the dataset's.

    Args:
      language_model: the contents of `language_model.json`.

    Raises:
      WorkError: the licences are not texts.

    >>> text_licences({"text": {"files": 2, "transcripts": True, "licences": ["MIT", ""]}})
    ['MIT', 'not stated']
    >>> text_licences({"text": {"files": 0, "transcripts": True}})
    []
    """
    text = language_model.get("text")
    text = text if isinstance(text, Mapping) else {}
    # Without files and without transcripts it was an ARPA file.
    if not text.get("files") and text.get("transcripts"):
        return []
    licences = text.get("licences") or [""]
    if not isinstance(licences, list) or not all(isinstance(licence, str) for licence in licences):
        raise WorkError(f"language_model.json: 'text.licences' is {licences!r}; run the step `language` again")
    return sorted({licence_name(licence) or NOT_STATED for licence in licences})


def describe_licences(counts: Mapping[str, int]) -> str:
    """The counts in words; empty if no licence is stated.

    >>> describe_licences({"CC-BY-4.0": 1200, "not stated": 1})
    'CC-BY-4.0 (1,200 utterances), not stated (1 utterance)'
    """
    return ", ".join(f"{name} ({count:,} utterance{'' if count == 1 else 's'})" for name, count in counts.items())


def hub_licence(names: Iterable[str]) -> dict[str, str]:
    """The keys of a card's head on the Hub for all licences behind a model; {} if none is stated.

    The Hub has one name for a model. Of several licences, and of one that it has no name for, it wants `other` and the
    names in words.

    >>> hub_licence(["MIT", "mit"]), hub_licence(["MIT", "CC-BY-NC-4.0"])
    ({'license': 'mit'}, {'license': 'other', 'license_name': 'CC-BY-NC-4.0 and MIT'})
    """
    stated = sorted({licence_name(name) for name in names} - {NOT_STATED})
    if not stated:
        return {}
    known = stated[0].casefold()
    if len(stated) == 1 and known in (*HUB, *_ALSO_OF_THE_HUB):
        return {"license": known}
    return {"license": "other", "license_name": " and ".join(stated)}
