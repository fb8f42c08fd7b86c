"""What a table says of its own rows: that a person or a program found one invalid, poor or doubtful.

No row is left out for it: names and values of other people's tables differ. Ingest marks the row (`TEXT_DOUBT`), and
validate and `voxline config init` count the marks by column and value.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from voxline.data.manifest import ROW_MARK

LEAST_CONFIDENCE = 0.5
"""A recognizer's own probability of a text, below which most of it is wrong."""
LEAST_SNR_DB = 5.0
"""A ratio of speech to noise at which people misunderstand words."""
MOST_NAMED = 8
"""Values of a column that a remark lists."""

_Kind = Literal["good", "bad", "status", "quality", "confidence", "snr", "up", "down", "refusal", ""]

_KINDS: tuple[tuple[_Kind, str], ...] = (
    (
        "good",
        r"(?:is |was )?(?:valid|validated|accepted|approved|verified|correct|ok|okay|usable|used?|good|passed)"
        r"|(?:to )?(?:keep|included?)",
    ),
    (
        "bad",
        r"(?:is |was |has |to )?(?:excluded?|skip(?:ped)?|ignored?|discard(?:ed)?|removed?|drop(?:ped)?|deleted?|bad|"
        r"invalid(?:ated)?|rejected|flag(?:ged)?|reported|corrupt(?:ed)?|broken|duplicated?|garbage|spam|"
        r"blacklist(?:ed)?|blocked|unusable|poor|wrong)",
    ),
    (
        "status",
        r"answer|state|verdict|result|decision|validity|validation|"
        r"(?!(?:order|payment|delivery|shipping|http|marital|employment|loan|account|network) )(?:\w+ )?status"
        r"|(?:qa|qc|review|audit|validation|annotation)(?: (?:status|result|verdict|state|decision|label|flag))?"
        r"|(?:label|annotation|transcript(?:ion)?|audio) (?:status|verdict|validity)",
    ),
    (
        "quality",
        r"(?:\w+ )?(?:quality|ratings?|usability)(?: (?:score|label|class|rating|level|flag))?|mos(?: score)?|dnsmos"
        r"|(?:votes?|likes?|dislikes?)(?: count)?|(?:num |n )?votes|wer|cer",
    ),
    ("confidence", r"(?:\w+ )?(?:confidence|conf)(?: (?:score|value|level))?|confidences"),
    ("snr", r"(?:\w+ )?snr(?: (?:db|value|score|estimate))?|(?:\w+ )?signal to noise(?: ratio)?"),
    ("up", r"up ?votes?|thumbs ?up|votes? ?up|(?:positive|yes|valid) votes?"),
    ("down", r"down ?votes?|thumbs ?down|votes? ?down|(?:negative|no|invalid) votes?"),
    (
        "refusal",
        r"(?:reject(?:ed|ion)?|exclu(?:ded?|sion)|delet(?:ed?|ion)|skip(?:ped)?|discard(?:ed)?|invalid(?:ated)?)"
        r" (?:reasons?|at|on|by|date|notes?|comments?)",
    ),
)
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)
_TRUE = frozenset(("1", "1.0", "true", "yes", "y", "t"))
_FALSE = frozenset(("0", "0.0", "false", "no", "n", "f"))
_NOTHING = frozenset(
    ("", "-", "--", "none", "null", "nan", "nat", "n/a", "na", "[]", "{}", "0000-00-00", "0000-00-00 00:00:00")
)
"""Values that stand for no reason and no date."""
_POOR = frozenset((
    "reject", "rejected", "rejection", "invalid", "invalidated", "bad", "low", "very low", "poor", "very poor", "wrong",
    "incorrect", "fail", "failed", "exclude", "excluded", "discard", "discarded", "skip", "skipped", "ignore",
    "ignored", "delete", "deleted", "removed", "unusable", "garbage", "spam", "corrupt", "corrupted", "broken",
    "not ok", "nok", "ko", "unacceptable", "unverified", "disapproved", "declined", "denied", "needs review",
    "needs_review", "to_review",
    "terrible", "horrible", "worst", "noisy", "unintelligible", "blacklisted", "flagged", "reported",
    "duplicate", "error",
))  # fmt: skip
"""Values of a row that nobody wanted, in small letters."""
_GOOD = frozenset((
    "accept", "accepted", "valid", "approved", "correct", "good", "ok", "high", "medium", "keep", "kept", "passed",
    "pass", "verified",
))  # fmt: skip
"""Their opposites, by which a column of the same name is known as one."""
_REFUSED_TABLES = frozenset(("invalidated", "invalid", "rejected", "rejects", "reported", "excluded", "discarded"))
"""Names of tables and splits, such as those of Common Voice."""


@functools.lru_cache(1_024)
def _kind(name: str) -> _Kind:
    """The kind of verdict that a column has on its rows, by its name.

    >>> _kind("is_valid"), _kind("upVotes"), _kind("Audio Quality"), _kind("accent")
    ('good', 'up', 'quality', '')
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = " ".join(re.findall(r"[^\W_]+", spaced.lower()))
    return next((kind for kind, pattern in _PATTERNS if pattern.fullmatch(words)), "")


def row_marks(values: Mapping[str, Any], split: str = "") -> list[str]:
    """The faults that a row's own columns find with it, a line of column and value each; those within a mapping too.

    Args:
      values: the further keys of a row.
      split: the corpus' own name of its split or table.

    >>> row_marks({"status": "Rejected", "quality": "high", "up_votes": "0", "down_votes": "2"})
    ['row: status rejected', 'row: up_votes below down_votes']
    >>> row_marks({"is_valid": False, "review": {"flag": 1}, "confidence": 0.2}, "invalidated")
    ['row: split invalidated', 'row: is_valid false', 'row: review.flag 1', 'row: confidence under 0.5']
    """
    marks = [f"{ROW_MARK}split {split}"] if split.lower() in _REFUSED_TABLES else []
    votes: dict[str, tuple[str, float]] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            marks += [
                f"{ROW_MARK}{name}.{mark.removeprefix(ROW_MARK)}"
                for inner, other in value.items()
                if isinstance(inner, str) and not isinstance(other, dict)
                for mark in row_marks({inner: other})
            ]
            continue
        kind = _kind(name)
        if not kind or value is None or isinstance(value, list):
            continue
        if kind in ("up", "down"):
            if (number := _number(value)) is not None:
                votes[kind] = (name, number)
        elif mark := _mark(kind, value):
            marks.append(f"{ROW_MARK}{name} {mark}")
    if len(votes) == 2 and votes["up"][1] < votes["down"][1]:
        marks.append(f"{ROW_MARK}{votes['up'][0]} below {votes['down'][0]}")
    return marks


def _mark(kind: _Kind, value: Any) -> str:
    """The fault that a value finds with its row; empty if none."""
    text = " ".join(str(value).split()).lower()[:40]
    if kind in ("confidence", "snr"):
        number = _number(value)
        least = LEAST_CONFIDENCE if kind == "confidence" else LEAST_SNR_DB
        # A confidence of more than one is in percent, say; words of it are those of any quality.
        if number is not None:
            is_poor = number < least and (kind == "snr" or number >= 0)
            return f"under {least:g}" if is_poor else ""
    if kind == "refusal":
        return "is there" if text not in _FALSE | _NOTHING else ""
    is_bad = (kind == "good" and text in _FALSE) or (kind == "bad" and text in _TRUE)
    return text if is_bad or text in _POOR else ""


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if not isinstance(value, bool) and number == number else None


def describe_verdicts(names: Iterable[str], sample: Mapping[str, Sequence[Any]]) -> list[str]:
    """Names columns that say how good their rows are, with the values of some rows and how often each is there.

    >>> describe_verdicts(["is_valid"], {"is_valid": ["1", "1", "0"]})
    ['is_valid is kept, and leaves out no row: 1 (2), 0 (1); take those out that were not accepted']
    >>> describe_verdicts(["status"], {"status": ["married"]})
    []
    """
    remarks = []
    for name in names:
        kind = _kind(name)
        values = [" ".join(str(value).split())[:40] for value in sample.get(name, ()) if not isinstance(value, dict)]
        if not kind or not values or not _are_verdicts(kind, {value.lower() for value in values}):
            continue
        numbers = [number for value in values if (number := _number(value)) is not None]
        counts = Counter(values)
        if len(counts) > MOST_NAMED and len(numbers) == len(values):
            shown = f"{min(numbers):g} to {max(numbers):g}"
        else:
            shown = ", ".join(f"{value} ({count:,})" for value, count in counts.most_common(MOST_NAMED))
            shown += " …" * (len(counts) > MOST_NAMED)
        remarks.append(f"{name} is kept, and leaves out no row: {shown}; take those out that were not accepted")
    return remarks


def _are_verdicts(kind: _Kind, values: set[str]) -> bool:
    """True if values are those of a verdict or a measure; of a status and a state, there are others."""
    if kind == "refusal":
        return True
    if values & _POOR or values & _GOOD:
        return True
    if kind in ("good", "bad"):
        return values <= _TRUE | _FALSE
    if kind == "status":
        return bool(values & {"true", "false", "yes", "no"})
    numbers = [number for value in values if (number := _number(value)) is not None]
    if kind in ("confidence", "snr"):
        return min(numbers, default=100.0) < (LEAST_CONFIDENCE if kind == "confidence" else LEAST_SNR_DB)
    # Votes in favor alone are against nobody.
    return len(numbers) == len(values) and kind != "up" and (kind != "down" or max(numbers) > 0)
