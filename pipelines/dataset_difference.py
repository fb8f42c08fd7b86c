"""What changed from one dataset to another, as `voxline diff` shows it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from components.publish.difference import (
    Changed,
    Difference,
    Line,
    compared,
    for_the_gate,
    word_difference,
    words_changed,
)
from components.publish.drift import drift


def told(before: str, after: str, limit: int) -> list[str]:
    """The lines of the comparison, at most `limit` utterances or speakers of each kind."""
    found = compared(before, after)
    counts = found.counts()
    if not any(counts.values()) and not found.changed:
        return ["the same utterances, texts, audio, speakers and splits", *_how(found)]
    lines = [", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items()), *_how(found)]
    lines += _splits(found)
    lines += _listed("added", found.added, _line, limit)
    lines += _listed("removed", found.removed, _line, limit)
    lines += _listed("text changed", found.texts, _texts, limit)
    lines += _words(found, limit)
    lines += _listed("audio changed", found.audio, _seconds, limit)
    lines += _listed("moved", found.moved, lambda one: f"{one.before['split']} → {one.after['split']}", limit)
    lines += _listed("speaker changed", found.speakers, lambda one: _both(one, "speaker"), limit)
    lines += _speakers(found, limit)
    if moved := drift(found.before, found.after):
        lines.append(f"features: {moved.told()}")
    lines.append(f"{for_the_gate(found)[0].lower()}{for_the_gate(found)[1:]}")
    return lines


def _how(found: Difference) -> list[str]:
    """How features are made and texts spelled, where that is not the same."""
    pairs = {
        "features": (found.before.features.plain(), found.after.features.plain()),
        "alphabet": (found.before.alphabet.symbols, found.after.alphabet.symbols),
        "reading": (found.before.reading, found.after.reading),
        "speeds": (found.before.speeds, found.after.speeds),
    }
    return [f"other {name}: {old} → {new}" for name, (old, new) in pairs.items() if old != new]


def _splits(found: Difference) -> list[str]:
    lines = []
    for split in dict.fromkeys([*found.before.counts, *found.after.counts]):
        old, new = (dataset.counts.get(split, 0) for dataset in (found.before, found.after))
        hours = [dataset.seconds.get(split, 0.0) / 3600 for dataset in (found.before, found.after)]
        lines.append(f"{split:<8}{old:,} → {new:,} utterances, {hours[0]:.2f} → {hours[1]:.2f} h")
    return lines


def _listed(kind: str, found: Sequence[Changed] | Sequence[Line], say: Callable[[Any], str], limit: int) -> list[str]:
    if not found:
        return []
    named = [f"  {one.id if isinstance(one, Changed) else one['id']}  {say(one)}" for one in found[:limit]]
    return [f"{kind}: {len(found):,}", *named, *_more(len(found), limit)]


def _words(found: Difference, limit: int) -> list[str]:
    changed: Counter[tuple[str, str]] = words_changed(found.texts)
    often = [(pair, count) for pair, count in changed.most_common(limit) if count > 1]
    return [f"  {count:,} × {old or 'nothing'} → {new or 'nothing'}" for (old, new), count in often]


def _speakers(found: Difference, limit: int) -> list[str]:
    seconds = found.seconds_of_speakers()
    if not seconds:
        return []
    lines = [f"speakers: {len(seconds):,} speak for longer or shorter than before"]
    for speaker, (old, new) in list(seconds.items())[:limit]:
        note = "  new" if not old else "  gone" if not new else ""
        lines.append(f"  {speaker or '(not told)'}  {old:,.1f} → {new:,.1f} s{note}")
    return lines + _more(len(seconds), limit)


def _more(count: int, limit: int) -> list[str]:
    return [f"  … and {count - limit:,} more"] if count > limit else []


def _line(line: Line) -> str:
    return f"{line['split']}  {line['speaker']}  {line['text']}"


def _texts(one: Changed) -> str:
    return word_difference(one.before["text"], one.after["text"])


def _seconds(one: Changed) -> str:
    return f"{one.before['duration']:.2f} → {one.after['duration']:.2f} s"


def _both(one: Changed, key: str) -> str:
    return f"{one.before[key]} → {one.after[key]}"
